"""Check of a history state by state: short violations are found, too."""

from __future__ import annotations

import copy

from tests.chaos.sample_cluster import find_claim, healthy
from tests.chaos.scheduler_faults.history import CLAIMS, PODS, Change, replay
from tests.chaos.scheduler_faults.invariants import Rule
from tests.chaos.scheduler_faults.objects import ClusterObjects, Tree


def _begin(objects: ClusterObjects) -> list[Change]:
    trees = [(CLAIMS, tree) for tree in objects.claims] + [(PODS, tree) for tree in objects.pods]
    return [Change(number, kind, tree) for number, (kind, tree) in enumerate(trees, 1)]


def _released(claim: Tree) -> Tree:
    return {**claim, "status": {}}


def test_a_device_may_move_between_claims() -> None:
    objects = healthy()
    claim = find_claim(objects, "cores")
    other = copy.deepcopy(claim)
    other["metadata"]["name"] = "other"
    changes = _begin(objects)
    finished = copy.deepcopy(objects.pods[3])
    finished["status"]["phase"] = "Succeeded"
    changes += [
        Change(50, PODS, finished),
        Change(51, CLAIMS, _released(claim)),
        Change(52, CLAIMS, other),
        Change(53, CLAIMS, other, deleted=True),
        Change(54, CLAIMS, claim),
    ]
    assert replay(changes, objects) == []


def test_two_simultaneous_holders_are_found_in_any_order_of_events() -> None:
    objects = healthy()
    other = copy.deepcopy(find_claim(objects, "cores"))
    other["metadata"]["name"] = "other"
    changes = [Change(52, CLAIMS, _released(other)), *_begin(objects), Change(50, CLAIMS, other)]
    (finding,) = replay(changes, objects)
    assert finding.violation.rule is Rule.DEVICE_ALLOCATED_TWICE
    assert (finding.first, finding.last) == (50, 52)


def test_pods_and_claims_are_checked_together() -> None:
    objects = healthy()
    claim = find_claim(objects, "half-a")
    changes = [*_begin(objects), Change(50, CLAIMS, _released(claim)), Change(51, CLAIMS, claim)]
    found = replay(changes, objects)
    assert {finding.violation.rule for finding in found} == {
        Rule.CLAIM_NOT_ALLOCATED,
        Rule.CLAIM_NOT_RESERVED,
    }
    assert all((finding.first, finding.last) == (50, 51) for finding in found)
    # Once the pod is gone the same release is as it should be.
    gone = Change(49, PODS, objects.pods[1], deleted=True)
    assert replay([*changes, gone], objects) == []


def test_a_violation_that_lasts_is_reported_as_permanent() -> None:
    objects = healthy()
    pod = copy.deepcopy(objects.pods[0])
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    (finding,) = replay([*_begin(objects), Change(50, PODS, pod)], objects)
    assert finding.violation.rule is Rule.NODE_OVERCOMMITTED
    assert finding.last is None
    assert "to the end" in str(finding)
