"""The objects as they are now, in order.

Owns the map from keys to objects and the order of keys within a resource. Promises: looking up, putting and
removing cost next to nothing beside encoding the object, and a page costs its own length, wherever it starts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping

from plimsoll.cluster.store.records import Key, Stored

Place = tuple[str, str]  # namespace and name


class Shelf:
    """The objects of one resource."""

    __slots__ = ("objects", "places", "size")

    def __init__(self) -> None:
        self.objects: dict[Place, Stored] = {}
        self.places: list[Place] | None = []  # in order; None: to be sorted when somebody asks
        self.size = 0  # bytes of all objects

    def put(self, place: Place, stored: Stored) -> None:
        before = self.objects.get(place)
        self.objects[place] = stored
        self.size += len(stored.raw)
        if before is not None:
            self.size -= len(before.raw)
        elif self.places is not None:
            insort(self.places, place)

    def remove(self, place: Place) -> None:
        self.size -= len(self.objects.pop(place).raw)
        if self.places is not None:
            del self.places[bisect_left(self.places, place)]

    def order(self) -> list[Place]:
        if self.places is None:
            self.places = sorted(self.objects)
        return self.places


class Head:
    """The objects of all resources."""

    def __init__(self) -> None:
        self._shelves: dict[str, Shelf] = {}

    def get(self, key: Key) -> Stored | None:
        shelf = self._shelves.get(key.resource)
        return shelf.objects.get(key[1:]) if shelf else None

    def put(self, stored: Stored) -> None:
        key = stored.key
        self._shelf(key.resource).put(key[1:], stored)

    def remove(self, key: Key) -> None:
        self._shelves[key.resource].remove(key[1:])

    def load(self, objects: Mapping[Key, Stored]) -> None:
        """Take over many objects at once; the order is worked out when somebody asks for it."""
        for key, stored in objects.items():
            shelf = self._shelf(key[0])
            shelf.places = None
            shelf.objects[key[1:]] = stored
            shelf.size += len(stored[2])

    def page(
        self, resource: str, namespace: str | None, after: Place | None, limit: int | None
    ) -> tuple[list[Stored], int]:
        """The objects that follow a place, and how many more there are."""
        shelf = self._shelves.get(resource)
        if shelf is None:
            return [], 0
        places = shelf.order()
        start, end = 0, len(places)
        if namespace is not None:
            start = bisect_left(places, (namespace, ""))
            end = bisect_left(places, (namespace + "\0", ""))
        if after is not None:
            start = max(start, bisect_right(places, after))
        stop = end if limit is None else min(end, start + limit)
        objects = shelf.objects
        return [objects[place] for place in places[start:stop]], max(0, end - max(start, stop))

    def resource(self, resource: str) -> Mapping[Place, Stored]:
        """All objects of a resource, in no order."""
        shelf = self._shelves.get(resource)
        return shelf.objects if shelf else {}

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many objects there are of each resource, and their bytes."""
        return {name: (len(shelf.objects), shelf.size) for name, shelf in self._shelves.items()}

    def __iter__(self) -> Iterator[Stored]:
        for shelf in self._shelves.values():
            yield from shelf.objects.values()

    def _shelf(self, resource: str) -> Shelf:
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = Shelf()
        return shelf
