"""`WhatifPlan`: the changes of a what-if as a value.

Steps are applied in field order: nodes are added before the pods that need them, pods are evicted before
others are scheduled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.tools.columns import format_count
from plimsoll.tools.whatif.exhaustive import STEPS
from plimsoll.tools.whatif.manifests import PODS_MAX, Manifest
from plimsoll.tools.whatif.outcome import Name
from plimsoll.tools.whatif.whatif import WhatifOperations


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatifPlan:
    """Changes to make before everything is scheduled."""

    policy: str = ""
    remove: tuple[str, ...] = ()  #: KIND/NAMESPACE/NAME
    add_nodes: int = 0
    like: str = ""  #: name of the node to copy
    taints: tuple[tuple[str, str], ...] = ()  #: node, key=value:effect
    taint_devices: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    add: tuple[Manifest, ...] = ()
    replicas: int | None = None  #: number of replicas of each added pod and workload
    most_pods: int = PODS_MAX  #: maximum number of added pods
    namespace: str = "default"  #: default namespace
    preempt: bool = True
    exhaustive: bool = False
    steps: int = STEPS
    versus: tuple[str, ...] = ()  #: kube-scheduler releases to compare with, such as kube-1.36

    def apply(self, operations: WhatifOperations) -> list[Name]:
        """Apply the changes. Return the pods that were added."""
        if self.policy:
            operations.replace_policy(self.policy)
        operations.remove(*self.remove, namespace=self.namespace)
        if self.add_nodes:
            operations.add_nodes(self.add_nodes, self.like)
        for node, taint in self.taints:
            operations.taint(node, taint)
        for rule in self.taint_devices:
            operations.taint_devices(rule)
        for node in self.cordon:
            operations.cordon(node)
        for node in self.drain:
            operations.drain(node, preempt=self.preempt)
        if not self.add:
            return []
        added = operations.add(
            *self.add, namespace=self.namespace, replicas=self.replicas, most=self.most_pods
        )
        return [thing.metadata.key for thing in added if isinstance(thing, Pod)]

    @property
    def changes_nothing(self) -> bool:
        """True if the plan only asks where pending pods would be scheduled."""
        return not self.add and next(self.describe(), None) is None

    def describe(self) -> Iterator[str]:
        """Yield the changes as text."""
        if self.policy:
            yield f"accounting policy {self.policy}"
        if self.remove:
            yield f"without {', '.join(self.remove)}"
        if self.add_nodes:
            like = f" like {self.like}" if self.like else ""
            yield f"{format_count(self.add_nodes, 'more node')}{like}"
        for node, taint in self.taints:
            yield f"{node} tainted {taint}"
        for rule in self.taint_devices:
            yield f"devices tainted {rule}"
        if self.cordon:
            yield f"{', '.join(self.cordon)} cordoned"
        if self.drain:
            yield f"{', '.join(self.drain)} drained"
