"""NodeDeclaredFeatures: kubelet features that a pod needs (`status.declaredFeatures` of nodes)."""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import Node, Pod
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


def needed_features(pod: Pod) -> frozenset[str]:
    """Return the kubelet features a pod needs."""
    spec, found = pod.spec, frozenset[str]()
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

    def evaluate(self, signature: frozenset[str], node: Node) -> bool:
        return signature.issubset(node.status.declared_features)


class NodeDeclaredFeaturesFilter(StaticFilter):
    """Filter by the kubelet features a pod needs."""

    rule = Rule.DECLARED_FEATURES
    events = frozenset({EventKind.NODE_ADDED, NodeUpdate.FEATURES})
    reason = NodeReason(rule, NodeDeclaredFeaturesMessage.MISSING_FEATURES, VerdictCode.UNRESOLVABLE)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        needed = needed_features(pod_info.pod)
        if not needed:
            return None
        return cls(pod_info, snapshot, snapshot.index(DeclaredFeatures).column(needed))

    def passes(self, node: Node) -> bool:
        return needed_features(self.pod_info.pod).issubset(node.status.declared_features)
