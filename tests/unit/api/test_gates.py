"""Feature gates."""

from __future__ import annotations

import pytest

from plimsoll.api.gates import GATES, Gates
from plimsoll.errors import GateError


def test_every_upstream_gate_is_on_and_switchable() -> None:
    for gate in GATES:
        assert Gates.default().enabled(gate.name) == gate.default
        if gate.since == "1.36":
            assert gate.default or gate.upstream_default is None or gate.name == "StorageCapacityScoring"
        else:
            assert not gate.default  # the semantics here are those of 1.36
        assert not Gates.of({gate.name: False}).enabled(gate.name)
        assert Gates.of({gate.name: True}).enabled(gate.name)


def test_upstream_defaults_leave_alpha_off() -> None:
    upstream = Gates.upstream()
    assert not upstream.enabled("DRANodeAllocatableResources")
    assert upstream.enabled("DRAConsumableCapacity")


def test_newer_gates_are_not_of_136() -> None:
    on = Gates.of({"DRAFractionalCapacityRange": True})
    assert not Gates.default().enabled("DRAFractionalCapacityRange")
    assert not Gates.upstream().enabled("DRAFractionalCapacityRange")
    assert not on.without_newer().enabled("DRAFractionalCapacityRange")


def test_draft_name_is_an_alias() -> None:
    gates = Gates.of({"DRANativeResources": False})
    assert not gates.enabled("DRANodeAllocatableResources")
    assert not gates.enabled("DRANativeResources")
    with pytest.raises(GateError, match="both enabled and disabled"):
        Gates.of({"DRANativeResources": False, "DRANodeAllocatableResources": True})


def test_disabling_a_gate_disables_its_dependents() -> None:
    gates = Gates.of({"DynamicResourceAllocation": False})
    assert not any(on for gate, on in gates if gate.name.startswith("DRA"))
    assert gates.enabled("PodLevelResources")


def test_contradictions_are_refused() -> None:
    with pytest.raises(GateError, match="requires DRAResourceClaimDeviceStatus"):
        Gates.of({"DRAResourceClaimDeviceStatus": False, "DRADeviceBindingConditions": True})
    with pytest.raises(GateError, match="unknown feature gate 'Nope'"):
        Gates.of({"Nope": True})
    with pytest.raises(GateError, match="unknown"):
        Gates.default().enabled("Nope")


def test_reads_the_command_line_form() -> None:
    gates = Gates.parse("DRAAdminAccess=false, DRAPrioritizedList=True,")
    assert not gates.enabled("DRAAdminAccess")
    assert gates.enabled("DRAPrioritizedList")
    with pytest.raises(GateError, match="write Name=true"):
        Gates.parse("DRAAdminAccess")
