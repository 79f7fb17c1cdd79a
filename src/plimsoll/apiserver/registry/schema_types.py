"""What an object looks like: types and fields.

Owns the classes `SchemaType` and `SchemaField`. A type says everything the server has to know about a value:
how it is checked, how patches merge it, who can own it in server-side apply, and under which number it
travels in protobuf. Promises: types are immutable to their users, and the fields of an object type are read
from the package's data the first time they are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from plimsoll.apiserver.registry.descriptions import describe

Kind: TypeAlias = Literal[
    "object",
    "list",
    "map",
    "string",
    "integer",
    "number",
    "boolean",
    "quantity",
    "int-or-string",
    "time",
    "micro-time",
    "duration",
    "bytes",
    "any",
]
ListType: TypeAlias = Literal["atomic", "set", "map"]

_NOTHING: Mapping[str, str] = MappingProxyType({})


class SchemaField(NamedTuple):
    """One field of an object type."""

    name: str
    type: SchemaType
    required: bool = False
    number: int = 0  #: in protobuf; 0 where the field has none
    message_path: tuple[int, ...] = ()  #: numbers of the protobuf messages around it that JSON does not show
    emits_zero: bool = False  #: a zero (or an empty message) that came in protobuf is told in JSON
    default: str = ""
    owner: str = ""  #: name of the type that has the field

    @property
    def description(self) -> str:
        return describe(f"{self.owner}.{self.name}")


class SchemaType:
    """The shape of a value; see the module's head for what it is used for."""

    __slots__ = (
        "_fields",
        "_load",
        "atomic",
        "format",
        "item",
        "key_defaults",
        "keys",
        "kind",
        "list_type",
        "merge_key",
        "name",
        "stated",
        "strategies",
    )

    kind: Kind
    name: str  #: of an object: where and what, `core.v1.Pod`; else empty
    format: str  #: the word of the notation: int32, int64, raw, fields, ...
    item: SchemaType | None  #: of lists and maps
    list_type: ListType  #: how server-side apply sees a list
    keys: tuple[str, ...]  #: of a list that is a map
    key_defaults: Mapping[str, str]  #: of keys that may be left away in an item
    atomic: bool  #: a map or an object that one manager owns whole
    merge_key: str  #: of a list in strategic merge patches; "" with strategy merge: items are merged as a set
    strategies: frozenset[str]  #: of strategic merge patches: merge, retainKeys, replace
    stated: frozenset[str]  #: what the API documents itself, for OpenAPI: list, map, granular

    def __init__(
        self,
        kind: Kind,
        name: str = "",
        *,
        format: str = "",
        item: SchemaType | None = None,
        list_type: ListType = "atomic",
        keys: tuple[str, ...] = (),
        atomic: bool = False,
        merge_key: str = "",
        strategies: frozenset[str] = frozenset(),
        stated: frozenset[str] = frozenset(),
        load: Callable[[], Mapping[str, SchemaField]] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.format = format or kind
        self.item = item
        self.list_type = list_type
        self.keys = keys
        self.atomic = atomic
        self.merge_key = merge_key
        self.strategies = strategies
        self.stated = stated
        self.key_defaults = _NOTHING
        self._load = load
        self._fields: Mapping[str, SchemaField] | None = None
        if keys and item is not None:
            defaults = {key: item.fields[key].default for key in keys if key in item.fields}
            self.key_defaults = {key: value for key, value in defaults.items() if value}

    @property
    def fields(self) -> Mapping[str, SchemaField]:
        """The fields of an object by name; of anything else: none."""
        if self._fields is None:
            self._fields = self._load() if self._load else {}
        return self._fields

    @property
    def short_name(self) -> str:
        """`Pod` of `core.v1.Pod`."""
        return self.name.rpartition(".")[2]

    @property
    def description(self) -> str:
        return describe(self.name) if self.name else ""

    def __repr__(self) -> str:
        inner = self.name or (f"{self.kind} of {self.item!r}" if self.item else self.format)
        return f"<{inner}>"
