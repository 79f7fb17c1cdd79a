"""The rules that say where a pod may go, a small module each; `filter.py` is what they have in common."""

from __future__ import annotations

from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodFilter
from plimsoll.scheduler.filters.node_affinity import AffinityFilter
from plimsoll.scheduler.filters.node_declared_features import FeaturesFilter
from plimsoll.scheduler.filters.node_name import NodeNameFilter
from plimsoll.scheduler.filters.node_ports import PortsFilter
from plimsoll.scheduler.filters.node_resources import ResourcesFilter
from plimsoll.scheduler.filters.node_unschedulable import UnschedulableFilter
from plimsoll.scheduler.filters.node_volume_limits import VolumeLimitsFilter
from plimsoll.scheduler.filters.pod_topology_spread import SpreadFilter
from plimsoll.scheduler.filters.taint_toleration import TaintsFilter
from plimsoll.scheduler.filters.unsupported import UnsupportedFilter
from plimsoll.scheduler.filters.volume_binding import VolumeBindingFilter
from plimsoll.scheduler.filters.volume_restrictions import VolumeRestrictionsFilter
from plimsoll.scheduler.filters.volume_zone import VolumeZoneFilter

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
