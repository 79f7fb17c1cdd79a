"""DeviceTaintRule: spec, status, and the time of its taint."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import (
    GONE,
    NOW_TEXT,
    edit,
    field_errors,
    run,
    stored,
    taint_rule,
)

BEFORE = "2025-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"spec.deviceSelector": GONE}, []),
        ({"spec.deviceSelector.driver": ""}, ["spec.deviceSelector.driver Required"]),
        ({"spec.deviceSelector.driver": "a b"}, ["spec.deviceSelector.driver Invalid"]),
        ({"spec.deviceSelector.pool": ""}, ["spec.deviceSelector.pool Required"]),
        ({"spec.deviceSelector.device": "A"}, ["spec.deviceSelector.device Invalid"]),
        (
            {"spec.taint": GONE},
            ["spec.taint.effect Required", "spec.taint.key Invalid", "spec.taint.key Invalid"],
        ),
        ({"spec.taint.effect": "Evict"}, ["spec.taint.effect NotSupported"]),
        ({"spec.taint.value": "a b"}, ["spec.taint.value Invalid"]),
        ({"metadata.namespace": "lab"}, ["metadata.namespace Forbidden"]),
    ],
)
def test_new_rule(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(edit(taint_rule(), changes)) == errors


def test_prepared_rule() -> None:
    tree = run(edit(taint_rule(), {"status": {"conditions": []}})).tree
    assert tree["spec"]["taint"]["timeAdded"] == NOW_TEXT
    assert tree["metadata"]["generation"] == 1
    assert tree["status"] == {}


def test_a_new_effect_updates_the_taint_time() -> None:
    old = stored(edit(taint_rule(), {"spec.taint.timeAdded": BEFORE}))
    changed = run(edit(old, {"spec.taint.effect": "NoSchedule"}), old).tree
    assert changed["spec"]["taint"]["timeAdded"] == NOW_TEXT
    assert changed["metadata"]["generation"] == 2
    dated = {"spec.taint.effect": "NoSchedule", "spec.taint.timeAdded": "2025-02-01T00:00:00Z"}
    assert run(edit(old, dated), old).tree["spec"]["taint"]["timeAdded"] == "2025-02-01T00:00:00Z"
    valued = run(edit(old, {"spec.taint.value": "other"}), old).tree
    assert valued["spec"]["taint"]["timeAdded"] == BEFORE
    assert run(old, old).tree["metadata"]["generation"] == 1


def test_a_stored_effect_is_not_validated_again() -> None:
    old = stored(edit(taint_rule(), {"spec.taint.effect": "Evict"}))
    assert field_errors(edit(old, {"spec.taint.value": "x"}), old) == []
    assert field_errors(edit(old, {"spec.taint.effect": "Evict2"}), old) == ["spec.taint.effect NotSupported"]


def test_status() -> None:
    condition = {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": BEFORE}
    old = stored(taint_rule())
    tree = edit(old, {"status": {"conditions": [condition]}, "spec.taint.effect": "NoSchedule"})
    prepared = run(tree, old, "status")
    assert prepared.errors == ()
    assert prepared.tree["spec"]["taint"]["effect"] == "NoExecute"
    many = [{**condition, "type": f"t{i}"} for i in range(9)]
    assert field_errors(edit(old, {"status": {"conditions": many}}), old, "status") == [
        "status.conditions TooMany"
    ]
    assert field_errors(edit(old, {"status": {"conditions": [{}]}}), old, "status") == [
        "status.conditions[0].lastTransitionTime Required",
        "status.conditions[0].reason Required",
        "status.conditions[0].status NotSupported",
        "status.conditions[0].type Invalid",
        "status.conditions[0].type Invalid",
    ]


def test_taint_rules_need_their_gate() -> None:
    off = {"DRADeviceTaintRules": False}
    assert field_errors(taint_rule(), gates=off) == ["[] Forbidden"]
    old = stored(taint_rule())
    assert field_errors(edit(old, {"spec.taint.value": "x"}), old, gates=off) == []
