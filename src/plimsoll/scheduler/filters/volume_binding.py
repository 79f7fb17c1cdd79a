"""VolumeBinding: nodes from which a pod's volumes are reachable, or for which there can be volumes.

Every PersistentVolumeClaim must exist and belong to the pod if it was generated for it. For a bound claim the
node must match the volume's node affinity. Claims with immediate binding are left to the volume controller.
For an unbound claim with WaitForFirstConsumer, a node needs a volume that matches (`volume_matching`) or must
be one for which a volume can be provisioned (`volume_provisioning`); the choices for a node are in
`find_volumes`, and are written when the pod is bound (`binding/volumes.py`).

DIFF: a claim that several volumes of a pod name is bound once; kube-scheduler looks for a volume for each of
them, and may bind two (test_a_claim_used_twice_is_bound_once).

DIFF: the node affinity of in-tree volumes is not translated to the topology keys of the CSI drivers that they
are migrated to (test_node_affinity_of_in_tree_volumes_is_not_translated).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from plimsoll.api.core import NodeSelector, Pod
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.api.node_selection import find_selector_problem
from plimsoll.api.pod_claims import is_owned_by
from plimsoll.api.pod_volumes import VolumeClaim, volume_claims
from plimsoll.api.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from plimsoll.api.volume_matching import (
    MatchingVolumes,
    find_matching_volumes,
)
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_affinity import NodeAffinityIndex
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.filters.volume_provisioning import Provisioning, StorageIndex
from plimsoll.scheduler.filters.volume_reach import (
    ReachableVolumes,
    VolumeNodes,
    is_reachable,
    reaches_node,
)
from plimsoll.scheduler.filters.volumes import (
    STORAGE_EVENTS,
    VolumeMessage,
    VolumeQueueingHint,
    find_claim,
    find_volume,
    uses_claims,
)
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonCounts, ReasonMessage, Rule
from plimsoll.scheduler.result import NO_VOLUMES, DynamicProvision, PodVolumes, StaticBinding
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Annotation of a CSINode: in-tree plugins whose volumes a CSI driver handles.
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class VolumeBindingMessage(ReasonMessage):
    """Messages of VolumeBinding."""

    AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
    NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
    NO_CAPACITY = "node(s) did not have enough free storage"
    VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    CLAIM_NOT_CREATED = (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "{claim}"'
    )
    CLAIM_LOST = 'persistentvolumeclaim "{claim}" bound to non-existent persistentvolume "{volume}"'
    CLAIM_DELETED = 'persistentvolumeclaim "{claim}" is being deleted'
    CLAIM_NOT_OWNED = "PVC {claim} was not created for pod {pod} (pod is not owner)"
    CLAIM_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
    CLASS_WITHOUT_BINDING_MODE = 'VolumeBindingMode not set for StorageClass "{storage_class}"'
    INVALID_SELECTOR = "error creating internal label selector for claim: {claim}: {problem}"


_reason = partial(NodeReason.unresolvable, Rule.VOLUME_BINDING)
_AFFINITY = _reason(VolumeBindingMessage.AFFINITY)
_GONE = _reason(VolumeBindingMessage.VOLUME_MISSING)


class VolumeBindingFilter(VolumeQueueingHint, Filter):
    """Filter by the volumes of a pod."""

    rule = Rule.VOLUME_BINDING
    #: DIFF: a pod is woken when a driver no longer publishes its capacity; kube-scheduler wakes only pods
    #: with inline volumes of the driver (test_a_driver_that_no_longer_publishes_capacity_wakes_pods).
    events = STORAGE_EVENTS | {
        EventKind.NODE_ADDED,
        NodeUpdate.LABELS,
        EventKind.POD_DELETED,
        EventKind.CSI_DRIVER_CHANGED,
        EventKind.STORAGE_CAPACITY_CHANGED,
    }

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        affinities: Sequence[NodeSelector | None],
        unbound: Sequence[PersistentVolumeClaim] = (),
        matching: Sequence[MatchingVolumes] = (),
    ) -> None:
        """Create a filter for bound volumes with these affinities (None: the volume does not exist).

        `unbound` are the claims that wait for their first consumer, `matching` the volumes for those without
        a selected node, the smallest claim first.
        """
        super().__init__(pod_info, snapshot)
        self._affinities = affinities
        self._provisioned = [claim for claim in unbound if claim.selected_node is not None]
        waiting = sorted((claim for claim in unbound if claim.selected_node is None), key=_size)
        self._matched = list(zip(waiting, matching, strict=True))
        self._provisioning = {claim.metadata.name: Provisioning(claim, snapshot) for claim in unbound}

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        pod = pod_info.pod
        if not pod.spec.volumes or not uses_claims(pod):
            return None
        claims: dict[str, PersistentVolumeClaim] = {}
        for used in volume_claims(pod):
            claim = find_claim(pod, used, snapshot)
            if claim is None:
                missing = (
                    VolumeBindingMessage.CLAIM_NOT_CREATED if used.generated else VolumeMessage.CLAIM_MISSING
                )
                return _reason(missing, claim=used.name)
            problem = _problem(claim, used, pod)
            if problem is not None:
                return problem
            claims[used.name] = claim
        unbound = [claim for claim in claims.values() if not claim.bound]
        refused = _refuse_immediate(unbound, snapshot)
        if refused is not None:
            return refused
        affinities: list[NodeSelector | None] = []
        for claim in claims.values():
            volume = find_volume(claim.spec.volume_name, snapshot) if claim.bound else None
            if claim.bound and (volume is None or volume.required_affinity is not None):
                affinities.append(None if volume is None else volume.required_affinity)
        matching = _find_matching(unbound, snapshot)
        if isinstance(matching, NodeReason):
            return matching
        return cls(pod_info, snapshot, affinities, unbound, matching) if affinities or unbound else None

    @property
    def has_unbound_claims(self) -> bool:
        """True if a claim waits for its first consumer."""
        return bool(self._provisioning)

    # -- one node

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        node = self.snapshot.node(row)
        volumes = self._find(row, self._matched, partial(reaches_node, node))
        unbound = () if isinstance(volumes, PodVolumes) else (volumes,)
        for affinity in self._affinities:
            if affinity is None:
                return (*unbound, _GONE)
            if not is_reachable(affinity, node):
                return (_AFFINITY, *unbound)
        return unbound

    def find_volumes(self, row: int) -> PodVolumes | NodeReason:
        """Choose volumes for the unbound claims on a node, or return why there are none."""
        if not self._provisioning:
            return NO_VOLUMES
        return self._find(row, self._matched, partial(self.snapshot.index(VolumeNodes).reaches, row))

    def _find(
        self,
        row: int,
        matched: Sequence[tuple[PersistentVolumeClaim, MatchingVolumes]],
        reaches: Callable[[PersistentVolume], bool],
    ) -> PodVolumes | NodeReason:
        node = self.snapshot.node(row)
        for claim in self._provisioned:
            if claim.selected_node != node.metadata.name:
                return _no_volume(claim)
        bindings: list[StaticBinding] = []
        provisioned = list(self._provisioned)
        for claim, matching in matched:
            chosen = {binding.volume.metadata.name for binding in bindings}
            volume = matching.choose(reaches, chosen)
            if volume is None:
                provisioned.append(claim)
            else:
                bindings.append(StaticBinding(volume, claim))
        provisions: list[DynamicProvision] = []
        for claim in provisioned:
            provisioning = self._provisioning[claim.metadata.name]
            if not provisioning.allows(node):
                return _no_volume(claim)
            capacity = None
            if provisioning.checks_capacity:
                capacity = provisioning.find_capacity(node)
                if capacity is None:
                    return _no_capacity(claim)
            provisions.append(DynamicProvision(claim, capacity))
        return PodVolumes(tuple(bindings), tuple(provisions))

    # -- all nodes

    def filter(self) -> Mask:
        mask = np.ones(self.snapshot.size, dtype=np.bool_)
        for _, rejected in self._rejections:
            mask &= ~rejected
        return mask

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        counts = ReasonCounts()
        for reason, mask in self._rejections:
            if number := int(np.count_nonzero(removed & mask)):
                counts.add(reason, number)
        return counts.items()

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return np.zeros_like(removed)

    @cached_property
    def _rejections(self) -> list[tuple[NodeReason, Mask]]:
        """Reasons, each with the nodes that are rejected for it."""
        found: list[tuple[NodeReason, Mask]] = []
        size, passed = self.snapshot.size, np.ones(self.snapshot.size, dtype=np.bool_)
        for affinity in self._affinities:
            column = np.zeros(size, dtype=np.bool_) if affinity is None else self._column(affinity)
            found.append((_GONE if affinity is None else _AFFINITY, passed & ~column))
            passed = passed & column
        return [*found, *self._unbound_rejections()] if self._provisioning else found

    def _unbound_rejections(self) -> list[tuple[NodeReason, Mask]]:
        if self._provisioned:
            return self._rejections_but_selected(self._provisioned[0])
        found = self._provisioning_rejections()
        reachable = [ReachableVolumes(matching, self.snapshot) for _, matching in self._matched]
        rows = {row for each in reachable for row in each.rows()}
        for _, mask in found:
            mask[list(rows)] = False
        if len(reachable) == 1:
            return found  # each of these nodes has a volume for the only claim
        by_reason = {(reason.message, reason.facts["claim"]): (reason, mask) for reason, mask in found}
        claims, index = [claim for claim, _ in self._matched], self.snapshot.index(VolumeNodes)
        for row in rows:  # each has a choice of volumes of its own
            near = [each.near(row) for each in reachable]
            reason = self._find(row, list(zip(claims, near, strict=True)), partial(index.reaches, row))
            if isinstance(reason, NodeReason):
                key = reason.message, reason.facts["claim"]
                if key not in by_reason:
                    by_reason[key] = reason, np.zeros(self.snapshot.size, dtype=np.bool_)
                by_reason[key][1][row] = True
        return list(by_reason.values())

    def _rejections_but_selected(self, claim: PersistentVolumeClaim) -> list[tuple[NodeReason, Mask]]:
        """Return the rejections if a claim has a selected node: by all others, and perhaps by that node."""
        others = np.ones(self.snapshot.size, dtype=np.bool_)
        row = self.snapshot.row_of(claim.selected_node or "")
        if row is None:
            return [(_no_volume(claim), others)]
        others[row] = False
        reason, selected = self.find_volumes(row), ~others
        found = [(_no_volume(claim), others)]
        return [*found, (reason, selected)] if isinstance(reason, NodeReason) else found

    def _provisioning_rejections(self) -> list[tuple[NodeReason, Mask]]:
        """Return the rejections by nodes without a matching volume."""
        found: list[tuple[NodeReason, Mask]] = []
        passed = np.ones(self.snapshot.size, dtype=np.bool_)
        for claim, _ in self._matched:
            provisioning = self._provisioning[claim.metadata.name]
            allowed = provisioning.allowed_nodes()
            found.append((_no_volume(claim), passed & ~allowed))
            passed = passed & allowed
            if provisioning.checks_capacity and passed.any():
                sufficient = provisioning.nodes_with_capacity()
                found.append((_no_capacity(claim), passed & ~sufficient))
                passed = passed & sufficient
        return found

    def _column(self, affinity: NodeSelector) -> Mask:
        """Return the nodes that match a volume's affinity; the index of pods' node affinity serves most."""
        has_fields = any(term.match_fields for term in affinity.node_selector_terms)
        if has_fields or find_selector_problem(affinity) is not None:
            return self.snapshot.index(VolumeNodes).column(affinity)
        return self.snapshot.index(NodeAffinityIndex).column(((), affinity))

    # -- queueing hint

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        old, new = event.old, event.new
        if old is not None and new is not None:
            match event.kind:
                case EventKind.STORAGE_CLASS_CHANGED:
                    return bool(old.allowed_topologies != new.allowed_topologies)
                case EventKind.CSI_NODE_CHANGED:
                    return _migrated_plugins(old) != _migrated_plugins(new)
                case EventKind.STORAGE_CAPACITY_CHANGED:
                    before, after = old.volume_limit, new.volume_limit
                    return after is not None and (before is None or after.value() > before.value())
        if event.kind is EventKind.CSI_DRIVER_CHANGED:
            return bool(old is not None and old.spec.storage_capacity and not new.spec.storage_capacity)
        return super().queueing_hint(event, waiting_pod)


def _size(claim: PersistentVolumeClaim) -> int:
    return claim.size.nano


def _no_volume(claim: PersistentVolumeClaim) -> NodeReason:
    return _reason(VolumeBindingMessage.NO_VOLUME, claim=claim.metadata.name)


def _no_capacity(claim: PersistentVolumeClaim) -> NodeReason:
    return _reason(VolumeBindingMessage.NO_CAPACITY, claim=claim.metadata.name)


def _migrated_plugins(node: Any) -> str:
    return str(node.metadata.annotations.get(MIGRATED_PLUGINS, ""))


def _problem(claim: PersistentVolumeClaim, used: VolumeClaim, pod: Pod) -> NodeReason | None:
    """Return why an existing claim cannot be used by a pod."""
    if claim.status.phase == "Lost":
        return _reason(VolumeBindingMessage.CLAIM_LOST, claim=used.name, volume=claim.spec.volume_name)
    if claim.metadata.deletion_timestamp is not None:
        return _reason(VolumeBindingMessage.CLAIM_DELETED, claim=used.name)
    if used.generated and not is_owned_by(claim, pod):
        return _reason(
            VolumeBindingMessage.CLAIM_NOT_OWNED,
            claim=claim.metadata.full_name,
            pod=pod.metadata.full_name,
        )
    return None


def _refuse_immediate(claims: Sequence[PersistentVolumeClaim], snapshot: Snapshot) -> NodeReason | None:
    """Return the reason if one of the unbound claims does not wait for its first consumer."""
    immediate = False
    for claim in claims:
        name = claim.storage_class
        found = snapshot.find(StorageClass, "", name) if name else None
        if found is not None and found.volume_binding_mode is None:
            return _reason(VolumeBindingMessage.CLASS_WITHOUT_BINDING_MODE, storage_class=name)
        waits = found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        immediate = immediate or not waits or bool(claim.spec.volume_name)
    return _reason(VolumeBindingMessage.CLAIM_UNBOUND) if immediate else None


def _find_matching(
    unbound: Sequence[PersistentVolumeClaim], snapshot: Snapshot
) -> list[MatchingVolumes] | NodeReason:
    """Return the volumes that match the claims without a selected node, the smallest claim first.

    Volumes that are assumed for claims of other pods refer to those.
    """
    found: list[MatchingVolumes] = []
    for claim in sorted((claim for claim in unbound if claim.selected_node is None), key=_size):
        volumes = snapshot.index(StorageIndex).volumes(claim.storage_class)
        matching = find_matching_volumes(claim, map(snapshot.assumed_volumes.volume, volumes))
        if isinstance(matching, SelectorProblem):
            facts = {"claim": claim.metadata.full_name, "problem": matching.message}
            message = VolumeBindingMessage.INVALID_SELECTOR
            return NodeReason(Rule.VOLUME_BINDING, message, VerdictCode.ERROR, facts)
        found.append(matching)
    return found
