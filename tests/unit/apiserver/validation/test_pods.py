"""Claims in the spec of pods, and validation of updates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import GONE, edit, field_errors, pod, run, running_pod, stored

CLAIM = "spec.resourceClaims[0]"
REFERENCE = "spec.containers[0].resources.claims"
NO_REFERENCES: dict[str, Any] = {"spec.containers.0.resources.claims": [], "spec.initContainers": []}


@pytest.mark.parametrize(
    ("claims", "errors"),
    [
        ([], []),
        ([{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimTemplateName": "x.y"}], []),
        ([{"resourceClaimName": "x"}], [f"{CLAIM}.name Required"]),
        ([{"name": "A", "resourceClaimName": "x"}], [f"{CLAIM}.name Invalid"]),
        ([{"name": "a.b", "resourceClaimName": "x"}], [f"{CLAIM}.name Invalid"]),
        ([{"name": "A" * 64, "resourceClaimName": "x"}], [f"{CLAIM}.name Invalid"] * 2),
        ([{"name": "a", "resourceClaimName": "x"}] * 2, ["spec.resourceClaims[1].name Duplicate"]),
        ([{"name": "a"}], [f"{CLAIM} Invalid"]),
        ([{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}], [f"{CLAIM} Invalid"]),
        ([{"name": "a", "resourceClaimName": ""}], [f"{CLAIM}.resourceClaimName Invalid"]),
        ([{"name": "a", "resourceClaimTemplateName": "A"}], [f"{CLAIM}.resourceClaimTemplateName Invalid"]),
        ([{"name": f"c{i}", "resourceClaimName": "x"} for i in range(300)], []),  # no limit
    ],
)
def test_claims_of_a_pod(claims: list[Any], errors: list[str]) -> None:
    assert field_errors(edit(pod(), {**NO_REFERENCES, "spec.resourceClaims": claims})) == errors


@pytest.mark.parametrize(
    ("claims", "errors"),
    [
        ([{"name": "gpus"}], []),
        ([{"name": "gpus", "request": "a"}, {"name": "gpus", "request": "b"}, {"name": "cpus"}], []),
        ([{}], ["[0] Required"]),
        ([{"name": "none"}], ["[0] NotFound"]),
        ([{"name": "gpus", "request": "A"}], ["[0].request Invalid"]),
        ([{"name": "gpus"}] * 3, ["[1] Duplicate", "[2] Duplicate"]),
        ([{"name": "gpus", "request": "a"}] * 2, ["[1] Duplicate"]),
        ([*[{"name": "gpus", "request": "a"}] * 2, {"name": "gpus"}], ["[1] Duplicate", "[2] Duplicate"]),
        ([{"name": "cpus"}, {"name": "gpus"}], []),
        ([{"name": "gpus"}, {"name": "gpus", "request": "A"}], ["[1] Duplicate"]),
        (
            [{"name": "gpus", "request": "a"}, {"name": "gpus", "request": "b"}, {"name": "gpus"}],
            ["[2] Duplicate"] * 2,
        ),
        ([{"name": "x/y"}, {"name": "x"}], ["[0] NotFound", "[1] Duplicate", "[1] NotFound"]),
    ],
)
def test_claims_of_a_container(claims: list[Any], errors: list[str]) -> None:
    tree = edit(pod(), {"spec.containers.0.resources.claims": claims})
    assert field_errors(tree) == [f"{REFERENCE}{error}" for error in errors]
    init = edit(pod(), {"spec.initContainers.0.resources.claims": claims})
    assert field_errors(init) == [f"spec.initContainers[0].resources.claims{error}" for error in errors]


def test_messages_name_only_some_claims() -> None:
    many = [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(1000)]
    (error, *_) = run(edit(pod(), {"spec.resourceClaims": many})).errors
    assert "and 990 more" in error.detail


def test_mirror_pods_have_no_claims() -> None:
    mirror = {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}}
    assert field_errors(edit(pod(), {**mirror, "spec.nodeName": "n"})) == ["[] Forbidden"] * 2
    assert field_errors(edit(pod(), mirror)) == [
        "[] Forbidden",
        "[] Forbidden",
        "metadata.annotations[kubernetes.io/config.mirror] Invalid",
    ]


def test_ephemeral_containers_have_no_resources_and_come_later() -> None:
    container = {"name": "debug", "image": "img"}
    at = "spec.ephemeralContainers"
    assert field_errors(edit(pod(), {at: [container]})) == [f"{at} Forbidden"]
    claims = {**container, "resources": {"claims": [{"name": "none"}]}}
    assert field_errors(edit(pod(), {at: [claims]})) == [
        f"{at} Forbidden",
        f"{at}[0].resources Forbidden",
        f"{at}[0].resources.claims[0] NotFound",
    ]
    empty = {**container, "resources": {"claims": []}}
    assert field_errors(edit(pod(), {at: [empty]})) == [f"{at} Forbidden", f"{at}[0].resources Forbidden"]


def test_pod_level_resources_have_no_claims() -> None:
    tree = edit(pod(), {"spec.resources": {"claims": [{"name": "gpus"}]}})
    assert field_errors(tree) == ["spec.resources.claims Forbidden"]


def test_create_ignores_status() -> None:
    tree = run(edit(pod(), {"status": {"resourceClaimStatuses": [{"name": "x"}], "phase": "Failed"}})).tree
    assert tree["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert tree["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("resources", "pod_level", "qos"),
    [
        ({}, None, "BestEffort"),
        ({"requests": {"example.com/x": "1"}}, None, "BestEffort"),
        ({"requests": {"cpu": "0"}}, None, "BestEffort"),
        ({"requests": {"cpu": "1"}}, None, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1"}}, None, "Guaranteed"),  # limits are requested
        (
            {"requests": {"cpu": "1000m", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}},
            None,
            "Guaranteed",
        ),
        ({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1"}}, None, "Burstable"),
        ({}, {"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}}, "Guaranteed"),
        ({"requests": {"cpu": "1"}}, {}, "BestEffort"),  # even an empty pod level counts alone, as in 1.36
        ({"requests": {"cpu": "1"}}, {"limits": {"hugepages-2Mi": "2Mi"}}, "Burstable"),
    ],
)
def test_a_new_pod_gets_its_class_from_its_spec(resources: Any, pod_level: Any, qos: str) -> None:
    changes = {
        "spec.containers.0.resources": resources,
        "spec.initContainers": [],
        "status": {"qosClass": "Guaranteed"},
    }
    if pod_level is not None:
        changes["spec.resources"] = pod_level
    assert run(edit(pod(), changes)).tree["status"]["qosClass"] == qos


# -- updates


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"metadata.labels": {"a": "b"}}, []),
        ({"spec.resourceClaims": GONE, **NO_REFERENCES}, ["spec.initContainers Forbidden"]),
        ({"spec.resourceClaims.0.resourceClaimName": "other"}, ["spec Forbidden"]),
        ({"spec.containers.0.resources.claims.0.request": "two"}, ["spec Forbidden"]),
        ({"spec.containers.0.resources.claims": []}, ["spec Forbidden"]),
        ({"spec.containers.0.resources.requests.cpu": "1000m"}, []),
        ({"spec.containers.0.resources.requests.cpu": "2"}, ["spec Forbidden"]),
        ({"spec.containers.0.image": "other"}, []),
        # The checks of a whole pod and those of a change find some things both.
        ({"spec.containers.0.image": ""}, ["spec.containers[0].image Required"] * 2),
        ({"spec.containers.0.image": " img"}, ["spec.containers[0].image Invalid"] * 2),
        ({"spec.containers": []}, ["spec.containers Forbidden", "spec.containers Required"]),
        ({"spec.nodeName": "n"}, ["spec Forbidden"]),
        ({"spec.tolerations": [{"key": "k", "operator": "Exists"}]}, []),
        ({"spec.schedulingGates": [{"name": "g"}]}, ["spec.schedulingGates[0].name Forbidden"]),
        ({"spec.activeDeadlineSeconds": 5}, []),
        ({"spec.activeDeadlineSeconds": -5}, ["spec.activeDeadlineSeconds Invalid"] * 2),
        ({"spec.somethingNew": {"a": 1}}, ["spec Forbidden"]),
        ({"spec.somethingNew": [], "spec.nodeName": "", "spec.nodeSelector": {}, "spec.overhead": None}, []),
        (
            {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}},
            [
                "[] Forbidden",
                "[] Forbidden",
                "metadata.annotations[kubernetes.io/config.mirror] Forbidden",
                "metadata.annotations[kubernetes.io/config.mirror] Invalid",
                "metadata.annotations[kubernetes.io/config.mirror] Invalid",
            ],
        ),
        (
            {"metadata.uid": "x", "metadata.labels": {"a b": ""}},
            ["metadata.labels Invalid", "metadata.labels Invalid", "metadata.uid Invalid"],
        ),
    ],
)
def test_update(changes: dict[str, Any], errors: list[str]) -> None:
    old = running_pod()
    assert field_errors(edit(old, changes), old) == errors


def test_deadlines_are_only_shortened() -> None:
    old = edit(running_pod(), {"spec.activeDeadlineSeconds": 10})
    assert field_errors(edit(old, {"spec.activeDeadlineSeconds": 9}), old) == []
    assert field_errors(edit(old, {"spec.activeDeadlineSeconds": 11}), old) == [
        "spec.activeDeadlineSeconds Invalid"
    ]
    assert field_errors(edit(old, {"spec.activeDeadlineSeconds": GONE}), old) == [
        "spec.activeDeadlineSeconds Invalid"
    ]


def test_tolerations_are_only_added() -> None:
    tolerated = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    old = edit(running_pod(), {"spec.tolerations": [tolerated]})
    assert field_errors(edit(old, {"spec.tolerations": []}), old) == ["spec.tolerations Forbidden"]
    assert field_errors(edit(old, {"spec.tolerations.0.tolerationSeconds": 5}), old) == []


def test_a_negative_grace_period_may_become_one() -> None:
    old = edit(running_pod(), {"spec.terminationGracePeriodSeconds": -1})
    assert field_errors(edit(old, {"spec.terminationGracePeriodSeconds": 1}), old) == []
    assert field_errors(edit(old, {"spec.terminationGracePeriodSeconds": 2}), old) == ["spec Forbidden"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _affinity(*expressions: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {REQUIRED: terms}}


def test_gated_pods_may_restrict_nodes_further() -> None:
    one = {"key": "a", "operator": "Exists"}
    two = {"key": "b", "operator": "Exists"}
    gated = edit(running_pod(), {"spec.schedulingGates": [{"name": "g"}], "spec.nodeSelector": {"a": "b"}})
    at = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    assert field_errors(edit(gated, {"spec.schedulingGates": []}), gated) == []
    assert field_errors(edit(gated, {"spec.nodeSelector.c": "d"}), gated) == []
    assert field_errors(edit(gated, {"spec.nodeSelector": {}}), gated) == ["spec.nodeSelector Invalid"]
    assert field_errors(edit(gated, {"spec.affinity": _affinity(one)}), gated) == []
    assert field_errors(edit(gated, {"spec.affinity": {"podAffinity": {}}}), gated) == ["spec Forbidden"]
    narrow = edit(gated, {"spec.affinity": _affinity(one)})
    assert field_errors(edit(narrow, {"spec.affinity": _affinity(one, two)}), narrow) == []
    assert field_errors(edit(narrow, {"spec.affinity": _affinity(two)}), narrow) == [f"{at}[0] Invalid"]
    assert field_errors(edit(narrow, {"spec.affinity": GONE}), narrow) == [f"{at} Invalid"]
    free = running_pod()
    assert field_errors(edit(free, {"spec.nodeSelector": {"a": "b"}}), free) == ["spec Forbidden"]


def test_generation_of_a_pod_counts_changes_of_its_spec() -> None:
    old = running_pod()
    assert run(old, old).tree["metadata"]["generation"] == 1
    assert run(edit(old, {"spec.containers.0.image": "other"}), old).tree["metadata"]["generation"] == 2


def test_update_ignores_status() -> None:
    old = running_pod()
    assert run(edit(old, {"status": {}}), old).tree["status"] == old["status"]
    bare = stored(pod())
    assert run(edit(bare, {"status": {"phase": "x"}}), bare).tree["status"] == {}
