"""VolumeBinding: nodes from which a pod's bound volumes are reachable.

Every PersistentVolumeClaim must exist, belong to the pod if it was generated for it, and be bound; the node
must match the volume's node affinity. Claims with immediate binding are left to the volume controller.

DIFF: a claim with WaitForFirstConsumer is refused until it is bound; kube-scheduler chooses a volume for it,
or has one provisioned for the node it chose (test_an_unbound_wait_for_first_consumer_claim).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Self

import numpy as np

from plimsoll.api.core import Node, NodeSelector, Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.node_selection import find_selector_problem, selector_matches
from plimsoll.api.pod_claims import is_owned_by
from plimsoll.api.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim, StorageClass
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.events import EventKind, NodeUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_affinity import NodeAffinityIndex
from plimsoll.scheduler.filters.static import SignatureIndex
from plimsoll.scheduler.filters.volumes import (
    STORAGE_EVENTS,
    VolumeClaim,
    VolumeMessage,
    VolumeQueueingHint,
    find_claim,
    find_volume,
    uses_claims,
    volume_claims,
)
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class VolumeBindingMessage(ReasonMessage):
    """Messages of VolumeBinding."""

    AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
    VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    CLAIM_NOT_CREATED = (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "{claim}"'
    )
    CLAIM_LOST = 'persistentvolumeclaim "{claim}" bound to non-existent persistentvolume "{volume}"'
    CLAIM_DELETED = 'persistentvolumeclaim "{claim}" is being deleted'
    CLAIM_NOT_OWNED = "PVC {claim} was not created for pod {pod} (pod is not owner)"
    CLAIM_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
    CLAIM_WAITS_FOR_CONSUMER = (
        'persistentvolumeclaim "{claim}" of storage class "{storage_class}" waits for its first consumer: '
        "this scheduler places pods by volumes that are bound, it does not choose volumes"
    )
    CLASS_WITHOUT_BINDING_MODE = 'VolumeBindingMode not set for StorageClass "{storage_class}"'


_reason = partial(NodeReason.unresolvable, Rule.VOLUME_BINDING)
_AFFINITY = _reason(VolumeBindingMessage.AFFINITY)
_GONE = _reason(VolumeBindingMessage.VOLUME_MISSING)


class VolumeNodes(SignatureIndex[NodeSelector, np.bool_]):
    """Index of the nodes that match a volume's node affinity."""

    dtype = np.bool_

    def relevant(self, node: Node) -> object:
        return node.metadata.labels

    def evaluate(self, signature: NodeSelector, node: Node) -> bool:
        return is_reachable(signature, node)


def is_reachable(affinity: NodeSelector, node: Node) -> bool:
    """Return whether a volume is reachable from a node.

    Only labels are compared, as upstream does. An invalid affinity matches no node.
    """
    unnamed = Node(metadata=ObjectMeta(labels=node.metadata.labels))
    return selector_matches(affinity, unnamed) is True


class VolumeBindingFilter(VolumeQueueingHint, Filter):
    """Filter by the node affinity of a pod's bound volumes (None: the volume does not exist)."""

    rule = Rule.VOLUME_BINDING
    events = STORAGE_EVENTS | {EventKind.NODE_ADDED, NodeUpdate.LABELS, EventKind.POD_DELETED}

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, affinities: Sequence[NodeSelector | None]
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._affinities = affinities

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        pod = pod_info.pod
        if not pod.spec.volumes or not uses_claims(pod):
            return None
        claims: list[PersistentVolumeClaim] = []
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
            claims.append(claim)
        unbound = _unbound([claim for claim in claims if not claim.bound], snapshot)
        if unbound is not None:
            return unbound
        affinities: list[NodeSelector | None] = []
        for claim in claims:
            volume = find_volume(claim.spec.volume_name, snapshot)
            if volume is None:
                affinities.append(None)
            elif volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None:
                affinities.append(volume.spec.node_affinity.required)
        return cls(pod_info, snapshot, affinities) if affinities else None

    def filter(self) -> Mask:
        if None in self._affinities:
            return np.zeros(self.snapshot.size, dtype=np.bool_)
        columns = [self._column(affinity) for affinity in self._affinities if affinity is not None]
        mask: Mask = np.logical_and.reduce(columns)
        return mask

    def _column(self, affinity: NodeSelector) -> Mask:
        """Return the nodes that match a volume's affinity; the index of pods' node affinity serves most."""
        has_fields = any(term.match_fields for term in affinity.node_selector_terms)
        if has_fields or find_selector_problem(affinity) is not None:
            return self.snapshot.index(VolumeNodes).column(affinity)
        return self.snapshot.index(NodeAffinityIndex).column(((), affinity))

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        node = self.snapshot.node(row)
        for affinity in self._affinities:
            if affinity is None:
                return (_GONE,)
            if not is_reachable(affinity, node):
                return (_AFFINITY,)
        return ()

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return np.zeros_like(removed)


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


def _unbound(claims: Sequence[PersistentVolumeClaim], snapshot: Snapshot) -> NodeReason | None:
    """Return the reason for unbound claims; immediate binding takes precedence."""
    waiting: NodeReason | None = None
    immediate = False
    for claim in claims:
        name = claim.storage_class
        found = snapshot.find(StorageClass, "", name) if name else None
        if found is not None and found.volume_binding_mode is None:
            return _reason(VolumeBindingMessage.CLASS_WITHOUT_BINDING_MODE, storage_class=name)
        waits = found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if not waits or claim.spec.volume_name:
            immediate = True
        elif waiting is None:
            facts = {"claim": claim.metadata.name, "storage_class": name}
            waiting = _reason(VolumeBindingMessage.CLAIM_WAITS_FOR_CONSUMER, **facts)
    return _reason(VolumeBindingMessage.CLAIM_UNBOUND) if immediate else waiting
