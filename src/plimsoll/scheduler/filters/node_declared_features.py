"""NodeDeclaredFeatures: features that a pod needs from its node's kubelet.

Some pod fields work only with kubelets that declare a feature in `status.declaredFeatures` (on by default in
1.36).
"""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import EventKind, NodeUpdate
from plimsoll.scheduler.filters.static import SignatureIndex, StaticFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeDeclaredFeaturesMessage(ReasonMessage):
    """Message of NodeDeclaredFeatures."""

    MISSING_FEATURES = "node(s) didn't match Pod's required features"


RESTART_ALL = "RestartAllContainersOnContainerExits"
USERS_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
_NONE: frozenset[str] = frozenset()


def needed_features(pod: Pod) -> frozenset[str]:
    """Return the kubelet features a pod needs."""
    spec, found = pod.spec, _NONE
    if spec.host_network and spec.host_users is False:
        found |= {USERS_ON_HOST_NETWORK}
    for containers in (spec.init_containers, spec.containers):
        for container in containers:
            rules = container.restart_policy_rules
            if rules and any(rule.action == "RestartAllContainers" for rule in rules):
                found |= {RESTART_ALL}
    return found


class DeclaredFeatures(SignatureIndex[frozenset[str], np.bool_]):
    """Index of the nodes that declare a set of features."""

    dtype = np.bool_

    def relevant(self, node: Node) -> object:
        return node.status.declared_features

    def answer(self, signature: frozenset[str], node: Node) -> bool:
        return signature.issubset(node.status.declared_features)


class NodeDeclaredFeaturesFilter(StaticFilter):
    """Filter by the kubelet features a pod needs."""

    rule = Rule.DECLARED_FEATURES
    events = frozenset({EventKind.NODE_ADDED, NodeUpdate.FEATURES})
    reason = NodeReason(
        Rule.DECLARED_FEATURES, NodeDeclaredFeaturesMessage.MISSING_FEATURES, VerdictCode.UNRESOLVABLE
    )

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, needed: frozenset[str], mask: Mask) -> None:
        super().__init__(pod_info, snapshot, mask)
        self._needed = needed

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        needed = needed_features(pod_info.pod)
        if not needed:
            return None
        return cls(pod_info, snapshot, needed, snapshot.index(DeclaredFeatures).column(needed))

    def passes(self, node: Node) -> bool:
        return self._needed.issubset(node.status.declared_features)
