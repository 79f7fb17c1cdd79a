"""The objects as they are now, in order.

Owns the map from keys to objects and the order of keys within a resource. Promises: looking up, putting and
removing cost next to nothing beside encoding the object, and a page costs its own length, wherever it starts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence

from plimsoll.apiserver.storage.records import ObjectKey, StoredObject

NamespacedName = tuple[str, str]  # namespace and name


class ResourceIndex:
    """The objects of one resource."""

    __slots__ = ("_places", "objects", "octets")

    def __init__(self) -> None:
        self.objects: dict[NamespacedName, StoredObject] = {}
        self.octets = 0
        self._places: list[NamespacedName] | None = []  # in order; None: to be sorted when somebody asks

    def put(self, place: NamespacedName, stored: StoredObject) -> None:
        before = self.objects.get(place)
        self.objects[place] = stored
        self.octets += len(stored.raw)
        if before is not None:
            self.octets -= len(before.raw)
        elif self._places is not None:
            insort(self._places, place)

    def remove(self, place: NamespacedName) -> None:
        self.octets -= len(self.objects.pop(place).raw)
        if self._places is not None:
            del self._places[bisect_left(self._places, place)]

    def load(self, objects: dict[NamespacedName, StoredObject]) -> None:
        self.objects = objects
        self.octets = sum([len(stored[2]) for stored in objects.values()])
        self._places = None

    def places(self) -> Sequence[NamespacedName]:
        if self._places is None:
            self._places = sorted(self.objects)
        return self._places


class CurrentState:
    """The objects of all resources."""

    def __init__(self) -> None:
        self._shelves: dict[str, ResourceIndex] = {}

    def get(self, key: ObjectKey) -> StoredObject | None:
        shelf = self._shelves.get(key.resource)
        return shelf.objects.get(key[1:]) if shelf else None

    def put(self, stored: StoredObject) -> None:
        key = stored.key
        shelf = self._shelves.get(key.resource)
        if shelf is None:
            shelf = self._shelves[key.resource] = ResourceIndex()
        shelf.put(key[1:], stored)

    def remove(self, key: ObjectKey) -> None:
        self._shelves[key.resource].remove(key[1:])

    def load(self, resource: str, objects: dict[NamespacedName, StoredObject]) -> None:
        """Take over all objects of a resource; their order is worked out when somebody asks for it."""
        shelf = self._shelves[resource] = ResourceIndex()
        shelf.load(objects)

    def page(
        self, resource: str, namespace: str | None, after: NamespacedName | None, limit: int | None
    ) -> tuple[list[StoredObject], int]:
        """The objects that follow a place, and how many more there are."""
        places, start, end = self.span(resource, namespace, after)
        stop = end if limit is None else min(end, start + limit)
        objects = self.resource(resource)
        return [objects[place] for place in places[start:stop]], end - stop

    def span(
        self, resource: str, namespace: str | None, after: NamespacedName | None
    ) -> tuple[Sequence[NamespacedName], int, int]:
        """All places of a resource in order, and which of them follow a place within a namespace."""
        shelf = self._shelves.get(resource)
        if shelf is None:
            return (), 0, 0
        places = shelf.places()
        start, end = 0, len(places)
        if namespace is not None:
            start = bisect_left(places, (namespace, ""))
            end = bisect_left(places, (namespace + "\0", ""))
        if after is not None:
            start = min(max(start, bisect_right(places, after)), end)
        return places, start, end

    def resource(self, resource: str) -> Mapping[NamespacedName, StoredObject]:
        """All objects of a resource, in no order."""
        shelf = self._shelves.get(resource)
        return shelf.objects if shelf else {}

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many objects there are of each resource, and their bytes."""
        return {name: (len(shelf.objects), shelf.octets) for name, shelf in self._shelves.items()}

    def __iter__(self) -> Iterator[StoredObject]:
        for shelf in self._shelves.values():
            yield from shelf.objects.values()
