"""Jobs and cron jobs: defaults, the generated selector, schedules and immutable fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.generic_objects import (
    LABELS,
    UID,
    created,
    edit,
    field_errors,
    minimal,
    write,
)

GENERATED = {
    "controller-uid": UID,
    "job-name": "x",
    "batch.kubernetes.io/controller-uid": UID,
    "batch.kubernetes.io/job-name": "x",
}
SELECTOR = {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}


# -- defaults


def test_a_job_gets_its_defaults_and_a_selector() -> None:
    tree = created("Job")
    template = tree["spec"].pop("template")
    assert tree["spec"] == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
        "selector": SELECTOR,
    }
    assert template["metadata"]["labels"] == tree["metadata"]["labels"] == GENERATED
    assert template["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"parallelism": 3}, {"parallelism": 3, "completions": None}),
        ({"completions": 3}, {"parallelism": 1, "completions": 3}),
        (
            {"completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1},
            {"backoffLimit": 2147483647},
        ),
        ({"podFailurePolicy": {"rules": []}}, {"podReplacementPolicy": "Failed"}),
    ],
)
def test_defaults_depend_on_each_other(given: Any, expected: Any) -> None:
    spec = created("Job", {f"spec.{name}": value for name, value in given.items()})["spec"]
    assert {name: spec.get(name) for name in expected} == expected


def test_conditions_of_failing_pods_are_true() -> None:
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    for kind, path in (("Job", ("spec",)), ("CronJob", ("spec", "jobTemplate", "spec"))):
        tree: Any = created(kind, {".".join((*path, "podFailurePolicy")): policy})
        for name in path:
            tree = tree[name]
        assert tree["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


def test_labels_of_a_job() -> None:
    """A job without labels gets those of its pods; one with labels keeps its own."""
    both = created("Job", {"spec.template.metadata": {"labels": LABELS}})
    assert both["metadata"]["labels"] == both["spec"]["template"]["metadata"]["labels"] == LABELS | GENERATED
    own = created("Job", {"metadata.labels": LABELS, "spec.template.metadata": {"labels": LABELS}})
    assert own["metadata"]["labels"] == LABELS
    bare = created("Job", {"spec.manualSelector": True, "spec.selector": {"matchLabels": {}}})
    assert "labels" not in bare["metadata"]


def test_a_cron_job_gets_its_defaults_and_its_jobs_wait_for_theirs() -> None:
    spec = created("CronJob")["spec"]
    inner = spec.pop("jobTemplate")
    assert spec == {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    assert (inner["metadata"], inner["spec"].keys()) == ({}, {"template"})
    assert inner["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"


# -- selectors


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec.template.metadata": {"labels": {"job-name": "y"}}}, ["labels[job-name] Invalid"]),
        (
            {"spec.selector": {"matchLabels": LABELS}},
            ["selector Invalid", "labels Invalid"],
        ),
        ({"spec.manualSelector": True}, ["selector Required", "labels Invalid"]),
        (
            {
                "spec.manualSelector": True,
                "spec.selector": {"matchLabels": LABELS},
                "spec.template.metadata": {"labels": LABELS},
            },
            [],
        ),
        (
            {"spec.manualSelector": True, "spec.selector": {"matchLabels": LABELS}},
            ["labels Invalid"],
        ),
    ],
)
def test_selectors_of_jobs(changes: dict[str, Any], errors: list[str]) -> None:
    where = {"selector": "spec.", "labels": "spec.template.metadata."}
    wanted = [where[error.partition("[")[0].split()[0]] + error for error in errors]
    assert field_errors(minimal("Job", changes)) == wanted


def test_removed_labels_are_reported() -> None:
    old = created("Job", {"spec.suspend": True})
    bare = edit(old, {"spec.template.metadata": {}})
    assert [one for one in field_errors(bare, old) if "labels[" in one] == [
        f"spec.template.metadata.labels[{name}] Required" for name in sorted(GENERATED)
    ]


# -- rules


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"parallelism": -1, "backoffLimit": -1}, ["backoffLimit Invalid", "parallelism Invalid"]),
        ({"template.spec.restartPolicy": "Always"}, ["template.spec.restartPolicy Required"]),
        ({"template.spec.containers": []}, ["template.spec.containers Required"]),
        (
            {"podFailurePolicy": {"rules": []}, "template.spec.restartPolicy": "OnFailure"},
            ["template.spec.restartPolicy Invalid"],
        ),
        ({"completionMode": "Foo"}, ["completionMode NotSupported"]),
        ({"completionMode": "Indexed", "parallelism": 1}, ["completions Required"]),
        (
            {"completionMode": "Indexed", "completions": 2, "parallelism": 100_001},
            ["parallelism Invalid"],
        ),
        (
            {
                "completionMode": "Indexed",
                "completions": 2,
                "backoffLimitPerIndex": 1,
                "maxFailedIndexes": 3,
            },
            ["maxFailedIndexes Invalid"],
        ),
        (
            {"backoffLimitPerIndex": 1, "maxFailedIndexes": 1},
            ["backoffLimitPerIndex Invalid", "maxFailedIndexes Invalid"],
        ),
        (
            {"completionMode": "Indexed", "completions": 1, "maxFailedIndexes": 1},
            ["backoffLimitPerIndex Required"],
        ),
        ({"podReplacementPolicy": "Never"}, ["podReplacementPolicy NotSupported"]),
        (
            {"podReplacementPolicy": "TerminatingOrFailed", "podFailurePolicy": {}},
            ["podReplacementPolicy NotSupported"],
        ),
        ({"managedBy": "example.com/" + "x" * 60}, ["managedBy TooLong"]),
    ],
)
def test_invalid_job_specs(changes: dict[str, Any], errors: list[str]) -> None:
    for kind, path in (("Job", "spec"), ("CronJob", "spec.jobTemplate.spec")):
        tree = minimal(kind, {f"{path}.{name}": value for name, value in changes.items()})
        assert field_errors(tree) == [f"{path}.{error}" for error in errors]


def test_names_leave_room_for_the_index() -> None:
    indexed = {"spec.completionMode": "Indexed", "spec.completions": 100, "metadata.name": "x" * 61}
    assert field_errors(minimal("Job", indexed)) == ["metadata.name Invalid"]
    assert field_errors(minimal("Job", indexed | {"metadata.name": "x" * 60})) == []


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec.parallelism": 4, "spec.backoffLimit": 1, "spec.suspend": True}, []),
        ({"spec.completions": 4}, ["spec.completions Invalid"]),
        ({"spec.completionMode": "Indexed"}, ["spec.completionMode Invalid"]),
        ({"spec.template.spec.nodeSelector": {"a": "b"}}, ["spec.template Invalid"]),
        ({"spec.template.spec.containers.0.image": "new"}, ["spec.template Invalid"]),
        ({"spec.podFailurePolicy": {"rules": []}, "spec.podReplacementPolicy": "Failed"}, None),
    ],
)
def test_immutable_job_fields(changes: dict[str, Any], errors: list[str] | None) -> None:
    old = created("Job")
    wanted = ["spec.podFailurePolicy Invalid"] if errors is None else errors
    assert field_errors(edit(old, changes), old) == wanted


def test_the_completions_of_an_indexed_job_follow_its_parallelism() -> None:
    old = created("Job", {"spec.completionMode": "Indexed", "spec.completions": 2, "spec.parallelism": 2})
    assert field_errors(edit(old, {"spec.completions": 3}), old) == ["spec.completions Invalid"]
    assert field_errors(edit(old, {"spec.completions": 3, "spec.parallelism": 3}), old) == []


def test_a_suspended_job_can_still_be_placed() -> None:
    old = created("Job", {"spec.suspend": True})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    placement = {
        "spec.template.spec.nodeSelector": {"a": "b"},
        "spec.template.spec.tolerations": [{"operator": "Exists"}],
        "spec.template.spec.affinity": affinity,
        "spec.template.metadata.annotations": {"a": "b"},
    }
    resources = {"spec.template.spec.containers.0.resources": {"limits": {"cpu": "1"}}}
    assert field_errors(edit(old, placement | resources), old) == []
    assert field_errors(edit(old, {"spec.template.spec.containers.0.image": "new"}), old) == [
        "spec.template.spec Invalid"
    ]
    begun = edit(old, {"status": {"startTime": "2025-01-01T00:00:00Z"}})
    assert field_errors(edit(begun, resources), begun) == []
    assert field_errors(edit(begun, placement), begun) == ["spec.template.spec Invalid"]


def test_a_selector_is_generated_once() -> None:
    old = created("Job")
    assert write(old, old).tree == old
    later = edit(old, {"metadata.labels": {}})
    assert write(later, old).tree["metadata"]["labels"] == GENERATED


# -- cron jobs


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"schedule": ""}, ["schedule Required"]),
        ({"schedule": "often"}, ["schedule Invalid"]),
        ({"schedule": "TZ=UTC * * * * *"}, ["schedule Invalid"]),
        ({"timeZone": "Europe/Berlin"}, []),
        ({"timeZone": ""}, ["timeZone Invalid"]),
        ({"timeZone": "../etc"}, ["timeZone Invalid"]),
        ({"timeZone": "Local"}, ["timeZone Invalid"]),
        ({"timeZone": "bad-time-zone"}, ["timeZone Invalid"]),
        ({"timeZone": "Europe/A-very-long-name-of-a-town"}, ["timeZone Invalid"]),
        ({"concurrencyPolicy": "Queue"}, ["concurrencyPolicy NotSupported"]),
        ({"startingDeadlineSeconds": -1}, ["startingDeadlineSeconds Invalid"]),
        ({"failedJobsHistoryLimit": -1}, ["failedJobsHistoryLimit Invalid"]),
        ({"jobTemplate.spec.selector": {}}, ["jobTemplate.spec.selector Invalid"]),
        ({"jobTemplate.spec.manualSelector": True}, ["jobTemplate.spec.manualSelector NotSupported"]),
    ],
)
def test_invalid_cron_jobs(changes: dict[str, Any], errors: list[str]) -> None:
    tree = minimal("CronJob", {f"spec.{name}": value for name, value in changes.items()})
    assert field_errors(tree) == [f"spec.{error}" for error in errors]


def test_a_time_zone_in_a_stored_schedule_may_stay() -> None:
    old = edit(created("CronJob"), {"spec.schedule": "CRON_TZ=UTC 0 * * * *"})
    assert field_errors(edit(old, {"spec.schedule": "TZ=UTC 1 * * * *"}), old) == []
    both = {"spec.schedule": "TZ=UTC 1 * * * *", "spec.timeZone": "Etc/UTC"}
    assert field_errors(edit(old, both), old) == ["spec.schedule Invalid"]
