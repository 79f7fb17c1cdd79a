"""Lists as of an older revision.

Owns what it takes to undo: for each object that changed since, how it stood then. Promises: a page says what
it would have said at its revision; the pages of one list share the work, and writes in between only add to
it. `naive_page` says the same the plain way.
"""

from __future__ import annotations

from heapq import merge

from plimsoll.apiserver.storage.current_state import CurrentState, NamespacedName
from plimsoll.apiserver.storage.event_history import EventHistory
from plimsoll.apiserver.storage.records import ListPage, StoredObject

_MOST_KEPT = 32


class _Undoing:
    """How the objects of a resource that changed since a revision stood at it."""

    __slots__ = ("states", "undone", "upto")

    def __init__(self, at: int, undone: int) -> None:
        self.states: dict[NamespacedName, StoredObject | None] = {}
        self.upto = at  # events up to here are looked at
        self.undone = undone


class SnapshotReader:
    """Pages of lists at revisions between the floor and now."""

    def __init__(self, head: CurrentState, history: EventHistory) -> None:
        self._head = head
        self._history = history
        self._kept: dict[tuple[str, int], _Undoing] = {}

    def page(
        self, resource: str, namespace: str | None, after: NamespacedName | None, limit: int | None, at: int
    ) -> ListPage:
        """The page at a revision that is not older than the floor."""
        states = self._states(resource, at)
        touched = [place for place in states if _inside(place, namespace, after)]
        changed = sorted(place for place in touched if states[place] is not None)
        objects = self._head.resource(resource)
        places, start, end = self._head.span(resource, namespace, after)
        total = end - start + len(changed) - sum(place in objects for place in touched)
        unchanged = (place for index in range(start, end) if (place := places[index]) not in states)
        items: list[StoredObject] = []
        for place in merge(unchanged, changed):
            if limit is not None and len(items) >= limit:
                break
            items.append(states.get(place) or objects[place])
        return ListPage(items, at, total - len(items))

    def _states(self, resource: str, at: int) -> dict[NamespacedName, StoredObject | None]:
        undone = self._history.undone
        undoing = self._kept.pop((resource, at), None)
        if undoing is None or undoing.undone != undone:
            undoing = _Undoing(at, undone)
        for event in self._history.since(resource, undoing.upto):
            undoing.states.setdefault(event.key[1:], event.before)
            undoing.upto = event.revision
        self._kept[resource, at] = undoing
        floor = self._history.floor
        for old in [place for place in self._kept if place[1] < floor] or [*self._kept][:-_MOST_KEPT]:
            del self._kept[old]
        return undoing.states


def naive_page(
    head: CurrentState,
    history: EventHistory,
    resource: str,
    namespace: str | None,
    after: NamespacedName | None,
    limit: int | None,
    at: int,
) -> ListPage:
    """Undo every event since, newest first, on a copy of all objects; then sort and cut."""
    objects = dict(head.resource(resource))
    for event in reversed(history.since(resource, at)):
        if event.before is not None:
            objects[event.key[1:]] = event.before
        else:
            del objects[event.key[1:]]
    places = sorted(place for place in objects if _inside(place, namespace, after))
    stop = len(places) if limit is None else limit
    return ListPage([objects[place] for place in places[:stop]], at, max(0, len(places) - stop))


def _inside(place: NamespacedName, namespace: str | None, after: NamespacedName | None) -> bool:
    return (namespace is None or place[0] == namespace) and (after is None or place > after)
