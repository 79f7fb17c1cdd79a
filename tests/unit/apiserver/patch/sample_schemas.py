"""Types and objects for patch tests: a small kind with every merge strategy, and real kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.registry.schema_types import SchemaField, SchemaType

STRING = SchemaType("string")
INTEGER = SchemaType("integer")
BOOLEAN = SchemaType("boolean")


def object_type(
    name: str, fields: Mapping[str, SchemaType], *, atomic: bool = False, required: str = ""
) -> SchemaType:
    made = {key: SchemaField(key, value, required=key in required.split()) for key, value in fields.items()}
    return SchemaType("object", name, atomic=atomic, load=lambda: made)


def list_type(item: SchemaType, **how: Any) -> SchemaType:
    return SchemaType("list", item=item, **how)


ITEM = object_type(
    "test.Item",
    {
        "name": STRING,
        "size": INTEGER,
        "tags": SchemaType("map", item=STRING),
        "marks": list_type(STRING, list_type="set", strategies=frozenset({"merge"})),
    },
    required="name",
)
#: Lists by key, sets, atomic lists; granular and atomic maps; objects in objects.
THING = object_type(
    "test.Thing",
    {
        "metadata": object_type("test.Metadata", {"name": STRING, "labels": SchemaType("map", item=STRING)}),
        "count": INTEGER,
        "on": BOOLEAN,
        "text": STRING,
        "whole": SchemaType("map", item=STRING, atomic=True),
        "order": list_type(INTEGER),
        "marks": list_type(STRING, list_type="set", strategies=frozenset({"merge"})),
        "items": list_type(
            ITEM, list_type="map", keys=("name",), merge_key="name", strategies=frozenset({"merge"})
        ),
        "inner": object_type("test.Inner", {"a": INTEGER, "b": STRING}),
        "free": SchemaType("any"),
    },
)

POD = schema_for("", "v1", "Pod")
NODE = schema_for("", "v1", "Node")
CLAIM = schema_for("resource.k8s.io", "v1", "ResourceClaim")
DEPLOYMENT = schema_for("apps", "v1", "Deployment")

NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def items(draw: st.DrawFn) -> list[Any]:
    found = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, max_size=4)):
        item: dict[str, Any] = {"name": name}
        if draw(st.booleans()):
            item["size"] = draw(st.integers(0, 2))
        if draw(st.booleans()):
            item["tags"] = draw(st.dictionaries(NAMES, NAMES, max_size=2))
        if draw(st.booleans()):
            item["marks"] = draw(st.lists(NAMES, unique=True, max_size=3))
        found.append(item)
    return found


#: Values for each field of a Thing.
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "metadata": st.fixed_dictionaries({"labels": st.dictionaries(NAMES, NAMES, max_size=3)}),
    "count": st.integers(0, 2),
    "on": st.booleans(),
    "text": NAMES,
    "whole": st.dictionaries(NAMES, NAMES, max_size=2),
    "order": st.lists(st.integers(0, 2), max_size=3),
    "marks": st.lists(NAMES, unique=True, max_size=3),
    "items": items(),
    "inner": st.fixed_dictionaries({}, optional={"a": st.integers(0, 2), "b": NAMES}),
}


def things() -> st.SearchStrategy[dict[str, Any]]:
    """Generate objects of the small kind, with few names so that they collide."""
    return st.fixed_dictionaries({}, optional=FIELDS).map(
        lambda fields: {"apiVersion": "test/v1", "kind": "Thing", "metadata": {}, **fields}
    )


def json_values() -> st.SearchStrategy[Any]:
    """Generate any JSON, with the keywords of patches."""
    words = st.sampled_from(
        [
            "a",
            "name",
            "items",
            "marks",
            "metadata",
            "managedFields",
            "apiVersion",
            "op",
            "path",
            "delete",
            "replace",
            "f:a",
            ".",
            "$patch",
            "$retainKeys",
            "$setElementOrder/items",
            "$deleteFromPrimitiveList/marks",
        ]
    )
    scalars = st.none() | st.booleans() | st.integers(-2, 2) | words | st.text(max_size=3)
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=2), inner, max_size=4)
        ),
        max_leaves=12,
    )
