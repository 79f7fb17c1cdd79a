"""Binding conditions that a driver has yet to set."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.resource import ResourceClaim
from plimsoll.drivers.fake.binding_conditions import find_pending_conditions
from plimsoll.drivers.fake.plan import BindingOutcome, BindingPlan


def claim(status: dict[str, Any]) -> ResourceClaim:
    return codec.convert(
        {"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "status": status}, ResourceClaim
    )


def result(device: str, **more: Any) -> dict[str, Any]:
    conditions = {"bindingConditions": ["a", "b"], "bindingFailureConditions": ["x", "y"]}
    return {"request": "r", "driver": "d", "pool": "p", "device": device, **conditions, **more}


def allocated(*results: dict[str, Any], devices: list[dict[str, Any]] | None = None) -> ResourceClaim:
    return claim({"allocation": {"devices": {"results": list(results)}}, "devices": devices or []})


def finds(outcome: BindingOutcome = "ready") -> Any:
    binding = BindingPlan(conditions=("a", "b"), failures=("x", "y"), outcome=outcome, after=1.5)
    return lambda driver, pool, device: binding if (driver, pool, device) == ("d", "p", "one") else None


@pytest.mark.parametrize(("outcome", "types"), [("ready", ("a", "b")), ("fail", ("x",))])
def test_conditions_become_true(outcome: BindingOutcome, types: tuple[str, ...]) -> None:
    (due,) = find_pending_conditions(allocated(result("one"), result("two")), finds(outcome))
    assert (due.device, due.types, due.after) == ("one", types, 1.5)
    tree = due.status("2026-01-01T00:00:00Z")
    assert [each["type"] for each in tree["conditions"]] == list(types)
    assert {each["status"] for each in tree["conditions"]} == {"True"}
    assert "shareID" not in tree


def test_no_condition_is_due() -> None:
    assert find_pending_conditions(claim({}), finds()) == ()
    assert find_pending_conditions(allocated(result("two")), finds()) == ()
    assert find_pending_conditions(allocated(result("one")), finds("never")) == ()
    assert find_pending_conditions(allocated(result("one", bindingConditions=[])), finds()) == ()


def test_conditions_are_set_once() -> None:
    def status(*types: str, **more: Any) -> dict[str, Any]:
        conditions = [{"type": each, "status": "True"} for each in types]
        return {"driver": "d", "pool": "p", "device": "one", "conditions": conditions, **more}

    assert find_pending_conditions(allocated(result("one"), devices=[status("a", "b")]), finds()) == ()
    assert find_pending_conditions(allocated(result("one"), devices=[status("a")]), finds()) != ()
    # Shares of a device are distinguished.
    shares = [result("one", shareID="s1"), result("one", shareID="s2")]
    found = find_pending_conditions(allocated(*shares, devices=[status("a", "b", shareID="s1")]), finds())
    assert [due.share_id for due in found] == ["s2"]
    assert found[0].status("t")["shareID"] == "s2"
