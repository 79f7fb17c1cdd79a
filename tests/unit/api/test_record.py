"""Read-modify-write keeps fields that a view does not have."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import ResourceRequirements
from plimsoll.api.meta import Wire
from plimsoll.api.quantity import Quantity
from plimsoll.api.record import Record, apply_changes
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus
from tests.unit.api.trees import objects, tree_of

CLAIM = b"""{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","later":1.50,
 "metadata":{"name":"c","annotations":{"a":"b"},"managedFields":[{"manager":"kubectl"}]},
 "status":{"new":true,"reservedFor":[
   {"resource":"pods","name":"p","uid":"1","since":"then"},{"resource":"pods","name":"q","uid":"2"}]}}"""


def test_changing_one_field_keeps_the_rest() -> None:
    record = Record(CLAIM, ResourceClaim)
    claim = record.view
    first, second = claim.status.reserved_for
    newcomer = ResourceClaimConsumerReference(resource="pods", name="r", uid="3")
    changed = replace(
        claim, status=replace(claim.status, reserved_for=(second, newcomer, replace(first, name="p2")))
    )
    tree = record.replace(changed).tree()
    assert tree["later"].text == "1.50"
    assert tree["metadata"]["managedFields"] == [{"manager": "kubectl"}]
    assert tree["status"] == {
        "new": True,
        "reservedFor": [
            {"resource": "pods", "name": "q", "uid": "2"},
            {"resource": "pods", "name": "r", "uid": "3"},
            {"resource": "pods", "name": "p2", "uid": "1", "since": "then"},
        ],
    }


def test_emptying_a_field_removes_it() -> None:
    record = Record(CLAIM, ResourceClaim)
    tree = record.replace(replace(record.view, status=ResourceClaimStatus())).tree()
    assert tree["status"] == {"new": True}


def test_writing_the_same_view_changes_nothing() -> None:
    record = Record(CLAIM, ResourceClaim)
    assert record.replace(record.view).tree() == record.tree()


def test_a_new_spelling_is_a_change() -> None:
    record = Record(b'{"limits":{"memory":"1024Mi","cpu":"1500m"}}', ResourceRequirements)
    assert record.replace(record.view).raw == b'{"limits":{"memory":"1024Mi","cpu":"1500m"}}'
    limits = {**record.view.limits, "cpu": Quantity.parse("1.500")}
    assert record.replace(replace(record.view, limits=limits)).tree()["limits"]["cpu"] == "1.500"


def test_record_of_a_view() -> None:
    claim = ResourceClaim(kind="ResourceClaim")
    assert Record.of(claim).raw == b'{"kind":"ResourceClaim"}'
    assert Record.of(claim).view is claim


@st.composite
def changes(draw: st.DrawFn) -> tuple[type[Wire], Any, Any]:
    view, tree = draw(objects())
    return view, tree, tree_of(view, draw, unknown=0)


@given(changes())
def test_the_new_view_is_what_gets_written(case: tuple[type[Wire], Any, Any]) -> None:
    """Carrying any view over any object gives JSON that reads as the new view."""
    view, tree, target = case
    old = codec.decode(json.dumps(tree), view)
    new = codec.decode(json.dumps(target), view)
    carried = apply_changes(copy.deepcopy(tree), old, new)
    assert codec.decode(codec.encode(carried), view) == new


@given(objects())
def test_unknown_fields_survive_at_every_level(case: tuple[type[Wire], dict[str, Any]]) -> None:
    """Changing the name of an object leaves every other field unchanged."""
    view, tree = case
    tree.setdefault("metadata", {})
    record: Record[Any] = Record(json.dumps(tree).encode(), view)
    renamed = replace(record.view, metadata=replace(record.view.metadata, name="renamed"))
    expected = json.loads(json.dumps(tree))
    expected["metadata"]["name"] = "renamed"
    assert json.loads(record.replace(renamed).raw) == expected
