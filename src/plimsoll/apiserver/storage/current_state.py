"""Current state: the objects by key, ordered by namespace and name within a resource.

Lookups, writes and removals cost far less than encoding the object, and a page costs its own length, wherever
it starts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence

from plimsoll.apiserver.storage.records import ObjectKey, StoredObject

NamespacedName = tuple[str, str]  # namespace and name


class ResourceIndex:
    """Objects of one resource."""

    __slots__ = ("_sorted_names", "objects", "size_bytes")

    def __init__(self) -> None:
        self.objects: dict[NamespacedName, StoredObject] = {}
        self.size_bytes = 0
        self._sorted_names: list[NamespacedName] | None = []  # None: not sorted yet

    def put(self, name: NamespacedName, stored: StoredObject) -> None:
        before = self.objects.get(name)
        self.objects[name] = stored
        self.size_bytes += stored.size_bytes
        if before is not None:
            self.size_bytes -= before.size_bytes
        elif self._sorted_names is not None:
            insort(self._sorted_names, name)

    def remove(self, name: NamespacedName) -> None:
        self.size_bytes -= self.objects.pop(name).size_bytes
        if self._sorted_names is not None:
            del self._sorted_names[bisect_left(self._sorted_names, name)]

    def load(self, objects: dict[NamespacedName, StoredObject]) -> None:
        self.objects = objects
        self.size_bytes = sum([len(stored[2]) + len(stored[3]) for stored in objects.values()])
        self._sorted_names = None

    def names(self) -> Sequence[NamespacedName]:
        if self._sorted_names is None:
            self._sorted_names = sorted(self.objects)
        return self._sorted_names


class CurrentState:
    """Objects of all resources."""

    def __init__(self) -> None:
        self._indexes: dict[str, ResourceIndex] = {}

    def get(self, key: ObjectKey) -> StoredObject | None:
        index = self._indexes.get(key.resource)
        return index.objects.get(key[1:]) if index else None

    def put(self, stored: StoredObject) -> None:
        key = stored.key
        index = self._indexes.get(key.resource)
        if index is None:
            index = self._indexes[key.resource] = ResourceIndex()
        index.put(key[1:], stored)

    def remove(self, key: ObjectKey) -> None:
        self._indexes[key.resource].remove(key[1:])

    def load(self, resource: str, objects: dict[NamespacedName, StoredObject]) -> None:
        """Set all objects of a resource; they are sorted on first use."""
        index = self._indexes[resource] = ResourceIndex()
        index.load(objects)

    def page(
        self, resource: str, namespace: str | None, after: NamespacedName | None, limit: int | None
    ) -> tuple[list[StoredObject], int]:
        """Return the objects after a name, and the number of further ones."""
        names, start, end = self.span(resource, namespace, after)
        stop = end if limit is None else min(end, start + limit)
        objects = self.resource(resource)
        return [objects[name] for name in names[start:stop]], end - stop

    def span(
        self, resource: str, namespace: str | None, after: NamespacedName | None
    ) -> tuple[Sequence[NamespacedName], int, int]:
        """Return all names of a resource in order, and the range after a name within a namespace."""
        index = self._indexes.get(resource)
        if index is None:
            return (), 0, 0
        names = index.names()
        start, end = 0, len(names)
        if namespace is not None:
            start = bisect_left(names, (namespace, ""))
            end = bisect_left(names, (namespace + "\0", ""))
        if after is not None:
            start = min(max(start, bisect_right(names, after)), end)
        return names, start, end

    def resource(self, resource: str) -> Mapping[NamespacedName, StoredObject]:
        """Return all objects of a resource, in no order."""
        index = self._indexes.get(resource)
        return index.objects if index else {}

    def resource_size(self, resource: str) -> tuple[int, int]:
        """Return the number of objects of one resource, and their bytes."""
        index = self._indexes.get(resource)
        return (len(index.objects), index.size_bytes) if index else (0, 0)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the number of objects of each resource, and their bytes."""
        return {name: (len(index.objects), index.size_bytes) for name, index in self._indexes.items()}

    def __iter__(self) -> Iterator[StoredObject]:
        for index in self._indexes.values():
            yield from index.objects.values()
