"""Checks of devices: allocated twice, overdrawn, gone, tainted; pools and slices."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.tools.findings import Severity
from tests.unit.tools.audit.build import (
    V1,
    Tree,
    api_object,
    claim,
    cpus,
    device,
    found,
    node,
    only,
    pod,
    result,
    share,
    slice_of,
    well,
)

CPUS = slice_of(cpus(8), driver="dra.cpu")


# -- double allocations


def test_one_device_in_two_claims() -> None:
    finding = only("PLM020", claim("c", result()), claim("d", result(), pods="q"), pod("p", claims="c"))
    assert finding.subject == "Device/gpu.example.com/n1/d0"
    assert finding.message == "is allocated exclusively 2 times, to 2 claims"
    assert finding.evidence == (
        "ResourceClaim/work/c, request r, used by p on n1",
        "ResourceClaim/work/d, request r, used by no pod",
    )
    assert finding.fix.endswith(": kubectl delete resourceclaim -n work d")
    assert finding.proven


def test_one_device_twice_in_one_claim() -> None:
    assert only("PLM020", claim("c", result(), result())).message.endswith("2 times, to 1 claim")


def test_a_whole_device_and_a_share_of_it() -> None:
    finding = only("PLM020", claim("c", result("cpus", "dra.cpu")), claim("d", share("2")))
    assert finding.message == "is allocated exclusively and also has 1 allocated share, to 2 claims"


@pytest.mark.parametrize(
    "other",
    [result(adminAccess=True), result("d1"), result(driver="x.example.com"), result(pool="n2")],
    ids=["admin access", "other device", "other driver", "other pool"],
)
def test_devices_that_may_be_used_twice(other: Tree) -> None:
    assert found("PLM020", claim("c", result()), claim("d", other)) == []


def test_one_share_in_two_claims() -> None:
    finding = only("PLM021", claim("c", share("1", "s")), claim("d", share("1", "s")))
    assert finding.message == "share s is allocated 2 times"
    assert found("PLM021", claim("c", share("1", "s")), claim("d", share("1", "t"))) == []


# -- overdrawn


def partitions(whole: str) -> list[Tree]:
    draws = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
    half = [device(name, consumesCounters=draws) for name in ("h0", "h1")]
    counters = [{"name": "card", "counters": {"memory": {"value": whole}}}]
    return [slice_of(*half, count=2, name="a"), slice_of(count=2, name="b", counters=counters)]


def test_partitions_that_exceed_a_counter() -> None:
    claims = [claim("c", result("h0")), claim("d", result("h1"))]
    finding = only("PLM022", *partitions("60Gi"), *claims)
    assert finding.subject == "Pool/gpu.example.com/n1"
    assert finding.message == "counter card/memory: 80Gi consumed of 60Gi, 20Gi over"
    assert found("PLM022", *partitions("80Gi"), *claims) == []
    assert found("PLM022", *partitions("60Gi"), claims[0]) == []
    assert found("PLM022", *partitions("60Gi"), claims[0], claim("d", result("h1", adminAccess=True))) == []


def test_incompatible_partitions() -> None:
    def grouped(first: list[str], second: list[str]) -> list[Tree]:
        slices = partitions("80Gi")
        devices = next(each["spec"]["devices"] for each in slices if each["spec"].get("devices"))
        for part, groups in zip(devices, (first, second), strict=True):
            (draw,) = part["consumesCounters"]
            part["consumesCounters"] = [{**draw, "compatibilityGroups": groups}]
        return slices

    claims = [claim("c", result("h0")), claim("d", result("h1"))]
    finding = only("PLM029", *grouped(["a"], ["b"]), *claims)
    assert "the 2 allocated devices have no group in common" in finding.message
    assert found("PLM029", *grouped(["a"], []), *claims) != []
    assert found("PLM029", *grouped(["a"], ["b", "a"]), *claims) == []
    assert found("PLM029", *grouped([], []), *claims) == []
    assert found("PLM029", *grouped(["a"], ["b"]), claims[0]) == []


def test_shares_that_exceed_the_capacity() -> None:
    finding = only("PLM023", CPUS, claim("c", share("6", "s")), claim("d", share("3", "t")))
    assert finding.message == "capacity dra.cpu/cpu: 9 consumed of 8, 1 over"
    assert finding.evidence[0] == "ResourceClaim/work/c consumes 6"
    assert found("PLM023", CPUS, claim("c", share("6", "s")), claim("d", share("2", "t"))) == []


def policed(policy: Tree) -> Tree:
    return slice_of(
        device(
            "cpus",
            allowMultipleAllocations=True,
            capacity={"dra.cpu/cpu": {"value": "8", "requestPolicy": policy}},
        ),
        driver="dra.cpu",
    )


@pytest.mark.parametrize(
    ("policy", "amount", "expected"),
    [
        ({"default": "2", "validRange": {"min": "2", "step": "2"}}, "3", "not a multiple of the step 2"),
        ({"default": "2", "validRange": {"min": "2", "max": "4"}}, "5", "at most 4 is allowed"),
        ({"default": "2", "validValues": ["2", "4"]}, "3", "not a valid value; the largest is 4"),
    ],
)
def test_an_amount_that_the_policy_does_not_allow(policy: Tree, amount: str, expected: str) -> None:
    assert only("PLM024", policed(policy), claim("c", share(amount))).message.endswith(expected)
    assert found("PLM024", policed(policy), claim("c", share("4"))) == []


def test_an_amount_of_a_capacity_with_zero_consumption() -> None:
    finding = only("PLM024", policed({"zeroConsumption": True}), claim("c", share("3")))
    assert finding.message.endswith("not a valid value; the largest is 0")
    assert found("PLM024", policed({"zeroConsumption": True}), claim("c", share("0"))) == []


def test_a_missing_capacity() -> None:
    finding = only("PLM024", slice_of(device("cpus"), driver="dra.cpu"), claim("c", share("4")))
    assert "which device cpus does not have" in finding.message


# -- gone and tainted


@pytest.mark.parametrize(
    ("slices", "why"),
    [
        ([slice_of(device("d1"))], "the pool has 1 device, but not this one"),
        ([slice_of(device("d0"), driver="x.example.com")], "driver gpu.example.com publishes no slices"),
        ([slice_of(device("d0"), pool="n2")], "driver gpu.example.com has no pool n1"),
        (
            [slice_of(device("d0"), generation=1), slice_of(device("d1"), generation=2)],
            "only slice gpu.example.com-n1-1 of generation 1 contains it; the pool is at 2",
        ),
    ],
    ids=["device", "driver", "pool", "generation"],
)
def test_a_missing_device(slices: list[Tree], why: str) -> None:
    finding = only("PLM025", *slices, claim("c", result()), pod("p", claims="c"))
    where = "not in the newest generation" if "generation" in why else "that no slice publishes"
    assert finding.message == f"holds 1 device {where}: d0"
    assert finding.evidence == (f"gpu.example.com/n1/d0: {why}", "used by Pod/work/p on n1")


def test_an_existing_device() -> None:
    assert found("PLM025", slice_of(device("d0")), claim("c", result())) == []


def rule(effect: str = "NoExecute", **selector: str) -> Tree:
    spec = {"deviceSelector": selector, "taint": {"key": "broken", "effect": effect}}
    return api_object(V1, "DeviceTaintRule", "r", spec=spec)


def test_a_tainted_device_in_use() -> None:
    tainted = device("d0", taints=[{"key": "broken", "value": "yes", "effect": "NoExecute"}])
    finding = only("PLM026", slice_of(tainted), claim("c", result()), pod("p", claims="c"))
    assert finding.message == (
        "holds device d0, which is tainted broken=yes:NoExecute, and does not tolerate it"
    )
    assert finding.evidence[-1] == "Pod/work/p is to be evicted"


def test_a_device_tainted_by_a_rule() -> None:
    finding = only("PLM026", slice_of(device("d0")), claim("c", result()), rule(driver="gpu.example.com"))
    assert "the taint comes from DeviceTaintRule/r" in finding.evidence


@pytest.mark.parametrize(
    ("more", "body"),
    [
        (rule(driver="x.example.com"), {}),
        (rule("NoSchedule", driver="gpu.example.com"), {}),
        (rule(device="d0"), {"tolerations": [{"key": "broken", "operator": "Exists"}]}),
    ],
    ids=["other driver", "NoSchedule", "tolerated"],
)
def test_devices_without_effective_taints(more: Tree, body: dict[str, Any]) -> None:
    assert found("PLM026", slice_of(device("d0")), claim("c", result(**body)), more) == []


# -- pools


def test_a_pool_with_missing_slices() -> None:
    finding = only("PLM027", slice_of(device("d0"), count=2))
    assert finding.message == "has 1 of 2 slices of generation 1: none of its devices is allocated"
    assert finding.severity is Severity.WARNING
    assert found("PLM027", *partitions("80Gi")) == []


def test_an_invalid_pool() -> None:
    pieces = [slice_of(device("d0"), count=2, name="a"), slice_of(device("d0"), count=2, name="b")]
    finding = only("PLM027", *pieces)
    assert finding.severity is Severity.ERROR
    assert "device d0 is published 2 times" in finding.message


def test_a_device_with_an_unknown_counter() -> None:
    draws = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
    finding = only("PLM027", slice_of(device("d0", consumesCounters=draws)))
    assert "consumes card/memory, which is not defined" in finding.message


def test_leftover_slices() -> None:
    old = slice_of(device("d0"), generation=1)
    finding = only("PLM028", node(), old, slice_of(device("d0"), generation=2))
    assert finding.fix == "kubectl delete resourceslice gpu.example.com-n1-1"
    gone = only("PLM028", node(), slice_of(device("d0"), pool="n2", on="n2"))
    assert gone.message == "belongs to node n2, which does not exist"
    assert found("PLM028", *well()) == []
