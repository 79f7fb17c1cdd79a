"""Claims in the status of pods, and in-place resize."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import GONE, edit, field_errors, pod, run, running_pod, stored

MADE = "train-cpus-x7k2p"
ENTRY = {"resourceClaimName": "two-gpus", "containers": ["main"], "resources": {"cpu": "4"}}
CHARGES = "status.nodeAllocatableResourceClaimStatuses"
NATIVE = "status.nativeResourceClaimStatus"


def _status(changes: dict[str, Any], old: Any | None = None, **options: Any) -> list[str]:
    old = running_pod() if old is None else old
    return field_errors(edit(old, changes), old, "status", **options)


@pytest.mark.parametrize(
    ("statuses", "errors"),
    [
        ([{"name": "cpus", "resourceClaimName": MADE}, {"name": "gpus"}], []),
        ([{"name": "none"}], ["[0].name Invalid"]),
        ([{}], ["[0].name Invalid"]),
        ([{"name": "cpus"}] * 2, ["[1].name Duplicate"]),
        ([{"name": "cpus", "resourceClaimName": ""}], ["[0].resourceClaimName Invalid"]),
        ([{"name": "none"}] * 2, ["[0].name Invalid", "[1].name Duplicate", "[1].name Invalid"]),
    ],
)
def test_claim_statuses(statuses: list[Any], errors: list[str]) -> None:
    found_problems = _status({"status.resourceClaimStatuses": statuses})
    assert found_problems == [f"status.resourceClaimStatuses{error}" for error in errors]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"resourceClaimName": MADE}, []),
        ({"resourceClaimName": ""}, [".resourceClaimName Invalid", ".resourceClaimName Required"]),
        ({"resourceClaimName": "cpus"}, [".resourceClaimName Invalid"]),  # the name inside the pod
        ({"resources": {}}, [".resources Required"]),
        ({"resources": {"example.com/x": "1"}}, [".resources[example.com/x] Invalid"]),
        ({"resources": {"cpu": "-1"}}, [".resources[cpu] Invalid"]),
        ({"resources": {"cpu": None, "foo": "0"}}, []),
    ],
)
def test_charges(changes: dict[str, Any], errors: list[str]) -> None:
    entry = {**ENTRY, **changes}
    assert _status({CHARGES: [entry]}) == [f"{CHARGES}[0]{error}" for error in errors]


def test_containers_of_a_charge_are_optional_and_unique() -> None:
    """KEP-5517 charges claims that no container refers to."""
    for field, entry in ((CHARGES, ENTRY), (NATIVE, DRAFT)):
        assert _status({field: [{**entry, "containers": []}]}) == []
        twice = {**entry, "containers": ["main", "main"]}
        assert _status({field: [twice]}) == [f"{field}[0].containers[1] Duplicate"]


def test_a_claim_may_be_charged_twice_in_the_older_form() -> None:
    assert _status({CHARGES: [ENTRY, ENTRY]}) == []


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"accountingPolicies": {"cpu": "Max"}, "drawn": {"cpu": "1"}}, []),
        ({"accountingPolicies": {"cpu": "Min"}}, [".accountingPolicies[cpu] NotSupported"]),
        ({"accountingPolicies": {"memory": "Max"}}, [".accountingPolicies[memory] Invalid"]),
        ({"drawn": {"cpu": "-1"}}, [".drawn[cpu] Invalid"]),
        ({"drawn": {"memory": "1"}}, [".drawn[memory] Invalid"]),
    ],
)
def test_accounting_policies_of_charges(changes: dict[str, Any], errors: list[str]) -> None:
    entry = {**ENTRY, **changes}
    assert _status({CHARGES: [entry]}) == [f"{CHARGES}[0]{error}" for error in errors]


@pytest.mark.parametrize(
    ("entry", "errors"),
    [
        ({"mapping": [{"name": "cpu", "quantity": "4", "accountingPolicy": "Max", "drawn": "1"}]}, []),
        ({"overhead": [{"name": "memory", "perPod": "1Gi"}], "containers": ["main"]}, []),
        ({"mapping": [{"name": "cpu"}]}, [".mapping[0].quantity Required"]),
        (
            {"mapping": [{"name": "cpu", "quantity": "-1", "drawn": "-1"}]},
            [".mapping[0].drawn Invalid", ".mapping[0].quantity Invalid"],
        ),
        ({"mapping": [{"name": "cpu", "quantity": "1"}] * 2}, [".mapping[1].name Duplicate"]),
        ({"mapping": [{"name": "ephemeral-storage", "quantity": "1"}]}, [".mapping[0].name Invalid"]),
        (
            {"mapping": [{"name": "cpu", "quantity": "1", "accountingPolicy": "x"}]},
            [".mapping[0].accountingPolicy NotSupported"],
        ),
        ({"overhead": [{"name": "cpu"}]}, [".overhead[0] Required"]),
        (
            {"overhead": [{"name": "cpu", "perPod": "-1", "perContainer": "-1"}]},
            [".overhead[0].perContainer Invalid", ".overhead[0].perPod Invalid"],
        ),
        ({"overhead": [{"name": "cpu", "perPod": "1"}] * 2}, [".overhead[1].name Duplicate"]),
        ({"overhead": [{"name": "x", "perPod": "1"}]}, [".overhead[0].name Invalid"]),
        (
            {"mapping": [{"name": "cpu", "quantity": "1"}], "containers": ["a", "a"]},
            [".containers[1] Duplicate"],
        ),
    ],
)
def test_newer_form_of_charges(entry: dict[str, Any], errors: list[str]) -> None:
    given = {"resourceClaimName": "two-gpus", **entry}
    assert _status({CHARGES: [given]}) == [f"{CHARGES}[0]{error}" for error in errors]


def test_newer_charges_are_unique_by_claim() -> None:
    entry = {"resourceClaimName": "two-gpus", "mapping": [{"name": "cpu", "quantity": "1"}]}
    assert _status({CHARGES: [entry, entry]}) == [f"{CHARGES}[1].resourceClaimName Duplicate"]


DRAFT = {
    "claimInfo": {"name": "two-gpus"},
    "containers": ["main"],
    "resources": [{"resourceName": "cpu", "quantity": "4", "accountingPolicy": "ConsumeFrom", "drawn": "1"}],
}


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"claimInfo": {}}, [".claimInfo.name Invalid", ".claimInfo.name Required"]),
        ({"resources": []}, [".resources Required"]),
        (
            {"resources": [{"resourceName": "a.io/x", "quantity": "1"}]},
            [".resources[0].resourceName Invalid"],
        ),
        ({"resources": [{"resourceName": "cpu"}]}, [".resources[0].quantity Required"]),
        ({"resources": [{"resourceName": "cpu", "quantity": "-1"}]}, [".resources[0].quantity Invalid"]),
        (
            {"resources": [{"resourceName": "cpu", "quantity": "1"}] * 2},
            [".resources[1].resourceName Duplicate"],
        ),
        (
            {"resources": [{"resourceName": "cpu", "quantity": "1", "accountingPolicy": "x"}]},
            [".resources[0].accountingPolicy NotSupported"],
        ),
    ],
)
def test_draft_form_of_charges(changes: dict[str, Any], errors: list[str]) -> None:
    assert _status({NATIVE: [{**DRAFT, **changes}]}) == [f"{NATIVE}[0]{error}" for error in errors]


def test_charges_use_one_form() -> None:
    assert _status({NATIVE: [DRAFT, DRAFT]}) == [f"{NATIVE}[1].claimInfo.name Duplicate"]
    assert _status({NATIVE: [DRAFT], CHARGES: [ENTRY]}) == [f"{NATIVE} Invalid"]
    mixed = {**ENTRY, "mapping": [{"name": "cpu", "quantity": "1"}], "drawn": {"cpu": "1"}}
    assert _status({CHARGES: [mixed]}) == [
        f"{CHARGES}[0].drawn Forbidden",
        f"{CHARGES}[0].resources Forbidden",
    ]


MAPPING = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r0"}


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ({"requestMappings": [MAPPING], "resourceClaimName": "x"}, []),
        ({}, [".requestMappings Required", ".resourceClaimName Required"]),
        ({"requestMappings": [MAPPING], "resourceClaimName": "A"}, [".resourceClaimName Invalid"]),
        (
            {"requestMappings": [{**MAPPING, "containerName": "none"}], "resourceClaimName": "x"},
            [".requestMappings[0].containerName Invalid"],
        ),
        (
            {"requestMappings": [{**MAPPING, "resourceName": "example.com/x"}], "resourceClaimName": "x"},
            [".requestMappings[0].resourceName Invalid"],
        ),
        (
            {"requestMappings": [{**MAPPING, "requestName": "R"}], "resourceClaimName": "x"},
            [".requestName Invalid"],
        ),
        (
            {"requestMappings": [MAPPING, MAPPING], "resourceClaimName": "x"},
            [
                f".requestMappings[1].{name} Duplicate"
                for name in ("containerName", "requestName", "resourceName")
            ],
        ),
    ],
)
def test_extended_resources(status: dict[str, Any], errors: list[str]) -> None:
    at = "status.extendedResourceClaimStatus"
    assert _status({at: status}) == [f"{at}{error}" for error in errors]


def test_a_status_write_cannot_touch_the_spec() -> None:
    owners = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}]
    old = edit(running_pod(), {"metadata.ownerReferences": owners})
    tree = edit(old, {"spec.resourceClaims": [], "metadata.ownerReferences": [], "status.qosClass": ""})
    prepared = run(tree, old, "status")
    assert prepared.errors == ()
    assert prepared.tree["spec"] == old["spec"]
    assert prepared.tree["metadata"]["ownerReferences"] == owners
    assert prepared.tree["status"]["qosClass"] == "Burstable"


# -- QoS class


def _claiming_pod() -> dict[str, Any]:
    """Return a pod that gets everything from its claims."""
    tree = edit(running_pod(), {"spec.initContainers": [], "status.resourceClaimStatuses": []})
    claims = tree["spec"]["containers"][0]["resources"]["claims"]
    return edit(
        tree,
        {"spec.containers.0.resources": {"claims": claims}, "status.qosClass": "BestEffort", CHARGES: []},
    )


QOS = {"DRANodeAllocatableResourcesQoS": True}


def test_the_class_follows_the_charges() -> None:
    old = _claiming_pod()
    charged = run(edit(old, {CHARGES: [ENTRY]}), old, "status", gates=QOS)
    assert charged.errors == ()
    assert charged.tree["status"]["qosClass"] == "Burstable"
    cleared = run(edit(charged.tree, {CHARGES: []}), charged.tree, "status", gates=QOS)
    assert (cleared.errors, cleared.tree["status"]["qosClass"]) == ((), "BestEffort")
    kept = run(edit(charged.tree, {"status.phase": "Running"}), charged.tree, "status", gates=QOS)
    assert (kept.errors, kept.tree["status"]["qosClass"]) == ((), "Burstable")


def test_clients_do_not_change_the_class() -> None:
    old = _claiming_pod()
    wrong = {CHARGES: [ENTRY], "status.qosClass": "Guaranteed"}
    assert _status(wrong, old, gates=QOS) == ["status.qosClass Invalid"]
    charged = run(edit(old, {CHARGES: [ENTRY]}), old, "status", gates=QOS).tree
    assert _status({"status.qosClass": "BestEffort"}, charged, gates=QOS) == ["status.qosClass Invalid"]


def test_the_class_does_not_follow_the_charges_without_its_gate() -> None:
    old = _claiming_pod()
    written = run(edit(old, {CHARGES: [ENTRY]}), old, "status")
    assert (written.errors, written.tree["status"]["qosClass"]) == ((), "BestEffort")


# -- resize


def _plain_pod() -> dict[str, Any]:
    """Return a running pod without claims, which can be resized."""
    tree = edit(
        running_pod(),
        {"spec.resourceClaims": [], "spec.initContainers": [], "status.resourceClaimStatuses": []},
    )
    return edit(tree, {"spec.containers.0.resources": {"requests": {"cpu": "1", "memory": "1Gi"}}})


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"requests": {"cpu": "2", "memory": "1Gi"}}, []),
        ({"requests": {"cpu": "1", "memory": "1024Mi"}, "limits": {"cpu": "3"}}, []),
        ({"requests": {"cpu": "1"}}, ["spec.containers[0].resources.requests Forbidden"]),
        (
            {"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1"}},
            ["spec Forbidden"],
        ),
        (
            {"requests": {}},
            ["spec Invalid", "spec.containers[0].resources.requests Forbidden"],
        ),
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            ["spec Invalid"],
        ),
    ],
)
def test_resize(changes: dict[str, Any], errors: list[str]) -> None:
    old = _plain_pod()
    new = edit(old, {f"spec.containers.0.resources.{name}": value for name, value in changes.items()})
    assert field_errors(new, old, "resize") == errors


def test_resize_takes_nothing_but_resources() -> None:
    old = _plain_pod()
    new = edit(
        old,
        {
            "spec.containers.0.image": "other",
            "spec.containers.0.resources.requests.cpu": "2",
            "spec.nodeName": "n",
            "metadata.labels": {"a": "b"},
            "status": {},
        },
    )
    prepared = run(new, old, "resize")
    assert prepared.errors == ()
    wanted = edit(old, {"spec.containers.0.resources.requests.cpu": "2", "metadata.generation": 2})
    assert prepared.tree == wanted


def test_resize_keeps_the_containers() -> None:
    old = _plain_pod()
    renamed = edit(old, {"spec.containers.0.name": "other"})
    assert field_errors(renamed, old, "resize") == ["spec.containers[0].name Forbidden"]
    more = edit(old, {"spec.containers": [*old["spec"]["containers"], {"name": "b", "image": "img"}]})
    assert field_errors(more, old, "resize") == ["spec.containers Forbidden"]


def test_charged_pods_cannot_be_resized() -> None:
    for field, entry in (
        ("nodeAllocatableResourceClaimStatuses", ENTRY),
        ("nativeResourceClaimStatus", DRAFT),
    ):
        old = edit(_plain_pod(), {f"status.{field}": [entry]})
        assert field_errors(old, old, "resize") == ["spec Forbidden"]
        off = {"DRANodeAllocatableResources": False}
        assert field_errors(old, old, "resize", gates=off) == ["spec Forbidden"]


def test_containers_with_claims_cannot_be_resized() -> None:
    claims = {
        "spec.resourceClaims": [{"name": "gpus", "resourceClaimName": "x"}],
        "spec.containers.0.resources.claims": [{"name": "gpus"}],
    }
    old = edit(_plain_pod(), claims)
    assert field_errors(old, old, "resize") == ["spec Forbidden"]
    # Claims that only the request has are not compared, as in Kubernetes 1.36.4.
    without = edit(old, {"spec.containers.0.resources.claims": GONE})
    assert field_errors(old, without, "resize") == []


NEW_ENTRY = {"resourceClaimName": "x", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": "4"}]}


def _charged_pod(**changes: Any) -> dict[str, Any]:
    """Return a pod whose claim charges it in the 1.37 form."""
    claimed = edit(
        _plain_pod(),
        {
            "spec.resourceClaims": [{"name": "cpus", "resourceClaimName": "x"}],
            "spec.containers.0.resources.claims": [{"name": "cpus"}],
            CHARGES: [NEW_ENTRY],
        },
    )
    return edit(claimed, {key.replace("__", "."): value for key, value in changes.items()})


def test_pods_with_charges_of_137_are_resized_with_their_claims() -> None:
    old = _charged_pod()
    more = {"spec.containers.0.resources.requests.cpu": "2"}
    assert field_errors(edit(old, more), old, "resize") == []
    # What is no resource stays as it was, claims included.
    other = edit(old, {**more, "spec.containers.0.resources.claims": [{"name": "cpus", "request": "r"}]})
    assert field_errors(other, old, "resize") == ["spec Forbidden"]
    # An entry of the older form beside it stops a resize as before.
    mixed = edit(old, {CHARGES: [NEW_ENTRY, {**ENTRY, "resourceClaimName": "y"}]})
    assert set(field_errors(edit(mixed, more), mixed, "resize")) == {"spec Forbidden"}


def test_a_resize_must_leave_room_for_claims_in_the_budget() -> None:
    old = _charged_pod(spec__resources={"requests": {"cpu": "5", "memory": "1Gi"}})
    wider = {"spec.resources.requests.cpu": "6", "spec.containers.0.resources.requests.cpu": "2"}
    assert field_errors(edit(old, wider), old, "resize") == []
    # 2 of the container and 4 of its claim are more than 5.
    tight = edit(old, {"spec.containers.0.resources.requests.cpu": "2"})
    prepared = run(tight, old, "resize")
    assert [str(error.field) for error in prepared.errors] == ["spec.resources"]
    assert "pod level request for cpu is insufficient" in prepared.errors[0].detail
    off = {"DRANodeAllocatableResources": False}
    assert field_errors(tight, old, "resize", gates=off) == []


def test_resize_of_init_containers() -> None:
    init = {"name": "init", "image": "img", "resources": {"requests": {"cpu": "1"}}}
    old = edit(_plain_pod(), {"spec.initContainers": [init]})
    more = {"spec.initContainers.0.resources.requests.cpu": "2"}
    assert field_errors(edit(old, more), old, "resize") == []
    stubborn = edit(
        old,
        {
            "spec.initContainers.0.resizePolicy": [
                {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
            ]
        },
    )
    assert field_errors(edit(stubborn, more), stubborn, "resize") == ["spec.initContainers[0] Forbidden"]
    sidecar = edit(old, {"spec.initContainers.0.restartPolicy": "Always"})
    assert field_errors(edit(sidecar, more), sidecar, "resize") == []
    storage = {"spec.initContainers.0.resources.requests.ephemeral-storage": "2"}
    assert field_errors(edit(sidecar, storage), sidecar, "resize") == ["spec.initContainers[0] Forbidden"]
    none: dict[str, Any] = {"spec.initContainers.0.resources.requests": {}}
    assert field_errors(edit(sidecar, none), sidecar, "resize") == [
        "spec.initContainers[0].resources.requests Forbidden"
    ]


def test_resize_of_pod_level_resources() -> None:
    old = edit(_plain_pod(), {"spec.resources": {"requests": {"cpu": "2"}}})
    more = edit(old, {"spec.resources.requests.cpu": "3"})
    assert field_errors(more, old, "resize") == []
    assert run(more, old, "resize").tree["spec"]["resources"] == {"requests": {"cpu": "3"}}
    off = {"InPlacePodLevelResourcesVerticalScaling": False}
    assert field_errors(more, old, "resize", gates=off) == ["[] Forbidden"]
    pages = {"cpu": "2", "hugepages-2Mi": "2Mi"}
    huge = edit(old, {"spec.resources": {"requests": pages, "limits": pages}})
    assert field_errors(huge, old, "resize") == ["spec Forbidden"]
    gone = edit(old, {"spec.resources": GONE})
    assert field_errors(gone, old, "resize") == ["spec.resources Forbidden"]
    less = edit(old, {"spec.resources": {"requests": {"memory": "2Gi"}}})
    assert field_errors(less, old, "resize") == ["spec.resources.requests Forbidden"]
    bare = _plain_pod()
    assert field_errors(old, bare, "resize") == []
    assert field_errors(huge, bare, "resize") == ["spec Forbidden"]


def test_pods_that_are_never_resized() -> None:
    mirror = edit(_plain_pod(), {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}})
    assert field_errors(mirror, mirror, "resize") == ["[] Forbidden"]
    windows = edit(_plain_pod(), {"spec.os": {"name": "windows"}})
    assert field_errors(windows, windows, "resize") == ["[] Forbidden"]
    state = {"name": "main", "state": {"running": {}}}
    blind = edit(_plain_pod(), {"status.containerStatuses": [state]})
    assert field_errors(blind, blind, "resize") == ["spec Forbidden"]
    seeing = edit(_plain_pod(), {"status.containerStatuses": [{**state, "resources": {}}]})
    assert field_errors(seeing, seeing, "resize") == []
    assert field_errors(stored(pod()), stored(pod()), "resize") != []
