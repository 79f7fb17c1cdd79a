"""Recovery after a restart: kept and released state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.codec import convert
from plimsoll.api.resource import ResourceClaimConsumerReference
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.binding.recovery import find_releasable_claim, plan_recovery
from plimsoll.scheduler.devices.exact import DeviceMessage
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError
from tests.build import claim, exactly, pod

RESULT = {"request": "r", "driver": "d", "pool": "n", "device": "x"}
CHARGES = {
    "nodeAllocatableResourceClaimStatuses": [
        {"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "1"}}
    ]
}


def test_devices_of_a_pending_pod_stay_reserved() -> None:
    waiting = pod("p", claims=["c"], status=CHARGES)
    held = claim("c", exactly(), results=[RESULT], reserved=["p"])
    found = plan_recovery([held], [waiting])
    assert found.kept == ((held, waiting),)
    assert (found.released, found.uncharged) == ((), ())


def test_devices_of_a_pod_that_is_gone_are_released() -> None:
    held = claim("c", exactly(), results=[RESULT], reserved=["p"])
    again = pod("p", claims=["c"], uid="another")
    for pods in ([], [again], [pod("p", claims=["c"], status={"phase": "Failed"})]):
        (leftover,) = plan_recovery([held], pods).released
        assert leftover.deallocate
        assert [each.uid for each in leftover.consumers] == ["uid-p"]


def test_a_claim_stays_reserved_for_its_other_pods() -> None:
    held = claim("c", exactly(), results=[RESULT], reserved=["p", "q"])
    (leftover,) = plan_recovery([held], [pod("q", node="n")]).released
    assert not leftover.deallocate
    assert [each.uid for each in leftover.consumers] == ["uid-p"]


def test_consumers_that_are_not_pods_are_kept() -> None:
    held = claim("c", exactly(), results=[RESULT], reserved=["p"])
    group = convert(
        {"apiGroup": "x.io", "resource": "pods", "name": "p", "uid": "u"}, ResourceClaimConsumerReference
    )
    held = replace(held, status=replace(held.status, reserved_for=(group,)))
    assert plan_recovery([held], []).released == ()


def test_charges_without_devices_are_cleared() -> None:
    waiting = pod("p", claims=["c"], status=CHARGES)
    for held in (claim("c", exactly()), claim("c", exactly(), results=[RESULT], reserved=["q"])):
        assert plan_recovery([held], [waiting, pod("q")]).uncharged == (waiting,)
    bound = pod("p", node="n", claims=["c"], status=CHARGES)
    assert plan_recovery([claim("c", exactly())], [bound]).uncharged == ()


@given(
    st.lists(st.tuples(st.booleans(), st.sets(st.sampled_from("pqr"))), max_size=4),
    st.dictionaries(st.sampled_from("pqr"), st.booleans()),
)
def test_claims_in_use_are_never_released(
    claim_states: list[tuple[bool, set[str]]], there: dict[str, bool]
) -> None:
    pods = [pod(name, node="n" if bound else "") for name, bound in there.items()]
    claims = [
        claim(f"c{row}", exactly(), results=[RESULT] if allocated else [], reserved=sorted(users))
        for row, (allocated, users) in enumerate(claim_states)
    ]
    found = plan_recovery(claims, pods)
    for leftover in found.released:
        assert all(each.name not in there for each in leftover.consumers)
        assert leftover.deallocate == all(
            each.name not in there for each in leftover.claim.status.reserved_for
        )
    kept = {(held.metadata.name, each.metadata.name) for held, each in found.kept}
    assert kept == {
        (f"c{row}", name)
        for row, (allocated, users) in enumerate(claim_states)
        if allocated
        for name in users
        if name in there and not there[name]
    }


# -- a claim that stands in the way


ELSEWHERE = NodeReason(Rule.DEVICES, DeviceMessage.CLAIM_ELSEWHERE, VerdictCode.UNRESOLVABLE)
OTHER = NodeReason(Rule.DEVICES, DeviceMessage.CANNOT_ALLOCATE, VerdictCode.UNSCHEDULABLE)


def test_an_unused_claim_of_another_node_is_deallocated() -> None:
    mine = pod("p", claims=["c"])
    for users, wanted in (([], True), (["p"], True), (["q"], False), (["p", "q"], False)):
        held = claim("c", exactly(), results=[RESULT], reserved=users)
        pod_info = PodInfo(mine, (held,), PodResourcesOptions())
        assert (find_releasable_claim(FitError(pod_info, 2, ((ELSEWHERE, 2),))) is held) is wanted


def test_an_unschedulable_pod_releases_its_reservations() -> None:
    """Its binding was interrupted, and now it does not fit; what it has not reserved stays as it is."""
    mine = pod("p", claims=["c"])
    for users, wanted in (([], False), (["p"], True), (["q"], False), (["p", "q"], False)):
        held = claim("c", exactly(), results=[RESULT], reserved=users)
        pod_info = PodInfo(mine, (held,), PodResourcesOptions())
        assert (find_releasable_claim(FitError(pod_info, 2, ((OTHER, 2),))) is held) is wanted
