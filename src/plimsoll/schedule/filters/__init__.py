"""The rules that say where a pod may go, a small module each; `filter.py` is what they have in common."""

from __future__ import annotations

from plimsoll.schedule.filters.affinity import AffinityFilter
from plimsoll.schedule.filters.features import FeaturesFilter
from plimsoll.schedule.filters.filter import Filter
from plimsoll.schedule.filters.inter_pod import InterPodFilter
from plimsoll.schedule.filters.node_name import NodeNameFilter
from plimsoll.schedule.filters.ports import PortsFilter
from plimsoll.schedule.filters.resources import ResourcesFilter
from plimsoll.schedule.filters.spread import SpreadFilter
from plimsoll.schedule.filters.taints import TaintsFilter
from plimsoll.schedule.filters.unschedulable import UnschedulableFilter
from plimsoll.schedule.filters.unsupported import UnsupportedFilter
from plimsoll.schedule.filters.volume_binding import VolumeBindingFilter
from plimsoll.schedule.filters.volume_limits import VolumeLimitsFilter
from plimsoll.schedule.filters.volume_restrictions import VolumeRestrictionsFilter
from plimsoll.schedule.filters.volume_zone import VolumeZoneFilter

#: In kube-scheduler's order; the first rule that a node breaks is the one that is told. Devices come last.
FILTERS: tuple[type[Filter], ...] = (
    UnsupportedFilter,
    UnschedulableFilter,
    NodeNameFilter,
    TaintsFilter,
    AffinityFilter,
    PortsFilter,
    ResourcesFilter,
    VolumeRestrictionsFilter,
    VolumeLimitsFilter,
    VolumeBindingFilter,
    VolumeZoneFilter,
    SpreadFilter,
    InterPodFilter,
    FeaturesFilter,
)
