"""The rules that say where a pod may go, a small module each; `filter.py` is what they have in common."""

from __future__ import annotations

from plimsoll.schedule.filters.affinity import AffinityFilter
from plimsoll.schedule.filters.filter import Filter
from plimsoll.schedule.filters.inter_pod import InterPodFilter
from plimsoll.schedule.filters.node_name import NodeNameFilter
from plimsoll.schedule.filters.ports import PortsFilter
from plimsoll.schedule.filters.resources import ResourcesFilter
from plimsoll.schedule.filters.spread import SpreadFilter
from plimsoll.schedule.filters.taints import TaintsFilter
from plimsoll.schedule.filters.unschedulable import UnschedulableFilter

#: In kube-scheduler's order; the first rule that a node breaks is the one that is told. Devices come last.
FILTERS: tuple[type[Filter], ...] = (
    UnschedulableFilter,
    NodeNameFilter,
    TaintsFilter,
    AffinityFilter,
    PortsFilter,
    ResourcesFilter,
    SpreadFilter,
    InterPodFilter,
)
