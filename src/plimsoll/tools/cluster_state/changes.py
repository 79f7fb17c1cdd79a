"""`ChangeLog`: undo log of changes to a cluster state.

Objects are set and removed on a private cluster state, and everything since a mark can be undone in reverse
order. Ledgers are derived from the objects, so undoing the objects undoes the ledgers; the round-robin
position among equal nodes is not, and is part of the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import key_of


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """Position in the change log."""

    length: int
    next_start_row: int
    number: int


class ChangeLog:
    """Changes made to a cluster state."""

    __slots__ = ("_undo", "cluster_state", "number", "observer")

    def __init__(self, cluster_state: ClusterState) -> None:
        self.cluster_state = cluster_state
        #: Called with the old and the new version of every object before it changes; None if there is none.
        self.observer: Callable[[Any, Any], None] | None = None
        #: Previous versions, newest last: the object, and whether to set or remove it.
        self._undo: list[tuple[Any, bool]] = []
        self.number = 0  #: number of the last ID

    def __len__(self) -> int:
        return len(self._undo)

    def mark(self) -> ChangeMark:
        return ChangeMark(len(self._undo), self.cluster_state.snapshot.next_start_row, self.number)

    def set(self, thing: Any) -> None:
        """Add or replace an object."""
        old = self.cluster_state.objects.find(type(thing), *key_of(thing))
        if old is thing:
            return
        self._undo.append((thing, False) if old is None else (old, True))
        self._put(thing)

    def remove(self, thing: Any) -> None:
        """Remove an object; a pod with the placeholders that no other pod needs."""
        old = self.cluster_state.objects.find(type(thing), *key_of(thing))
        if isinstance(old, Pod):
            self.remove_placeholders(old)
        if old is not None:
            self._undo.append((old, True))
            self._remove(old)

    def remove_placeholders(self, pod: Pod) -> None:
        """Remove the placeholders that no other pod on the node of a pod needs."""
        snapshot = self.cluster_state.snapshot
        row = snapshot.row_of(pod.spec.node_name)
        for placeholder in () if row is None else snapshot.ledger(row).placeholders_of(pod):
            self.remove(placeholder)

    def versions(self, mark: ChangeMark) -> Iterator[Any]:
        """Yield every version of the objects that were set or removed since a mark, in no useful order."""
        found: dict[tuple[type[Any], str, str], None] = {}
        for thing, _ in self._undo[mark.length :]:
            yield thing
            found[type(thing), *key_of(thing)] = None
        current = (self.cluster_state.objects.find(*each) for each in found)
        yield from (thing for thing in current if thing is not None)

    def undo(self, mark: ChangeMark) -> None:
        """Restore the state at a mark."""
        while len(self._undo) > mark.length:
            thing, there = self._undo.pop()
            if there:
                self._put(thing)
            else:
                self._remove(thing)
        self.cluster_state.snapshot.next_start_row, self.number = mark.next_start_row, mark.number

    def _put(self, thing: Any) -> None:
        old = self.cluster_state.objects.find(type(thing), *key_of(thing))
        if self.observer is not None:
            self.observer(old, thing)
        if isinstance(thing, Pod):
            moved = old is not None and old.spec.node_name and old.spec.node_name != thing.spec.node_name
            if old is not None and (moved or pod_key(old) != pod_key(thing)):
                # The snapshot does not support unbinding, because it does not occur in a cluster.
                self.cluster_state.snapshot.remove(old)
        self.cluster_state.set(thing)

    def _remove(self, thing: Any) -> None:
        if self.observer is not None:
            self.observer(thing, None)
        self.cluster_state.remove(thing)

    def new_id(self) -> str:
        """Return a share ID, the same in every run."""
        self.number += 1
        return f"00000000-0000-4000-8000-{self.number:012x}"
