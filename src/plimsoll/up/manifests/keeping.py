"""Recorded objects that controllers would delete or change at once, with the reasons.

`find_kept` asks the controllers' own functions what is due: evictions by taints, garbage of absent owners,
pods and nodes, claims without users, deadlines that ended after the dump was taken. `kept_workloads.py` does
so for workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from plimsoll.api.timestamps import parse_time
from plimsoll.apiserver.registry.resources import find_resource_by_kind
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.controllers.device_taint_eviction.plan import (
    EvictionCause,
    pod_eviction,
    published_taints,
    rule_taints,
)
from plimsoll.controllers.node_lifecycle import is_ready
from plimsoll.controllers.pod_utils import claim_names, find_condition, is_finished, is_pod
from plimsoll.controllers.taint_eviction import eviction_time
from plimsoll.scheduler.process.configuration import DEFAULT_NAME, NAME
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.kinds import KINDS
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.whatif import Whatif
from plimsoll.up.manifests.kept_workloads import RecordedWorkloads

Tree = dict[str, Any]


#: Kinds that decisions about others depend on.
CONTEXT = ("Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceTaintRule")
#: Return the uid of an object; "" if it does not exist.
FindUid = Callable[[ObjectKey], str]


def find_kept(
    trees: Sequence[Tree], others: Sequence[Tree], find_uid: FindUid, now: datetime
) -> Iterator[tuple[Tree, str]]:
    """Yield the objects that would not stay as they are, each with the reason.

    `others` are the objects of the kinds in `CONTEXT` that exist besides.
    """
    recorded = _RecordedState([*others, *trees], find_uid, now.timestamp())
    for tree in trees:
        reason = recorded.reason(tree)
        if reason:
            yield tree, reason


@dataclass(slots=True)
class _RecordedState:
    """Typed objects, as far as the controllers' decisions depend on them."""

    trees: Sequence[Tree]
    find_uid: FindUid
    now: float
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)  #: by UID
    claims: dict[tuple[str, str], ResourceClaim] = field(default_factory=dict)
    rules: list[DeviceTaintRule] = field(default_factory=list)
    taints: dict[PoolId, dict[str, list[tuple[EvictionCause, DeviceTaint, float]]]] = field(
        default_factory=dict
    )
    workloads: RecordedWorkloads = field(init=False)
    #: Pending pods that the scheduler would place, at once or after preemption.
    schedulable: Set[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        self.nodes = {each.metadata.name: each for each in self._all(Node)}
        self.pods = {each.metadata.uid: each for each in self._all(Pod)}
        self.claims = {each.metadata.key: each for each in self._all(ResourceClaim)}
        self.rules = list(self._all(DeviceTaintRule))
        pools: dict[PoolId, list[ResourceSlice]] = {}
        for each in self._all(ResourceSlice):
            pools.setdefault(PoolId(each.spec.driver, each.spec.pool.name), []).append(each)
        self.taints = {pool: published_taints(slices) for pool, slices in pools.items()}
        self.workloads = RecordedWorkloads(self.trees, list(self.nodes.values()), self.now)
        self.schedulable = find_schedulable(self.trees)

    def _all(self, view: type[Any]) -> Iterator[Any]:
        kind = view.__name__
        return (codec.convert(tree, view) for tree in self.trees if tree["kind"] == kind)

    def reason(self, tree: Tree) -> str:
        """Return why an object would not stay as it is; "" if it would."""
        kind, uid = tree["kind"], tree["metadata"]["uid"]
        reason = ""
        if kind == "Node":
            reason = _node_reason(self.nodes[tree["metadata"]["name"]])
        elif kind == "Pod":
            reason = self._pod_reason(self.pods[uid])
        elif kind == "ResourceClaim":
            reason = self._claim_reason(codec.convert(tree, ResourceClaim))
        else:
            reason = self.workloads.reason(tree)
        return reason or self._owner_reason(tree)

    # -- pods

    def _pod_reason(self, pod: Pod) -> str:
        if is_finished(pod):
            return ""
        if not pod.spec.node_name:
            return "it was pending, and could be scheduled" if pod.metadata.key in self.schedulable else ""
        node = self.nodes.get(pod.spec.node_name)
        if node is None:
            return "its node is not in the files"
        if pod.metadata.deletion_timestamp is not None:
            return "it was terminating"
        if eviction_time(pod, node.spec.taints, self.now) is not None:
            return "a NoExecute taint of its node"
        claims = {
            name: claim
            for name in claim_names(pod)
            if (claim := self.claims.get((pod.metadata.namespace, name))) is not None
        }
        if pod_eviction(pod, claims, self._device_taints) is not None:
            return "a NoExecute taint of its device"
        if _has_passed(pod.status.start_time, pod.spec.active_deadline_seconds, self.now):
            return "its active deadline has passed since"
        return ""

    def _device_taints(
        self, result: DeviceRequestAllocationResult
    ) -> Iterable[tuple[EvictionCause, DeviceTaint, float]]:
        yield from self.taints.get(DeviceId.of(result).pool_id, {}).get(result.device, ())
        yield from rule_taints(self.rules, result)

    # -- claims

    def _claim_reason(self, claim: ResourceClaim) -> str:
        if claim.status.allocation is None:
            return ""
        pods = [self.pods.get(each.uid) for each in claim.status.reserved_for if is_pod(each)]
        if any(pod is None or is_finished(pod) for pod in pods):
            return "reserved for a pod that does not run"
        return ""

    # -- others

    def _owner_reason(self, tree: Tree) -> str:
        references = tree["metadata"].get("ownerReferences") or ()
        absent = [each for each in references if self._is_absent(each, tree["metadata"].get("namespace", ""))]
        return f"its {absent[0]['kind']} is not in the files" if absent else ""

    def _is_absent(self, reference: Mapping[str, Any], namespace: str) -> bool:
        """Return whether an owner does not exist; this is unknown for kinds that are not served."""
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        resource = find_resource_by_kind(group, version, str(reference.get("kind")))
        if resource is None:
            return False
        place = namespace if resource.namespaced else ""
        key = ObjectKey(resource.storage_key, place, str(reference.get("name")))
        return self.find_uid(key) != str(reference.get("uid"))


def find_schedulable(trees: Iterable[Tree]) -> set[tuple[str, str]]:
    """Return the pending pods that Plimsoll's scheduler could schedule, each without the others."""
    views = {kind.endpoint.kind: kind.view for kind in KINDS}
    objects = ClusterObjects(
        codec.convert(tree, views[tree["kind"]]) for tree in trees if tree["kind"] in views
    )
    for pod in objects.all(Pod):
        if not pod.spec.node_name and pod.spec.scheduler_name not in (DEFAULT_NAME, NAME):
            objects.remove(pod)
    found: set[tuple[str, str]] = set()
    while any(not pod.spec.node_name for pod in objects.all(Pod)):
        with Whatif(ClusterState(objects), settings=SchedulerProfile.default()) as whatif:
            placed = {each.pod for each in whatif.schedule().placed}
        if not placed:
            break
        found |= placed
        for pod in objects.all(Pod):
            if pod.metadata.key in placed:
                objects.remove(pod)
    return found


def _node_reason(node: Node) -> str:
    is_silent = find_condition(node.status.conditions, "Ready") is not None and not is_ready(node)
    return "it was not ready" if is_silent else ""


def _has_passed(start: str | None, seconds: int | None, now: float) -> bool:
    since = parse_time(start)
    return since is not None and seconds is not None and since + seconds <= now
