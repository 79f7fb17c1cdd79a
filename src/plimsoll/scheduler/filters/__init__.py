"""Filters: one module per scheduling rule, named after kube-scheduler's plugin.

A module keeps its rule's bulk filter, pointwise filter, queueing hint and reasons together. To add a rule,
add its module and a line in `FILTERS`. `filter.py` has the base class.
"""

from __future__ import annotations

from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityFilter
from plimsoll.scheduler.filters.mixed_advertisers import MixedAdvertisersFilter
from plimsoll.scheduler.filters.node_affinity import NodeAffinityFilter
from plimsoll.scheduler.filters.node_declared_features import NodeDeclaredFeaturesFilter
from plimsoll.scheduler.filters.node_name import NodeNameFilter
from plimsoll.scheduler.filters.node_ports import NodePortsFilter
from plimsoll.scheduler.filters.node_resources import NodeResourcesFilter
from plimsoll.scheduler.filters.node_unschedulable import NodeUnschedulableFilter
from plimsoll.scheduler.filters.node_volume_limits import NodeVolumeLimitsFilter
from plimsoll.scheduler.filters.pod_topology_spread import PodTopologySpreadFilter
from plimsoll.scheduler.filters.taint_toleration import TaintTolerationFilter
from plimsoll.scheduler.filters.unsupported import UnsupportedFilter
from plimsoll.scheduler.filters.volume_binding import VolumeBindingFilter
from plimsoll.scheduler.filters.volume_restrictions import VolumeRestrictionsFilter
from plimsoll.scheduler.filters.volume_zone import VolumeZoneFilter

#: Filters in kube-scheduler's order: the first that rejects a node gives the reason. Devices come last.
FILTERS: tuple[type[Filter], ...] = (
    UnsupportedFilter,
    NodeUnschedulableFilter,
    NodeNameFilter,
    TaintTolerationFilter,
    NodeAffinityFilter,
    NodePortsFilter,
    NodeResourcesFilter,
    VolumeRestrictionsFilter,
    NodeVolumeLimitsFilter,
    VolumeBindingFilter,
    VolumeZoneFilter,
    PodTopologySpreadFilter,
    InterPodAffinityFilter,
    NodeDeclaredFeaturesFilter,
    MixedAdvertisersFilter,
)
