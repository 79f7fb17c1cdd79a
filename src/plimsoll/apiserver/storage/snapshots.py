"""Snapshot reads: lists as of an older revision.

For each object that changed since, its state at the revision is looked up in the event history. The pages of
one list share this work, and writes in between only add to it.
"""

from __future__ import annotations

from heapq import merge

from plimsoll.apiserver.storage.current_state import CurrentState, NamespacedName
from plimsoll.apiserver.storage.event_history import EventHistory
from plimsoll.apiserver.storage.records import ListPage, StoredObject

_MAX_CACHED = 32


class _RevertedState:
    """States at a revision of the objects of a resource that changed since."""

    __slots__ = ("rollbacks", "states", "upto")

    def __init__(self, at: int, undone: int) -> None:
        self.states: dict[NamespacedName, StoredObject | None] = {}
        self.upto = at  # revision of the last event applied
        self.rollbacks = undone


class SnapshotReader:
    """Pages of lists at revisions between the floor and the current one."""

    def __init__(self, current: CurrentState, history: EventHistory) -> None:
        self._current = current
        self._history = history
        self._cache: dict[tuple[str, int], _RevertedState] = {}

    def page(
        self, resource: str, namespace: str | None, after: NamespacedName | None, limit: int | None, at: int
    ) -> ListPage:
        """Return the page at a revision that is not older than the floor."""
        states = self._states(resource, at)
        touched = [name for name in states if _is_in_page(name, namespace, after)]
        changed = sorted(name for name in touched if states[name] is not None)
        objects = self._current.resource(resource)
        names, start, end = self._current.span(resource, namespace, after)
        total = end - start + len(changed) - sum(name in objects for name in touched)
        unchanged = (name for index in range(start, end) if (name := names[index]) not in states)
        items: list[StoredObject] = []
        for name in merge(unchanged, changed):
            if limit is not None and len(items) >= limit:
                break
            items.append(states.get(name) or objects[name])
        return ListPage(items, at, total - len(items))

    def _states(self, resource: str, at: int) -> dict[NamespacedName, StoredObject | None]:
        undone = self._history.rollbacks
        reverted = self._cache.pop((resource, at), None)
        if reverted is None or reverted.rollbacks != undone:
            reverted = _RevertedState(at, undone)
        for event in self._history.since(resource, reverted.upto):
            reverted.states.setdefault(event.key[1:], event.before)
            reverted.upto = event.revision
        self._cache[resource, at] = reverted
        floor = self._history.floor
        for old in [name for name in self._cache if name[1] < floor] or [*self._cache][:-_MAX_CACHED]:
            del self._cache[old]
        return reverted.states


def _is_in_page(name: NamespacedName, namespace: str | None, after: NamespacedName | None) -> bool:
    return (namespace is None or name[0] == namespace) and (after is None or name > after)
