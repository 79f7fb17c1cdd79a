"""Schema types: `SchemaType` and `SchemaField`.

A type describes a value: its checks, its merge strategy in patches, its ownership in server-side apply, and
its number in protobuf. Types are immutable to their users; the fields of an
object type are read from the package's data on first use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

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
    number: int = 0  #: protobuf field number; 0 if it has none
    message_path: tuple[int, ...] = ()  #: numbers of enclosing protobuf messages that do not appear in JSON
    emits_zero: bool = False  #: a zero (or empty message) decoded from protobuf appears in JSON
    default: str = ""
    owner: str = ""  #: name of the type that has the field
    pointer: bool = False  #: a pointer in Go: absent and zero differ
    fill: str | None = None  #: default that OpenAPI does not mention
    milli: bool = False  #: quantities are stored rounded up to thousandths

    @property
    def initial_value(self) -> Any:
        """The value that a write without this field gets; None if it stays absent."""
        text = self.fill if self.fill is not None else self.default or None
        return text if text is None or self.type.kind in ("string", "quantity") else json.loads(text)

    @property
    def description(self) -> str:
        return describe(f"{self.owner}.{self.name}")


class SchemaType:
    """The schema of a value."""

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
    name: str  #: of an object: package and name, `core.v1.Pod`; else empty
    format: str  #: word in the data files: int32, int64, raw, fields, ...
    item: SchemaType | None  #: of lists and maps
    list_type: ListType  #: list type for server-side apply
    keys: tuple[str, ...]  #: of a list of type map
    key_defaults: Mapping[str, str]  #: defaults of keys that items may omit
    atomic: bool  #: a map or object that is owned as a unit
    merge_key: str  #: of a list in strategic merge patches; "" with strategy merge: items are merged as a set
    strategies: frozenset[str]  #: of strategic merge patches: merge, retainKeys, replace
    stated: frozenset[str]  #: explicit markers, for OpenAPI: list, map, granular

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
        """Fields of an object by name; empty for all other types."""
        if self._fields is None:
            self._fields = self._load() if self._load else {}
        return self._fields

    @property
    def short_name(self) -> str:
        """`Pod` for `core.v1.Pod`."""
        return self.name.rpartition(".")[2]

    @property
    def description(self) -> str:
        return describe(self.name) if self.name else ""

    def __repr__(self) -> str:
        inner = self.name or (f"{self.kind} of {self.item!r}" if self.item else self.format)
        return f"<{inner}>"
