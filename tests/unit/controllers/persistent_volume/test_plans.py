"""Plans for claims and volumes: binding, waiting, provisioning, phases and reclaiming."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY
from plimsoll.client.event_recorder import EventRecord
from plimsoll.controllers.actions import ActionPlan, PatchAction
from plimsoll.controllers.persistent_volume.claim_plan import (
    STORAGE_PROVISIONER,
    ClaimContext,
    choose_volume,
    find_mismatch,
    plan_claim,
)
from plimsoll.controllers.persistent_volume.volume_plan import plan_volume
from tests.unit.controllers.persistent_volume.makers import claim, reference, storage_class, volume


def events(plan: ActionPlan) -> list[tuple[str, str]]:
    return [(each.type, each.reason) for each in plan.actions if isinstance(each, EventRecord)]


def patches(plan: ActionPlan) -> list[tuple[str, str, Any]]:
    return [
        (each.name, each.subresource, {k: v for k, v in each.patch.items() if k != "metadata"})
        for each in plan.actions
        if isinstance(each, PatchAction)
    ]


def chosen(wanted: Any, volumes: Any, *, delayed: bool = False) -> str | None:
    found = choose_volume(wanted, volumes, delayed=delayed)
    return None if found is None else found.metadata.name  # type: ignore[union-attr]


# -- claims


def test_the_smallest_volume_that_fits_is_chosen() -> None:
    volumes = [volume("big", "9Gi"), volume("fits", "2Gi"), volume("small", "1Mi")]
    assert chosen(claim(size="1Gi"), volumes) == "fits"


@pytest.mark.parametrize(
    "other",
    [
        volume(accessModes=["ReadOnlyMany"]),
        volume(volumeMode="Block"),
        volume(storageClassName="other"),
        volume(phase="Released"),
        volume(claimRef=reference("another")),
        volume(meta={"deletionTimestamp": "2025-01-01T00:00:00Z"}),
        volume(volumeAttributesClassName="gold"),
    ],
)
def test_other_volumes_are_not_chosen(other: Any) -> None:
    assert chosen(claim(), [other]) is None


def test_a_selector_chooses_by_labels() -> None:
    volumes = [volume("a"), volume("b", meta={"labels": {"disk": "fast"}})]
    assert chosen(claim(selector={"matchLabels": {"disk": "fast"}}), volumes) == "b"


def test_volumes_with_fewer_modes_come_first() -> None:
    both = volume("a", "1Gi", accessModes=["ReadWriteOnce", "ReadWriteMany"])
    assert chosen(claim(), [both, volume("b", "5Gi")]) == "b"


def test_a_volume_that_refers_to_the_claim_comes_first() -> None:
    mine = volume("mine", "9Gi", claimRef=reference("c", uid=""))
    assert chosen(claim(), [volume("a"), mine]) == "mine"
    assert chosen(claim(), [volume("a"), mine], delayed=True) == "mine"
    assert chosen(claim(), [volume("a")], delayed=True) is None


def test_binding_writes_the_volume_first_with_its_version() -> None:
    plan = plan_claim(claim(), ClaimContext(candidates=[volume()]))
    assert [(name, part) for name, part, _ in patches(plan)] == [
        ("v", ""), ("v", "status"), ("c", ""), ("c", "status"),
    ]  # fmt: skip
    first, second, third, fourth = (each for each in plan.actions if isinstance(each, PatchAction))
    assert first.patch["metadata"]["resourceVersion"] == third.patch["metadata"]["resourceVersion"] == "7"
    assert second.chained
    assert fourth.chained
    assert first.patch["spec"]["claimRef"]["uid"] == "uid-c"
    assert third.patch["metadata"]["annotations"] == {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
    assert fourth.patch["status"] == {
        "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
    }  # fmt: skip


def test_a_bound_claim_needs_nothing_more() -> None:
    bound = claim(volumeName="v", meta={"annotations": {BIND_COMPLETED: "yes"}})
    there = volume(phase="Bound", claimRef=reference())
    (_, _, status), *rest = patches(plan_claim(bound, ClaimContext(named=there)))
    assert status["status"]["phase"] == "Bound"
    assert rest == []


@pytest.mark.parametrize(
    ("context", "name", "reason"),
    [
        (ClaimContext(), "v", "ClaimLost"),
        (ClaimContext(), "", "ClaimLost"),
        (ClaimContext(named=volume(claimRef=reference("other"))), "v", "ClaimMisbound"),
    ],
)
def test_a_bound_claim_without_its_volume_is_lost(context: ClaimContext, name: str, reason: str) -> None:
    bound = claim(volumeName=name, meta={"annotations": {BIND_COMPLETED: "yes"}})
    plan = plan_claim(bound, context)
    assert events(plan) == [("Warning", reason)]
    assert patches(plan)[0][2]["status"]["phase"] == "Lost"


def test_a_claim_that_names_its_volume() -> None:
    named = claim(volumeName="v")
    assert plan_claim(named, ClaimContext()).actions == ()
    small = ClaimContext(named=volume(size="1Mi"))
    assert events(plan_claim(named, small)) == [("Warning", "VolumeMismatch")]
    taken = ClaimContext(named=volume(claimRef=reference("other")))
    assert events(plan_claim(named, taken)) == [("Warning", "FailedBinding")]
    assert patches(plan_claim(named, ClaimContext(named=volume())))[0][0] == "v"


def test_mismatches_are_named() -> None:
    assert find_mismatch(volume(size="1Mi"), claim()) == "requested PV is too small"
    assert find_mismatch(volume(storageClassName="x"), claim()) == "storageClassName does not match"
    assert find_mismatch(volume(volumeMode="Block"), claim()) == "incompatible volumeMode"
    assert find_mismatch(volume(accessModes=["ReadOnlyMany"]), claim()) == "incompatible accessMode"
    assert find_mismatch(volume(), claim()) == ""


def test_a_claim_without_a_class_gets_the_default_class() -> None:
    plan = plan_claim(claim(), ClaimContext(default_class=storage_class("std")))
    assert patches(plan) == [("c", "", {"spec": {"storageClassName": "std"}})]
    assert events(plan_claim(claim(), ClaimContext())) == [("Normal", "FailedBinding")]


def test_a_claim_waits_for_its_first_consumer() -> None:
    wanted, waiting = claim(storageClassName="s"), storage_class(mode="WaitForFirstConsumer")
    assert events(plan_claim(wanted, ClaimContext(storage_class=waiting))) == [
        ("Normal", "WaitForFirstConsumer")
    ]
    plan = plan_claim(wanted, ClaimContext(storage_class=waiting, waiting_pods=["b", "a"]))
    (event,) = plan.actions
    assert isinstance(event, EventRecord)
    assert (event.reason, event.message) == ("WaitForPodScheduled", "waiting for pods a,b to be scheduled")


def test_a_provisioner_is_asked_by_annotation() -> None:
    wanted = claim(storageClassName="s")
    plan = plan_claim(wanted, ClaimContext(storage_class=storage_class()))
    assert events(plan) == [("Normal", "ExternalProvisioning")]
    (patch,) = (each for each in plan.actions if isinstance(each, PatchAction))
    assert patch.patch["metadata"]["annotations"][STORAGE_PROVISIONER] == "p.example.com"
    for given in (None, storage_class(provisioner="kubernetes.io/no-provisioner")):
        refused = plan_claim(wanted, ClaimContext(storage_class=given))
        assert events(refused) == [("Warning", "ProvisioningFailed")]


# -- volumes


def test_phases_of_volumes() -> None:
    def phase(*arguments: Any) -> str:
        return str(patches(plan_volume(*arguments))[0][2]["status"]["phase"])

    assert phase(volume(phase="Pending"), None) == "Available"
    assert phase(volume(phase="Pending", claimRef=reference(uid="")), None) == "Available"
    mine = volume(phase="Pending", claimRef=reference())
    assert phase(mine, claim(volumeName="v")) == "Bound"
    assert phase(mine, None) == "Released"
    assert plan_volume(mine, claim()).actions == ()  # the claim's plan completes the binding


def test_a_volume_is_released_when_its_claim_was_replaced() -> None:
    plan = plan_volume(volume(phase="Bound", claimRef=reference(uid="old")), claim(volumeName="v"))
    assert patches(plan)[0][2]["status"]["phase"] == "Released"


@pytest.mark.parametrize("by_controller", [True, False])
def test_a_volume_whose_claim_has_another_is_available_again(by_controller: bool) -> None:
    annotations = {BOUND_BY_CONTROLLER: "yes"} if by_controller else {}
    plan = plan_volume(
        volume(phase="Bound", claimRef=reference(), meta={"annotations": annotations}), claim(volumeName="w")
    )
    removed = patches(plan)[0][2]["spec"]["claimRef"]
    assert removed is None if by_controller else removed == {"uid": None, "resourceVersion": None}
    assert patches(plan)[1][2]["status"]["phase"] == "Available"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("Delete", "VolumeFailedDelete"),
        ("Recycle", "VolumeFailedRecycle"),
        ("Odd", "VolumeUnknownReclaimPolicy"),
    ],
)
def test_static_volumes_are_not_deleted_or_recycled(policy: str, reason: str) -> None:
    plan = plan_volume(volume(claimRef=reference(), persistentVolumeReclaimPolicy=policy), None)
    assert patches(plan)[0][2]["status"]["phase"] == "Failed"
    assert events(plan) == [("Warning", reason)]


def test_provisioned_volumes_are_left_to_their_provisioner() -> None:
    meta = {"annotations": {PROVISIONED_BY: "p.example.com"}}
    fields: Any = {"claimRef": reference(), "persistentVolumeReclaimPolicy": "Delete", "meta": meta}
    assert patches(plan_volume(volume(**fields), None))[0][2]["status"]["phase"] == "Released"
    surplus = plan_volume(volume(**fields), claim(volumeName="w"))
    assert patches(surplus)[0][2]["status"]["phase"] == "Released"


def test_a_volume_of_another_mode_is_reported_on_both() -> None:
    plan = plan_volume(volume(volumeMode="Block", claimRef=reference()), claim())
    assert events(plan) == [("Warning", "VolumeMismatch")] * 2
