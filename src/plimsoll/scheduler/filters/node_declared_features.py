"""Nodes that can do what a pod needs of their kubelet.

Owns `FeaturesFilter`: a few fields of a pod work only with kubelets that say so in `status.declaredFeatures`
(NodeDeclaredFeatures, on by default in 1.36).
"""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.filters.static import SignatureIndex, StaticFilter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot

RESTART_ALL = "RestartAllContainersOnContainerExits"
USERS_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
_NONE: frozenset[str] = frozenset()


def needed_features(pod: Pod) -> frozenset[str]:
    """The features a pod needs of its node."""
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
    """Which nodes have features."""

    dtype = np.bool_

    def relevant(self, node: Node) -> object:
        return node.status.declared_features

    def answer(self, signature: frozenset[str], node: Node) -> bool:
        return signature.issubset(node.status.declared_features)


class NodeDeclaredFeaturesFilter(StaticFilter):
    """What a pod needs of its node's kubelet."""

    rule = Rule.DECLARED_FEATURES
    reason = NodeReason(Rule.DECLARED_FEATURES, ReasonMessage.FEATURES, Code.UNRESOLVABLE)

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
