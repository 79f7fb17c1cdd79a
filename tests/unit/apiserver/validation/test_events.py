"""Events in both API forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.validation import event_to_core, event_to_events
from tests.unit.apiserver.validation.objects import GONE, Tree, edit, field_errors, run, stored

MOMENT = "2025-01-01T00:00:00.123456Z"


def _core(**changes: Any) -> Tree:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "d"},
        "involvedObject": {"kind": "Pod", "namespace": "d", "name": "p"},
        "reason": "Pulled",
        "message": "done",
        "source": {"component": "kubelet"},
        "firstTimestamp": "2025-01-01T00:00:00Z",
        "count": 1,
        "type": "Normal",
    }
    return edit(tree, {name.replace("__", "."): value for name, value in changes.items()})


def _new(**changes: Any) -> Tree:
    tree: Tree = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "d"},
        "regarding": {"kind": "Pod", "namespace": "d", "name": "p"},
        "reason": "Scheduled",
        "note": "done",
        "type": "Normal",
        "action": "Binding",
        "eventTime": MOMENT,
        "reportingController": "example.com/scheduler",
        "reportingInstance": "s-0",
    }
    return edit(tree, {name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize(
    ("event", "errors"),
    [
        (_core(), []),
        (_core(type="Odd", reason=""), []),
        (_core(metadata__namespace="x"), ["involvedObject.namespace Invalid"]),
        (_core(involvedObject__namespace=GONE), ["involvedObject.namespace Invalid"]),
        (_core(involvedObject__namespace=GONE, metadata__namespace="default"), []),
        (
            _core(eventTime=MOMENT, reason="x" * 129),
            [
                "action Required",
                "reason Invalid",
                "reportingComponent Invalid",
                "reportingComponent Invalid",
                "reportingComponent Required",
                "reportingInstance Required",
            ],
        ),
        (_new(), []),
        (_new(note="x" * 1025), ["message Invalid"]),
        (_new(type="Odd"), ["type Invalid"]),
        (
            _new(eventTime=GONE, deprecatedCount=1, deprecatedSource={"host": "h"}),
            ["count Invalid", "eventTime Required", "source Invalid"],
        ),
        (_new(series={"count": 1}), ["series.count Invalid", "series.lastObservedTime Required"]),
        (_new(metadata__name="A"), ["metadata.name Invalid"]),
    ],
)
def test_new_events(event: Tree, errors: list[str]) -> None:
    assert field_errors(event) == errors


def test_immutable_event_fields() -> None:
    old = stored(_new())
    series = {"count": 2, "lastObservedTime": MOMENT}
    assert field_errors(edit(old, {"series": series}), old) == []
    assert field_errors(edit(old, {"note": "x", "regarding.name": "q"}), old) == [
        "involvedObject Invalid",
        "message Invalid",
    ]
    assert field_errors(edit(old, {"note": "x"}), event_to_core(old)) == ["message Invalid"]
    old = stored(_core())
    assert field_errors(edit(old, {"message": "x", "count": 2}), old) == []


def test_an_event_is_returned_in_the_form_of_the_request() -> None:
    tree = run(_new(eventTime="2025-01-01T01:00:00.123456+01:00")).tree
    assert tree["eventTime"] == MOMENT
    assert tree["note"] == "done"
    assert tree["apiVersion"] == "events.k8s.io/v1"
    assert run(_core()).tree["message"] == "done"


KEYS = ("message", "note", "count", "deprecatedCount", "reportingComponent", "reportingController", "odd")


@given(st.dictionaries(st.sampled_from(KEYS), st.integers()), st.booleans())
def test_event_conversion_round_trip(fields: dict[str, Any], core: bool) -> None:
    tree = {**fields, "apiVersion": "v1" if core else "events.k8s.io/v1"}
    there, back = (event_to_events, event_to_core) if core else (event_to_core, event_to_events)
    assert back(there(tree)) == tree
    assert len(there(tree)) == len(tree)
    assert back(tree) is tree


def test_conversion_of_invalid_events() -> None:
    assert event_to_core([]) == []
    assert event_to_events(None) is None
    assert event_to_core({"apiVersion": 5}) == {"apiVersion": 5}
