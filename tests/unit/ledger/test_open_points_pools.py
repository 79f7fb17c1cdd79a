"""The open points of the accounting policies, P16 to P30, each with its resolution.

The points are those of docs/spec/accounting.md, "Accounting policies".
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult
from plimsoll.controllers.quota.ledger_usage import usage_by_namespace
from plimsoll.ledger.claim_shares import compute_claim_shares
from plimsoll.ledger.claims import read_charged_claims
from plimsoll.ledger.device_charges import compute_device_charges
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import check_admission, check_requests
from plimsoll.ledger.qos import qos_class
from plimsoll.ledger.status import write_charges
from plimsoll.ledger.verdict import Cause, VerdictCode
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
    sidecar,
)
from tests.unit.ledger.fixture import LedgerFixture


def pools(*sizes: str, **allocatable: str) -> LedgerFixture:
    """Return a ledger with claims `pool-0`, `pool-1`, ... that are pools of these sizes."""
    line: dict[str, Any] = {"cpu": "128", **allocatable}
    return LedgerFixture(
        resource_slice([pool_device(policy="ConsumeFrom")]),
        claims=[claim(f"pool-{i}", results=[result("socket0", cpu=size)]) for i, size in enumerate(sizes)],
        **line,
    )


def consumed(fixture: LedgerFixture, name: str = "pool-0") -> str:
    state = fixture.ledger.claim_state("default", name)
    return str(state.consumed["cpu"]) if state is not None else "-"


def test_p16_a_container_without_a_request_draws_nothing_but_is_a_consumer() -> None:
    fixture = pools("10")
    fixture.place(pod("p", container("a", "pool-0")))
    assert consumed(fixture) == "0"
    assert fixture.cpu == 10_000
    state = fixture.ledger.claim_state("default", "pool-0")
    assert state is not None
    assert state.consumers == {"uid-p"}


def test_p17_a_pod_draws_what_its_referring_containers_need_together() -> None:
    fixture = pools("10")
    one = pod(
        "p",
        container("a", "pool-0", cpu="2"),
        container("b", "pool-0", cpu="1"),
        container("other", cpu="7"),
        init=[container("i", "pool-0", cpu="4"), sidecar("s", "pool-0", cpu="500m")],
    )
    fixture.place(one)
    assert consumed(fixture) == "4"  # max(2 + 1 + 0.5, 4)
    assert fixture.cpu == 17_000


def test_p18_overhead_and_other_containers_are_charged_to_the_node() -> None:
    fixture = pools("10")
    fixture.place(
        pod("p", container("a", "pool-0", cpu="2"), container("b", cpu="3"), overhead={"cpu": "250m"})
    )
    assert consumed(fixture) == "2"
    assert fixture.cpu == 13_250


def test_p19_a_pool_does_not_go_with_a_pod_level_request() -> None:
    fixture = pools("10")
    verdict = fixture.check_placement(
        pod("p", container("a", "pool-0", cpu="2"), resources={"requests": {"cpu": "3"}})
    ).verdict
    assert (verdict.code, verdict.reasons[0].cause) == (VerdictCode.UNRESOLVABLE, Cause.POOL_UNDER_POD_LEVEL)
    other = pod("p", container("a", "pool-0", cpu="2"), resources={"requests": {"memory": "1Gi"}})
    assert fixture.check_placement(other).verdict.fits


def test_p20_several_pools_are_filled_in_the_order_of_the_pods_claims() -> None:
    fixture = pools("10", "10")
    entries = [{"name": n, "resourceClaimName": n} for n in ("pool-1", "pool-0")]
    one = pod("p", container("a", "pool-0", "pool-1", cpu="12"), resourceClaims=entries)
    fixture.place(one)
    assert (consumed(fixture, "pool-1"), consumed(fixture, "pool-0")) == ("10", "2")
    verdict = fixture.check_placement(pod("q", container("a", "pool-0", "pool-1", cpu="9"))).verdict
    assert verdict.code is VerdictCode.UNSCHEDULABLE
    assert fixture.check_placement(pod("q", container("a", "pool-0", "pool-1", cpu="8"))).verdict.fits


def test_p21_a_pool_that_is_too_small() -> None:
    fixture = pools("10")
    verdict = fixture.check_placement(pod("p", container("a", "pool-0", cpu="11"))).verdict
    assert (verdict.code, format_reasons(verdict)) == (
        VerdictCode.UNRESOLVABLE,
        ("Insufficient cpu in claim pool-0",),
    )
    fixture.place(pod("p", container("a", "pool-0", cpu="6")))
    verdict = fixture.check_placement(pod("q", container("a", "pool-0", cpu="6"))).verdict
    assert (verdict.code, format_reasons(verdict)) == (
        VerdictCode.UNSCHEDULABLE,
        ("Insufficient cpu in claim pool-0",),
    )
    reason = verdict.reasons[0]
    assert (reason.wanted, reason.had, reason.capacity) == (6000, 4000, 10_000)


def test_p22_the_first_consumer_needs_room_for_the_whole_pool_and_later_ones_for_nothing() -> None:
    fixture = pools("10", cpu="12")
    blocker = pod("b", container("a", cpu="3"))
    fixture.place(blocker)
    verdict = fixture.check_placement(pod("p", container("a", "pool-0", cpu="1"))).verdict
    assert (verdict.code, format_reasons(verdict)) == (VerdictCode.UNSCHEDULABLE, ("Insufficient cpu",))
    fixture.ledger.remove(blocker)
    fixture.place(pod("p", container("a", "pool-0", cpu="1")))
    fixture.place(pod("f", container("a", cpu="2")))  # the node is full now
    fixture.place(pod("q", container("a", "pool-0", cpu="9")))
    assert fixture.cpu == 12_000


def test_p23_the_last_consumer_takes_the_charge_along_and_the_next_brings_it_back() -> None:
    fixture = pools("10")
    one = pod("p", container("a", "pool-0", cpu="1"))
    fixture.place(one)
    fixture.ledger.remove(one)
    assert fixture.cpu == 0
    assert fixture.ledger.claim_state("default", "pool-0") is None
    fixture.place(pod("q", container("a", "pool-0", cpu="2")))
    assert (fixture.cpu, consumed(fixture)) == (10_000, "2")


def test_p24_the_check_of_requests_skips_only_what_the_spec_cannot_show() -> None:
    fixture = pools("10", cpu="4")
    one = pod("p", container("a", "pool-0", cpu="8", memory="100Gi"))
    judged = fixture.check_placement(one)
    verdict = check_requests(fixture.ledger, one, judged.charged_claims or ())
    assert format_reasons(verdict) == ("Insufficient memory",)
    assert format_reasons(check_requests(fixture.ledger, one)) == ("Insufficient cpu", "Insufficient memory")
    additive = LedgerFixture(
        resource_slice(
            [charging_device("d", cpu={"allocationMultiplier": "1", "accountingPolicy": "AddPerReference"})]
        ),
        claims=[claim("c", results=[result("d")])],
        cpu="4",
    )
    big = pod("p", container("a", "c", cpu="8"))
    assert not check_requests(additive.ledger, big, additive.check_placement(big).charged_claims or ()).fits


def test_p25_a_kubelet_rebuilds_the_same_ledger_from_pod_statuses() -> None:
    fixture = pools("10")
    kubelet = NodeLedger(node(cpu="12"))
    sent = []
    for name, cpu in (("p", "4"), ("q", "5")):
        one = pod(name, container("a", "pool-0", cpu=cpu))
        sent.append(write_charges(one, fixture.place(one), Form.V1_36).lossless(Form.V1_36))
    for one in sent:
        assert check_admission(kubelet, one, read_charged_claims(one)).admit
        kubelet.add(one)
    state = kubelet.claim_state("default", "pool-0")
    assert state is not None
    assert (kubelet.requested["cpu"], str(state.consumed["cpu"])) == (10_000, "9")
    third = check_admission(kubelet, pod("r", container("a", cpu="3")), ())
    assert third.message == (
        "Node didn't have enough resource: cpu, requested: 3000, used: 10000, capacity: 12000"
    )


def _undrawn(charge: ClaimCharge) -> ClaimCharge:
    parts = {name: replace(part, drawn=None) for name, part in charge.resources.items()}
    return replace(charge, resources=parts)


def test_p25_a_kubelet_refuses_a_pod_that_overdraws_a_pool() -> None:
    """Two schedulers, or a pod bound by hand: the node has capacity for it, the pool has not."""
    fixture = pools("10")
    kubelet = NodeLedger(node(cpu="12"))
    first = pod("p", container("a", "pool-0", cpu="7"))
    first = write_charges(first, fixture.place(first), Form.V1_36).lossless(Form.V1_36)
    kubelet.add(first)
    late = pod("q", container("a", "pool-0", cpu="4"))
    elsewhere = write_charges(late, pools("10").place(late), Form.V1_36).lossless(Form.V1_36)
    drawn_by_itself = pools("10").check_placement(late).charged_claims or ()
    unsettled = [
        replace(charged_claim, charge=_undrawn(charged_claim.charge)) for charged_claim in drawn_by_itself
    ]
    text = (
        "Node didn't have enough resource: cpu in claim pool-0, requested: 4000, used: 7000, capacity: 10000"
    )
    for charged_claims in (read_charged_claims(elsewhere), unsettled):
        answer = check_admission(kubelet, elsewhere, charged_claims)
        assert (answer.admit, answer.reason, answer.message) == (False, "OutOfcpu", text)
        assert [reason.resolvable for reason in answer.shortages] == [True]
    small = pod("r", container("a", "pool-0", cpu="3"))
    fits = write_charges(small, pools("10").place(small), Form.V1_36).lossless(Form.V1_36)
    assert check_admission(kubelet, fits, read_charged_claims(fits)).admit
    assert check_admission(kubelet, first, read_charged_claims(first)).admit, (
        "its own draw does not count twice"
    )


def test_p26_claims_are_distinguished_by_uid_and_named_in_the_status() -> None:
    fixture = pools("10")
    fixture.place(pod("p", container("a", "pool-0", cpu="4")))
    fixture.claims["pool-0"] = claim("pool-0", results=[result("socket0", cpu="20")], uid="uid-new")
    fixture.place(pod("q", container("a", "pool-0", cpu="15")))
    assert fixture.cpu == 30_000
    assert {key: len(state.consumers) for key, state in fixture.ledger.claims.items()} == {
        "uid-pool-0": 1,
        "uid-new": 1,
    }
    (entry,) = read_charged_claims(
        write_charges(pod("p"), fixture.place(pod("r", container("a", "pool-0"))), Form.V1_36).view
    )
    assert (entry.claim, entry.uid) == ("pool-0", "")


def test_p27_devices_by_full_name_whole_capacity_and_no_finer_than_a_nano_unit() -> None:
    index = DeviceIndex(
        [
            resource_slice([charging_device("d", cpu="1")], driver="x.example.com"),
            resource_slice([charging_device("d", cpu="2")], driver="y.example.com"),
            resource_slice([charging_device("d", cpu="3")], driver="y.example.com", nodeName="node-2"),
        ]
    )
    found = index.find(DeviceRequestAllocationResult(driver="y.example.com", pool="p", device="d"), node())
    assert found is not None
    assert found.node_allocatable_resource_mappings["cpu"].allocation_multiplier == Quantity.parse("2")
    rule = {"capacityKey": f"{DRIVER}/cpu", "allocationMultiplier": "1u"}
    tiny = resource_slice([charging_device("d", capacity={f"{DRIVER}/cpu": "1500u"}, cpu=rule)]).spec.devices
    assert tiny is not None
    charges = compute_device_charges(
        DeviceRequestAllocationResult(driver=DRIVER, pool="p", device="d"), tiny[0]
    )
    assert isinstance(charges, tuple)
    assert charges[0].quantity == Quantity.parse("2n")  # 1.5n, rounded up


def test_p28_limits_follow_1_37_and_qos_and_quota_the_spec() -> None:
    fixture = LedgerFixture(
        resource_slice(
            [
                charging_device("m", cpu={"allocationMultiplier": "4", "accountingPolicy": "Max"}),
                charging_device(
                    "r", cpu={"allocationMultiplier": "1", "accountingPolicy": "AddPerReference"}
                ),
            ]
        ),
        claims=[claim("m", results=[result("m")]), claim("r", results=[result("r")])],
    )
    one = pod("p", container("a", "m", "r", cpu="3"), container("b", "r", cpu="2"))
    charged_claims = fixture.place(one)
    shares = compute_claim_shares(one, [charged_claim.charge for charged_claim in charged_claims])
    assert shares.pod["cpu"] == Quantity.parse("3")  # 4 - 3 by Max, 1 for each of two references
    assert shares.of("a")["cpu"] == Quantity.parse("2")
    assert qos_class(one.spec) == "Burstable"
    spec_only = usage_by_namespace([fixture.ledger], count_claims=False)["default"]
    everything = usage_by_namespace([fixture.ledger])["default"]
    assert str(spec_only["requests.cpu"]) == "5"
    assert str(everything["requests.cpu"]) == "8"


def test_p29_a_multiplier_counts_for_every_share_of_a_device() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", shared=True, cpu="2")]),
        claims=[claim("c", results=[result("d"), result("d"), result("d")])],
    )
    assert fixture.cost(pod("p", container("a", "c"))) == 6000


def test_p30_a_pod_keeps_the_charges_it_was_placed_with() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]), claims=[claim("c", results=[result("d")])]
    )
    one = pod("p", container("a", "c", cpu="1"))
    stored = write_charges(one, fixture.place(one), Form.V1_36).lossless(Form.V1_36)
    # The driver publishes another amount and the class another policy; the pod's status decides.
    fixture.ledger.update(stored)
    assert fixture.cpu == 5000
    restarted = NodeLedger(node())
    restarted.add(stored)
    assert restarted.requested["cpu"] == 5000
    changed: Pod = replace(stored, metadata=replace(stored.metadata, labels={"a": "b"}))
    fixture.ledger.update(changed)
    fixture.ledger.remove(changed)
    assert fixture.cpu == 0
