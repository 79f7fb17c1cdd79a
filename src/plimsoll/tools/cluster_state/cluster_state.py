"""`ClusterState`: objects of a cluster together with the scheduler's snapshot of them.

Objects and snapshot are kept in step as objects are set and removed, so that tools report from the same code
that schedules. Nothing is ever written to a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import cached_property
from typing import Any, TypeVar

from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.resource import ResourceClaim
from plimsoll.common.deprecation import warn_renamed
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import InputError
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state.objects import ClusterObjects

T = TypeVar("T", Pod, ResourceClaim)


class ClusterState:
    """Objects of a cluster and the ledgers computed from them."""

    def __init__(
        self,
        objects: ClusterObjects | None = None,
        gates: Gates | None = None,
        profile: AccountingProfile | None = None,
        *,
        origin: str = "",
    ) -> None:
        """Create the state of an empty cluster if no objects are given. `origin` names the source in
        messages.
        """
        self.objects = ClusterObjects() if objects is None else objects
        self.gates = gates or Gates.default()
        self.profile = profile or AccountingProfile.for_gates(self.gates)
        self.origin = origin

    @cached_property
    def snapshot(self) -> Snapshot:
        """The scheduler's snapshot, with every bound pod charged to its node."""
        snapshot = Snapshot(self.gates, self.profile)
        with without_collection():
            # Pods last: their charges depend on the other objects.
            for thing in sorted(self.objects, key=lambda each: isinstance(each, Pod)):
                snapshot.set(thing)
        return snapshot

    def copy(self) -> ClusterState:
        """Return an independent copy."""
        return ClusterState(self.objects.copy(), self.gates, self.profile, origin=self.origin)

    # -- updates

    def set(self, thing: Any) -> None:
        """Add or replace an object."""
        self.objects.set(thing)
        if "snapshot" in self.__dict__:
            self.snapshot.set(thing)

    def remove(self, thing: Any) -> None:
        """Remove an object."""
        self.objects.remove(thing)
        if "snapshot" in self.__dict__:
            self.snapshot.remove(thing)

    # -- lookups

    @property
    def nodes(self) -> list[Node]:
        return sorted(self.objects.all(Node), key=lambda node: node.metadata.name)

    @property
    def pods(self) -> list[Pod]:
        """Pods that have not terminated, bound or not."""
        return [pod for pod in self.objects.all(Pod) if not pod.has_terminated]

    @property
    def waiting(self) -> list[Pod]:
        """Pods without a node. Deprecated name of `pending`."""
        warn_renamed("ClusterState.waiting", "ClusterState.pending")
        return self.pending

    @property
    def pending(self) -> list[Pod]:
        """Pods that are not bound to a node and not being deleted."""
        return [
            pod for pod in self.pods if not pod.spec.node_name and pod.metadata.deletion_timestamp is None
        ]

    def pod(self, name: str, namespace: str = "") -> Pod:
        """Return the pod called `name`. Raise InputError with similar names if there is none."""
        return self._named(Pod, "pod", name, namespace)

    def claim(self, name: str, namespace: str = "") -> ResourceClaim:
        return self._named(ResourceClaim, "ResourceClaim", name, namespace)

    def _named(self, kind: type[T], word: str, name: str, namespace: str) -> T:
        """Find an object by NAME or NAMESPACE/NAME; without a namespace the name must be unique."""
        if "/" in name:
            namespace, name = name.split("/", 1)
        if namespace and (found := self.objects.find(kind, namespace, name)) is not None:
            return found
        everywhere = [each for each in self.objects.all(kind) if each.metadata.name == name]
        if not namespace and len(everywhere) == 1:
            return everywhere[0]
        raise InputError(_missing(word, name, namespace, everywhere, self.objects.all(kind), _full))


def _full(thing: Any) -> str:
    return str(thing.metadata.full_name)


def _missing(
    word: str, name: str, namespace: str, same: list[T], known: list[T], full: Callable[[Any], str]
) -> str:
    if same:
        found = ", ".join(sorted(map(full, same))[:5])
        if not namespace:
            return f"{word} {name} exists in several namespaces: {found}; select one with -n"
        return f"{word} {name} not found in namespace {namespace}; found {found}"
    where = f" in namespace {namespace}" if namespace else ""
    near = get_close_matches(name, sorted({each.metadata.name for each in known}), 3)
    hint = f"; did you mean {', '.join(near)}?" if near else f" ({len(known)} exist)"
    return f"{word} {name} not found{where}{hint}"
