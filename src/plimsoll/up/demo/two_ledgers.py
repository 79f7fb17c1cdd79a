"""Simulation of a scheduler that accounts for requests and claims separately.

`simulate_separate_ledgers` is a pure function of objects. It runs the scheduling cycle with the feature gates
of stock Kubernetes, where devices charge nothing to their node, and then applies the node's single ledger to
the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.resource import ResourceClaim, ResourceClaimStatus
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import Placement
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.cluster_state.files import decode_object
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.top.nodes import ResourceRow, node_rows

#: Creation time of the objects; nothing depends on it.
_CREATED_AT = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class SeparateLedgers:
    """Node of each pod under separate accounting ("" if none), and the resulting charges on one ledger."""

    nodes: Mapping[str, str]
    row: ResourceRow

    @property
    def overcommitted(self) -> int:
        """Overcommitted CPU of the node in milli-CPUs."""
        return -self.row.free


def simulate_separate_ledgers(
    found: Iterable[ParsedObject], node: str, resource: str = "cpu"
) -> SeparateLedgers:
    """Schedule the pods of some objects, in their order, as a stock scheduler would."""
    objects = [object_ for each in found if (object_ := _read(each)) is not None]
    cluster_state = ClusterState(ClusterObjects(objects), Gates.upstream())
    numbers = count(1)
    nodes: dict[str, str] = {}
    for pod in [each for each in objects if isinstance(each, Pod)]:
        pod_info = read_pod_info(pod, cluster_state.snapshot)
        result = None
        if isinstance(pod_info, PodInfo):
            settings = SchedulerProfile.default()
            result = schedule_one(
                pod_info, cluster_state.snapshot, settings, lambda: f"share-{next(numbers)}"
            )
        nodes[pod.metadata.name] = result.node if isinstance(result, Placement) else ""
        if isinstance(result, Placement):
            for object_ in _bound(pod, result, cluster_state.objects):
                cluster_state.set(object_)
    (row,) = node_rows(ClusterState(cluster_state.objects, Gates.default()), names=[node])
    return SeparateLedgers(nodes, row.row(resource))


def _read(found: ParsedObject) -> Any:
    """Return an object as the API has it, with a UID."""
    object_ = decode_object(found, _CREATED_AT)
    if object_ is None:
        return None
    return replace(object_, metadata=replace(object_.metadata, uid=f"uid-of-{object_.metadata.name}"))


def _bound(pod: Pod, placement: Placement, objects: ClusterObjects) -> Iterable[Any]:
    """Return the objects that binding a pod changes."""
    for name, allocation in placement.allocations.items():
        claim = objects.find(ResourceClaim, pod.metadata.namespace, name)
        if claim is not None:
            yield replace(claim, status=ResourceClaimStatus(allocation=allocation))
    yield replace(pod, spec=replace(pod.spec, node_name=placement.node))
