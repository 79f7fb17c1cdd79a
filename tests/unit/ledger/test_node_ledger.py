"""Ledger of one node: adding, removing, assuming, copying, verifying."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.forms import ClaimCharge, Form, ResourceCharge
from plimsoll.api.gates import Gates
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.errors import LedgerError
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import ChargeRule, LedgerLine, sum_lines
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.status import write_charges
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    container,
    node,
    pod,
    pool_device,
    resource_slice,
    result,
)
from tests.unit.ledger.fixture import LedgerFixture


def lines(ledger: NodeLedger) -> list[tuple[Any, ...]]:
    return [
        (
            line.pod,
            line.resource,
            str(line.amount),
            line.rule.value,
            line.claim,
            [d.device for d in line.devices],
        )
        for line in ledger.lines()
    ]


def test_requests_and_non_zero_requests() -> None:
    ledger = NodeLedger(node())
    ledger.add(pod("p", container("a", cpu="1"), container("b", memory="1Gi"), overhead={"cpu": "100m"}))
    assert ledger.requested == {"cpu": 1100, "memory": 1 << 30}
    assert ledger.non_zero == {"cpu": 1200, "memory": (1 << 30) + (200 << 20)}
    assert ledger.headroom() == {"cpu": 6900, "memory": 31 << 30, "pods": 109}


def test_non_zero_requests_of_a_pod_with_pod_level_requests() -> None:
    """Defaults apply only to resources without a pod-level request."""
    for own, filled in (({"cpu": "1"}, 400 << 20), ({"cpu": "1", "memory": "1Mi"}, 1 << 20)):
        ledger = NodeLedger(node())
        ledger.add(pod("p", container("a"), container("b"), resources={"requests": own}))
        assert ledger.non_zero == {"cpu": 1000, "memory": filled}


def test_amounts_are_rounded_up_once_per_pod_and_resource() -> None:
    ledger = NodeLedger(node())
    charges = {"cpu": ResourceCharge(Quantity.parse("300u")), "memory": ResourceCharge(Quantity.parse("1m"))}
    ledger.add(pod("p", container("a", cpu="300u")), [ChargedClaim(ClaimCharge("c", (), charges))])
    assert ledger.requested == {"cpu": 1, "memory": 1}


def test_every_charge_has_a_line_with_pod_claim_device_and_rule() -> None:
    fixture = LedgerFixture(
        resource_slice(
            [
                charging_device("x", cpu="1", memory="1Gi"),
                charging_device("y", cpu="2"),
                charging_device("m", cpu={"allocationMultiplier": "4", "accountingPolicy": "Max"}),
            ]
        ),
        claims=[claim("two", results=[result("x"), result("y")]), claim("max", results=[result("m")])],
    )
    fixture.place(pod("p", container("a", "two", "max", cpu="3"), overhead={"cpu": "250m"}))
    assert lines(fixture.ledger) == [
        ("p", "cpu", "3", "requests", "", []),
        ("p", "cpu", "1", "Max", "max", ["m"]),
        ("p", "cpu", "1", "AddPerClaim", "two", ["x"]),
        ("p", "cpu", "2", "AddPerClaim", "two", ["y"]),
        ("p", "memory", "1Gi", "AddPerClaim", "two", ["x"]),
        ("p", "cpu", "250m", "overhead", "", []),
    ]
    assert fixture.cpu == 7250
    assert next(iter(fixture.ledger.lines())).namespace == "default"


def test_lines_of_a_pool_and_of_what_is_drawn_from_it() -> None:
    fixture = LedgerFixture(
        resource_slice([pool_device(policy="ConsumeFrom")]),
        claims=[claim("c", results=[result("socket0", cpu="8")])],
    )
    fixture.place(pod("p", container("a", "c", cpu="3")))
    assert lines(fixture.ledger) == [
        ("p", "cpu", "3", "requests", "", []),
        ("p", "cpu", "-3", "ConsumeFrom", "c", ["socket0"]),
        ("", "cpu", "8", "ConsumeFrom", "c", ["socket0"]),
    ]


def test_a_pod_level_request_covers_the_claims_inside_it() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="10")]), claims=[claim("c", results=[result("d")])]
    )
    fixture.place(pod("p", container("a", "c"), resources={"requests": {"cpu": "11", "memory": "1Gi"}}))
    entry = fixture.ledger.entries["uid-p"]
    assert entry.units == {"cpu": 11_000, "memory": 1 << 30}
    assert [(line.resource, str(line.amount), line.rule, line.counted) for line in entry.lines] == [
        ("cpu", "11", ChargeRule.POD_LEVEL, True),
        ("memory", "1Gi", ChargeRule.POD_LEVEL, True),
        ("cpu", "10", ChargeRule.ADD_PER_CLAIM, False),
    ]
    assert sum_lines(entry.lines) == {"cpu": Quantity.parse("11"), "memory": Quantity.parse("1Gi")}


def test_overhead_of_claims_per_pod_and_per_container() -> None:
    overhead = {"mapping": {"deviceMultiplier": "1"}, "overhead": {"perPod": "100m", "perContainer": "10m"}}
    one = charging_device("d", fields={"nodeAllocatableResources": {"cpu": overhead}})
    fixture = LedgerFixture(resource_slice([one]), claims=[claim("c", results=[result("d")])])
    fixture.place(pod("p", container("a", "c"), container("b", "c")))
    assert lines(fixture.ledger) == [
        ("p", "cpu", "1", "AddPerClaim", "c", ["d"]),
        ("p", "cpu", "100m", "perPod", "c", ["d"]),
        ("p", "cpu", "20m", "perContainer", "c", ["d"]),
    ]
    assert fixture.cpu == 1120


def test_removing_releases_exactly_what_was_charged() -> None:
    ledger = NodeLedger(node())
    one = pod("p", container("a", cpu="1"))
    ledger.add(one)
    ledger.remove(pod("p", container("a", cpu="7")))  # what the object says now is of no account
    assert ledger.requested == {"cpu": 0}
    assert len(ledger) == 0


def test_update_recharges_the_pod_and_keeps_its_order() -> None:
    ledger = NodeLedger(node())
    for name in ("p", "q"):
        ledger.add(pod(name, container("a", cpu="1")))
    ledger.update(pod("p", container("a", cpu="3")))
    assert ledger.requested["cpu"] == 4000
    assert list(ledger.entries) == ["uid-p", "uid-q"]


def test_assuming_confirming_and_forgetting() -> None:
    ledger = NodeLedger(node())
    one = pod("p", container("a", cpu="1"))
    assert ledger.assume(one).assumed
    ledger.forget(one)
    assert ledger.requested["cpu"] == 0
    ledger.assume(one)
    assert not ledger.add(one).assumed
    assert ledger.requested["cpu"] == 1000


def test_removing_an_unknown_pod_is_an_error() -> None:
    ledger = NodeLedger(node())
    one = pod("p", container("a"))
    for act in (ledger.remove, ledger.update, ledger.forget):
        with pytest.raises(LedgerError, match=r"uid-p is not .* node-1"):
            act(one)
    ledger.add(one)
    for act in (ledger.add, ledger.assume):
        with pytest.raises(LedgerError, match="already"):
            act(one)
    with pytest.raises(LedgerError, match="not assumed"):
        ledger.forget(one)


def test_a_confirmed_pod_keeps_charges_with_devices() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]), claims=[claim("c", results=[result("d")])]
    )
    one = pod("p", container("a", "c"))
    charged_claims = fixture.check_placement(one).charged_claims or ()
    fixture.ledger.assume(one, charged_claims)
    fixture.ledger.add(write_charges(one, charged_claims, Form.V1_37).lossless(Form.V1_37))
    assert fixture.ledger.entries["uid-p"].charged_claims[0].devices("cpu") == (DeviceId(DRIVER, "p", "d"),)
    assert list(fixture.ledger.claims) == ["uid-c"]


def test_a_changed_status_replaces_the_charges() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]), claims=[claim("c", results=[result("d")])]
    )
    one = pod("p", container("a", "c"))
    fixture.place(one)
    other = ChargedClaim(ClaimCharge("c", ("a",), {"cpu": ResourceCharge(Quantity.parse("5"))}))
    fixture.ledger.update(write_charges(one, [other], Form.V1_36).view)
    assert fixture.cpu == 5000


def test_a_copy_is_independent() -> None:
    fixture = LedgerFixture(
        resource_slice([pool_device(policy="ConsumeFrom")]),
        claims=[claim("c", results=[result("socket0", cpu="8")])],
    )
    one = pod("p", container("a", "c", cpu="1"))
    fixture.place(one)
    copy = fixture.ledger.clone()
    copy.remove(one)
    copy.add(pod("q", container("a", cpu="2")))
    assert (fixture.cpu, copy.requested["cpu"]) == (8000, 2000)
    assert fixture.ledger.verify() == copy.verify() == []
    assert fixture.ledger.claim_state("default", "c") is not None
    assert copy.claim_state("default", "c") is None


def test_headroom_lists_only_resources_of_the_node_and_its_pods() -> None:
    ledger = NodeLedger(node())
    assert "hugepages-2Mi" not in ledger.headroom()
    ledger.add(pod("p", container("a", hugepages_2Mi="2Mi")))
    assert ledger.headroom()["hugepages-2Mi"] == -(2 << 20)
    ledger.remove(pod("p"))
    assert "hugepages-2Mi" not in ledger.headroom()


def test_a_pool_of_an_untracked_resource_is_not_charged() -> None:
    rule = {"allocationMultiplier": "4", "accountingPolicy": "ConsumeFrom"}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", foo=rule)]), claims=[claim("c", results=[result("d")])]
    )
    fixture.place(pod("p", container("a", "c", cpu="1")))
    assert fixture.ledger.requested == {"cpu": 1000}
    assert fixture.ledger.verify() == []


def test_allocatable_may_change() -> None:
    ledger = NodeLedger(node())
    ledger.add(pod("p", container("a", cpu="4")))
    ledger.set_node(node(cpu="3"))
    assert ledger.headroom()["cpu"] == -1000


def test_claims_without_the_gate_are_not_counted() -> None:
    ledger = NodeLedger(node(), Gates.of({"DRANodeAllocatableResources": False}))
    ledger.add(
        pod("p", container("a", cpu="1")),
        [ChargedClaim(ClaimCharge("c", (), {"cpu": ResourceCharge(Quantity.parse("4"))}))],
    )
    assert ledger.requested == {"cpu": 1000}
    assert not ledger.claims
    assert ledger.verify() == []


def test_consumers_of_a_claim() -> None:
    ledger = NodeLedger(node())
    charged_claim = ChargedClaim(ClaimCharge("c", ("a",), {"cpu": ResourceCharge(Quantity.parse("1"))}))
    for name in ("p", "q"):
        ledger.add(pod(name, container("a")), [charged_claim])
    state = ledger.claim_state("default", "c")
    assert state is not None
    assert state.consumers == {"uid-p", "uid-q"}
    ledger.remove(pod("p"))
    ledger.remove(pod("q"))
    assert ledger.claim_state("default", "c") is None


def test_a_claim_listed_twice_in_a_status_is_released_once() -> None:
    ledger = NodeLedger(node())
    pool = ResourceCharge(Quantity.parse("4"), policy="ConsumeFrom")
    ledger.add(pod("p", container("a", cpu="1")), [ChargedClaim(ClaimCharge("c", ("a",), {"cpu": pool}))] * 2)
    assert ledger.requested["cpu"] == 4000
    ledger.remove(pod("p"))
    assert ledger.requested["cpu"] == 0


def test_an_overdrawn_pool_is_reported() -> None:
    """Running pods are charged even past the line; only new pods are refused."""
    ledger = NodeLedger(node())
    pool = ChargedClaim(
        ClaimCharge("c", ("a",), {"cpu": ResourceCharge(Quantity.parse("4"), policy="ConsumeFrom")})
    )
    for name in ("p", "q"):
        ledger.add(pod(name, container("a", cpu="3")), [pool])
    state = ledger.claim_state("default", "c")
    assert state is not None
    assert str(state.claim_level_charges["cpu"].pool.rest) == "-2"
    assert ledger.verify() == []


def test_a_claim_without_uid_is_matched_by_name() -> None:
    ledger = NodeLedger(node())
    charge = ClaimCharge("c", ("a",), {"cpu": ResourceCharge(Quantity.parse("4"), policy="ConsumeFrom")})
    ledger.add(pod("p", container("a", cpu="1")), [ChargedClaim(charge)])
    ledger.add(pod("q", container("a", cpu="1")), [ChargedClaim(charge, "uid-c")])
    ledger.add(pod("r", container("a", cpu="1")), [ChargedClaim(charge)])
    assert [len(state.consumers) for state in ledger.claims.values()] == [3]
    assert ledger.requested["cpu"] == 4000


def test_verify_finds_differences() -> None:
    fixture = LedgerFixture(
        resource_slice([pool_device(policy="ConsumeFrom")]),
        claims=[claim("c", results=[result("socket0", cpu="8")])],
    )
    one = pod("p", container("a", "c", cpu="1"))
    fixture.place(one)
    assert fixture.ledger.verify() == []
    fixture.ledger.requested["cpu"] += 1
    (found,) = fixture.ledger.verify()
    assert str(found) == "requested cpu: recorded 8001, computed 8000"
    fixture.ledger.requested["cpu"] -= 1
    others = [(replace(one, metadata=replace(one.metadata, uid="uid-q")), None)]
    assert {found.where for found in fixture.ledger.verify(others)} == {
        "requested cpu",
        "non-zero requested cpu",
        "claim uid-c",
        "entry uid-p",
        "entry uid-q",
    }


def test_a_pod_level_request_below_its_shared_claim_is_not_charged_negative() -> None:
    """Such a pod is not admitted, but a running one is charged: the claim in full and nothing for the pod."""
    ledger = NodeLedger(node(), profile=AccountingProfile(name="sharing", share_per_claim=True))
    charged_claim = ChargedClaim(ClaimCharge("c", ("a",), {"cpu": ResourceCharge(Quantity.parse("4"))}))
    ledger.add(pod("p", container("a"), resources={"requests": {"cpu": "3"}}), [charged_claim])
    assert ledger.requested["cpu"] == 4000
    assert ledger.entries["uid-p"].units == {"cpu": 0}
    assert ledger.verify() == []


def test_ledger_lines_are_values() -> None:
    assert LedgerLine("cpu", Quantity.parse("1"), ChargeRule.REQUESTS) == LedgerLine(
        "cpu", Quantity.parse("1000m"), ChargeRule.REQUESTS
    )
