"""`ClusterObjects`: collection of objects by kind and name, with the gaps found while reading (`Gap`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from plimsoll.api.resource import ResourceSlice
from plimsoll.tools.cluster_state.related import RelatedObjects

T = TypeVar("T")
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Gap:
    """Kind of which some or all objects are missing from a cluster state, and the reason."""

    kind: str  #: plural name, such as `resourceslices`
    why: str
    whole: bool = True  #: True if all objects of the kind are missing
    served: bool = True  #: False if the cluster does not serve the kind: nothing is missing then
    brief: str = ""  #: short reason, to merge gaps of several kinds
    refused: bool = False  #: listing was forbidden: the number of objects is unknown

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}"


def key_of(thing: Any) -> Key:
    """Return (namespace, name); the namespace of a cluster-scoped object is ""."""
    return thing.metadata.namespace, thing.metadata.name


class ClusterObjects:
    """Objects by kind, namespace and name; setting an object replaces one of the same name."""

    def __init__(self, things: Iterable[Any] = (), gaps: Iterable[Gap] = ()) -> None:
        self._kinds: dict[type[Any], dict[Key, Any]] = {}
        self.gaps: list[Gap] = list(gaps)
        #: Messages about ignored fields of mappings, by name of the ResourceSlice.
        self.ignored_fields: dict[str, tuple[str, ...]] = {}
        self.related = RelatedObjects()
        for thing in things:
            self.set(thing)

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def __iter__(self) -> Iterator[Any]:
        for things in self._kinds.values():
            yield from things.values()

    def set(self, thing: Any) -> None:
        self._kinds.setdefault(type(thing), {})[key_of(thing)] = thing

    def set_ignored_fields(self, name: str, messages: tuple[str, ...]) -> None:
        """Record which fields of the mappings of a ResourceSlice are ignored."""
        if messages:
            self.ignored_fields[name] = messages
        else:
            self.ignored_fields.pop(name, None)

    def remove(self, thing: Any) -> None:
        self._kinds.get(type(thing), {}).pop(key_of(thing), None)
        if isinstance(thing, ResourceSlice):
            self.ignored_fields.pop(thing.metadata.name, None)

    def all(self, kind: type[T]) -> list[T]:
        """Return the objects of a kind in insertion order."""
        return list(self._kinds.get(kind, {}).values())

    def other_than(self, kind: type[Any]) -> Iterator[Any]:
        """Yield the objects of all kinds but one."""
        for each, things in self._kinds.items():
            if each is not kind:
                yield from things.values()

    def by_key(self, kind: type[T]) -> Mapping[Key, T]:
        """Return the objects of a kind by namespace and name, in insertion order."""
        return MappingProxyType(self._kinds.get(kind, {}))

    def find(self, kind: type[T], namespace: str, name: str) -> T | None:
        return self._kinds.get(kind, {}).get((namespace, name))

    def copy(self) -> ClusterObjects:
        made = ClusterObjects(gaps=self.gaps)
        made.ignored_fields = dict(self.ignored_fields)
        made.related = self.related
        made._kinds = {kind: dict(things) for kind, things in self._kinds.items()}
        return made
