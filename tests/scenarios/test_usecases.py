"""Recorded use cases of a real cluster end here in the same state, or in a better one as docs/compat.md
explains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plimsoll.up.local_cluster import LocalCluster
from tests.scenarios.usecases import USE_CASES, Difference, UseCase, UseCaseRun

COMPAT = Path(__file__).parents[2] / "docs" / "compat.md"
NAMES = (
    sorted(directory.name for directory in USE_CASES.iterdir() if directory.is_dir())
    if USE_CASES.is_dir()
    else []
)


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
}


@pytest.mark.skipif(not NAMES, reason="the stories are not here: they lie in ../shared/usecases")
@pytest.mark.parametrize("name", NAMES)
def test_use_case(name: str) -> None:
    with LocalCluster(scheduler=True) as cluster:
        use_case = UseCase(USE_CASES / name)
        departure = DEPARTURES.get(name, NONE)
        found = UseCaseRun(
            use_case, cluster, {pod: bool(end.node) for pod, end in departure.pods.items()}
        ).execute()
    left = [each for each in found if not _is_covered(each, departure)]
    assert not left, "\n".join(_describe(each) for each in left)
    _check_outcomes(found, departure)


def _is_covered(found: Difference, departure: ExpectedDifference) -> bool:
    """Return whether a difference concerns a pod that is expected to differ, its claims or its events."""
    where = re.sub(r"^\d+ ", "", found.where)
    pods = departure.pods
    return (
        where in departure.others
        or where.removeprefix("wait ").removeprefix("pods/").removeprefix("events/Pod/") in pods
        or any(where.startswith(f"resourceclaims/{pod}-") for pod in pods)
        or (where.startswith("resourceclaims/") and where.removeprefix("resourceclaims/") in _NAMED)
    )


_NAMED = {"pre"}  #: claims with names of their own


def _check_outcomes(found: list[Difference], departure: ExpectedDifference) -> None:
    seen = {re.sub(r"^\d+ ", "", each.where): each.ours for each in found}
    assert not departure.pods or any(f"wait {pod}" in seen for pod in departure.pods)
    for pod, wanted in departure.pods.items():
        ours = seen.get(f"wait {pod}")
        if ours is None:
            continue  # upstream got this one right, by chance
        assert ours["nodeName"] == wanted.node
        assert wanted.message in (ours["PodScheduled"].get("message") or "")
        assert tuple(ours["nodeAllocatableResourceClaimStatuses"] or ()) == wanted.charges
    assert departure.others <= seen.keys()


def _describe(found: Difference) -> str:
    return f"{found.where}\n  theirs {found.theirs}\n  ours   {found.ours}"


def test_every_difference_has_a_row_in_the_documentation() -> None:
    text = COMPAT.read_text()
    missing = {each.row for each in DEPARTURES.values() if not re.search(rf"\b{each.row}\b", text)}
    assert not missing
