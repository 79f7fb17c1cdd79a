"""Use cases that end better here than in kube-scheduler 1.36."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ExpectedPod:
    """Expected result of a pod: its node, or part of its message; the charges of its claims."""

    node: str | None = None
    message: str = ""
    charges: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class ExpectedDifference:
    """Use case that ends better here; `row` is the test named in docs/compat.md."""

    row: str
    pods: dict[str, ExpectedPod] = field(default_factory=dict)
    #: What else differs because of it.
    others: frozenset[str] = frozenset()


def _charge(claim: str, cpu: str, container: str = "") -> dict[str, Any]:
    containers = {"containers": [container]} if container else {}
    return {"resourceClaimName": claim, **containers, "resources": {"cpu": cpu}}


def _clash() -> dict[str, ExpectedPod]:
    """Of 20 claims of each driver, those of driver A are charged 1 cpu and those of driver B 2."""
    return {
        f"{driver}{number}": ExpectedPod("n-pn2", charges=(_charge(f"{driver}{number}-c-*", cpu, "x"),))
        for driver, cpu in (("a", "1"), ("b", "2"))
        for number in range(20)
    }


NONE = ExpectedDifference("")


DEPARTURES = {
    # The capacity of a device that is not shared is charged in full; upstream ends in an error, for ever.
    "partitionable-capacitykey": ExpectedDifference(
        "test_an_exclusive_device_charges_its_whole_capacity",
        {"p": ExpectedPod("n-pc", charges=(_charge("p-c-*", "8", "a"),))},
    ),
    # A claim that no container refers to is charged once; upstream refuses the pod.
    "unreferenced-claim": ExpectedDifference(
        "test_an_unreferenced_claim_is_charged_once",
        {"unref": ExpectedPod("n-ur", charges=(_charge("unref-c-*", "4"),))},
    ),
    # 3 + 6 do not fit on 8 cpu, also if the 6 were allocated before; the next pod with 4 does.
    "preallocated-claim": ExpectedDifference(
        "test_a_claim_allocated_before_is_charged",
        {"p": ExpectedPod(message="0/1 nodes are available: 1 Insufficient cpu.")},
    ),
    # Each driver's devices are charged by their own mapping, whatever their pools are called.
    "pool-name-clash-many": ExpectedDifference(
        "test_a_device_is_found_by_driver_pool_and_name",
        _clash(),
        others=frozenset({"charged_cpu_by_driver"}),
    ),
    # The pod that had others preempted is bound as soon as they are gone; upstream: minutes later.
    "preemption": ExpectedDifference(
        "test_deleting_a_pod_without_claims_wakes_pods_that_need_devices",
        {"high-dra": ExpectedPod("n-pr", charges=(_charge("high-dra-c-*", "6", "a"),))},
    ),
    "preemption-dra": ExpectedDifference(
        "test_deleting_a_pod_without_claims_wakes_pods_that_need_devices", others=frozenset({"soon"})
    ),
    "wakeup-plain-pod-deleted": ExpectedDifference(
        "test_deleting_a_pod_without_claims_wakes_pods_that_need_devices", others=frozenset({"soon"})
    ),
    # A pod whose claim is missing says so; upstream leaves it without a word.
    "no-capacity-in-slice": ExpectedDifference(
        "test_a_missing_claim_is_reported_on_the_pod", {"missing-claim": ExpectedPod(message='"nope"')}
    ),
    # A device with admin access charges nothing; upstream charges it like any other.
    "admin-access": ExpectedDifference("test_admin_access_charges_nothing", {"adm": ExpectedPod("n-aa")}),
    # A mapping to pods is rejected; upstream accepts it.
    "validation": ExpectedDifference(
        "test_pods_cannot_be_mapped",
        others=frozenset({"create ResourceSlice/v-pods-key", "accepted pods-key"}),
    ),
}
