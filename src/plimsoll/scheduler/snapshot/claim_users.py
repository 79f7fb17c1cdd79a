"""Index of the pods in ledgers by the claims they use.

Charges that are not recorded in a pod's status change with claims, device classes and pools; the index finds
the affected pods.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TypeAlias

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import device_requests, resolve_claim_names
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.node_ledger import pod_key

#: Lookup of a claim by namespace and name.
FindClaim: TypeAlias = "Callable[[str, str], ResourceClaim | None]"


class ClaimUsers:
    """Pods by the claims they use, whether or not the claim is known."""

    __slots__ = ("_indexed", "_new")

    def __init__(self) -> None:
        self._indexed: dict[tuple[str, str], set[str]] = {}
        #: Pods that are indexed at the next question: most uses of a cluster have none.
        self._new: list[Pod] = []

    @property
    def _users(self) -> dict[tuple[str, str], set[str]]:
        if self._new:
            for pod in self._new:
                for name in resolve_claim_names(pod).values():
                    self._indexed.setdefault((pod.metadata.namespace, name), set()).add(pod_key(pod))
            self._new.clear()
        return self._indexed

    def add(self, pod: Pod) -> None:
        self._new.append(pod)

    def remove(self, pod: Pod) -> None:
        for name in resolve_claim_names(pod).values():
            claim = (pod.metadata.namespace, name)
            users = self._users.get(claim, set())
            users.discard(pod_key(pod))
            if not users:
                self._users.pop(claim, None)

    def of(self, namespace: str, name: str) -> Set[str]:
        """Return the pods that use a claim."""
        return self._users.get((namespace, name), frozenset())

    def with_class(self, device_class: str, find: FindClaim) -> set[str]:
        """Return the pods with a claim that requests a device class."""
        return self._find(
            lambda claim: any(
                request.device_class_name == device_class for _, request in device_requests(claim)
            ),
            find,
        )

    def with_pool(self, driver: str, pool: str, find: FindClaim) -> set[str]:
        """Return the pods with a claim that is allocated from a pool."""
        return self._find(lambda claim: (driver, pool) in _pools_of(claim), find)

    def _find(self, test: Callable[[ResourceClaim], bool], find: FindClaim) -> set[str]:
        found: set[str] = set()
        for (namespace, name), users in self._users.items():
            claim = find(namespace, name)
            if claim is not None and test(claim):
                found |= users
        return found


def _pools_of(claim: ResourceClaim) -> set[tuple[str, str]]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return {(result.driver, result.pool) for result in results}
