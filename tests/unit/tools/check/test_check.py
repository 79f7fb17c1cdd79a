"""`plimsoll check` as a gate: what an API server refuses, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from plimsoll.api.gates import GATES, Gates
from plimsoll.errors import InputError
from plimsoll.tools.check import CheckReport, check_all, parse_release
from plimsoll.tools.cluster_state.manifests import parse_objects

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
CLAIM = """
apiVersion: resource.k8s.io/VERSION
kind: ResourceClaim
metadata: {name: c, namespace: NAMESPACE}
spec: {devices: {requests: [{name: r, REQUEST}]}}
"""


def check(text: str, version: str = "", **options: Any) -> CheckReport:
    release = parse_release(version) if version else None
    gates = Gates.of_release(release[1]) if release else Gates.default()
    found = list(parse_objects(text, "f.yaml", needs_kind=False))
    return check_all(found, NOW, gates, release=release, **options)


def problems(text: str, version: str = "") -> list[str]:
    return [problem for _, checked in check(text, version).results for problem in checked.problems]


def warnings(text: str, version: str = "") -> list[str]:
    return [warning for _, checked in check(text, version).results for warning in checked.warnings]


def claim(request: str, version: str = "v1", namespace: str = "default") -> str:
    text = CLAIM.replace("VERSION", version).replace("NAMESPACE", namespace)
    return text.replace("REQUEST", request)


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("kind: Pod", "apiVersion: must be given; use v1"),
        ("apiVersion: v1", "kind: must be given"),
        (
            "{apiVersion: apps/v1beta1, kind: Deployment}",
            "apiVersion: Kubernetes 1.36 does not serve apps/v1beta1 Deployment; use apps/v1",
        ),
        (
            "{apiVersion: extensions/v1beta1, kind: Deployment}",
            "apiVersion: Kubernetes 1.36 does not serve extensions/v1beta1 Deployment; use apps/v1",
        ),
        ("{apiVersion: v1, kind: Deployment}", "apiVersion: v1 has no kind Deployment; use apps/v1"),
        (
            "{apiVersion: apps/v1, kind: Deploymnt}",
            "kind: apps/v1 has no kind Deploymnt; did you mean Deployment?",
        ),
        ("{apiVersion: apps/v1/x, kind: Deployment}", "apiVersion: 'apps/v1/x' must have the form"),
    ],
)
def test_versions_and_kinds_that_the_server_does_not_serve(head: str, problem: str) -> None:
    tree = {**yaml.safe_load(head), "metadata": {"name": "x"}}
    (found,) = problems(yaml.safe_dump(tree))
    assert found.startswith(problem)


def test_custom_resources_are_not_validated() -> None:
    report = check("{apiVersion: example.com/v1, kind: Deployment, metadata: {name: x}}")
    assert (report.refused, report.results[0][1].known) == (0, False)


def test_reviews_need_no_name() -> None:
    review = "{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: u}}"
    assert check(review).refused == 0
    assert problems(review.replace("user", "usr")) == ['unknown field "spec.usr"; did you mean user?']


def test_warnings_are_about_what_is_stored() -> None:
    named = POD.replace("name: p}", "name: a.b}")
    assert len(warnings(named)) == 1
    assert warnings(named.replace("image: i", "image: ''")) == []


def test_generated_names_are_names() -> None:
    assert problems(POD.replace("name: p", "generateName: p-")) == []
    assert problems(POD.replace("name: p", "generateName: Pod-"))[0].startswith("metadata.generateName: ")
    assert problems(POD.replace("name: p", "labels: {}")) == [
        "metadata.name: name or generateName is required"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (POD.replace("image: i", "image: i, imagee: x"), 'containers[0].imagee"; did you mean image?'),
        (POD.replace("name: p", "name: p, labls: {}"), 'metadata.labls"; did you mean labels?'),
        (
            claim("exactly: {deviceClassName: c}, deviceClassName: c"),
            'requests[0].deviceClassName"; it is a field of exactly',
        ),
        (
            POD.replace("name: p", "name: 1"),
            "metadata.name: must be a string, not a number; put it in quotes",
        ),
    ],
)
def test_unknown_fields_and_wrong_types_are_refused_with_the_fix(text: str, problem: str) -> None:
    (found,) = problems(text)
    assert problem in found


def test_unknown_fields_of_stored_objects_are_warnings() -> None:
    text = POD.replace("image: i", "image: i, imagee: x")
    ((_, checked),) = check(text, server="https://c").results
    assert (checked.problems, len(checked.warnings)) == ((), 1)


def test_pod_templates_of_workloads() -> None:
    template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}"
    spec = f"{{selector: {{matchLabels: {{a: b}}}}, template: {template}}}"
    for kind in ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet"):
        text = f"{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: x}}, spec: {spec}}}"
        assert problems(text) == ["spec.template.spec.containers[0].image: must be given"]
    job = f"{{template: {template.replace('containers', 'restartPolicy: Never, containers')}}}"
    path = "spec.template.spec.containers[0].image: must be given"
    assert problems(f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: x}}, spec: {job}}}") == [path]
    cron = f"{{schedule: '@daily', jobTemplate: {{spec: {job}}}}}"
    assert problems(f"{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: x}}, spec: {cron}}}") == [
        f"spec.jobTemplate.{path}"
    ]


def test_admin_access_by_namespace() -> None:
    """The label is that of the Namespace in the files, wherever it is."""
    text = claim("exactly: {deviceClassName: c, adminAccess: true}", namespace="NS")
    label = "labels: {resource.kubernetes.io/admin-access: 'true'}"
    namespace = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: ns, {label}}}}}"
    text = text.replace("NS", "ns")
    assert problems(f"{namespace}\n---\n{text}") == problems(f"{text}\n---\n{namespace}") == []
    (unknown,) = problems(text)
    assert unknown.endswith("Namespace ns is not in the files: pass it too if it has the label")
    (plain,) = problems(f"{namespace.replace(label, 'labels: {}')}\n---\n{text}")
    assert "is not in the files" not in plain


def test_limit_ranges_of_the_files() -> None:
    limits = "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [LIMIT]}}"
    limits = limits.replace("LIMIT", "{type: Container, max: {cpu: 1}}")
    pod = POD.replace("image: i", "image: i, resources: {limits: {cpu: 2}}")
    assert len(problems(f"{limits}\n---\n{pod}")) == 1
    assert problems(pod) == []


# -- versions of the server


@pytest.mark.parametrize(
    ("version", "served"),
    [
        ("1.32", {"v1beta1"}),
        ("1.33", {"v1beta1", "v1beta2"}),
        ("1.34", {"v1beta1", "v1beta2", "v1"}),
        ("v1.36.4", {"v1beta1", "v1beta2", "v1"}),
    ],
)
def test_versions_of_the_resource_group_by_release(version: str, served: set[str]) -> None:
    requests = {"v1beta1": "deviceClassName: c"}
    for name in ("v1alpha2", "v1beta1", "v1beta2", "v1"):
        text = claim(requests.get(name, "exactly: {deviceClassName: c}"), name)
        found = problems(text, version)
        assert (found == []) == (name in served), (name, found)
        assert all(each in found[0] for each in served if found)


def test_no_version_is_suggested_that_the_release_does_not_serve() -> None:
    assert problems(claim("exactly: {deviceClassName: c}", "v2"), "1.30") == [
        "apiVersion: resource.k8s.io/v2 has no kind ResourceClaim"
    ]


def test_fields_that_a_release_does_not_have_or_drops() -> None:
    tolerations = "exactly: {deviceClassName: c, tolerations: [{operator: Exists}]}"
    v1 = claim(tolerations)
    beta = claim(tolerations.removeprefix("exactly: {").removesuffix("}"), "v1beta1")
    assert (problems(v1, "1.36"), warnings(v1, "1.36")) == ([], [])
    assert problems(v1, "1.35") == []
    assert warnings(v1, "1.35") == [
        "spec.devices.requests[0].exactly.tolerations: the field is dropped: "
        "feature gate DRADeviceTaints is off in Kubernetes 1.35"
    ]
    (problem,) = problems(beta, "1.32")
    assert "tolerations" in problem
    assert "Kubernetes 1.32 does not have it" in problem


def test_gates_of_releases() -> None:
    """The table of releases agrees with the defaults of 1.36 for every gate that it has."""
    defaults, available = Gates.of_release(36), Gates.of_release(36, available=True)
    for gate in GATES:
        if gate.name in available.on:
            assert (gate.name in defaults.on) == gate.upstream_default, gate.name
    for minor in range(30, 37):
        later = Gates.of_release(minor + 1, available=True)
        assert Gates.of_release(minor).on <= Gates.of_release(minor, available=True).on <= later.on


@pytest.mark.parametrize("text", ["2", "1.x", "1.29", "1.99", "", "v1"])
def test_versions_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_release(text)


def test_the_report_names_places_and_counts_warnings_apart() -> None:
    text = f"{POD}\n---\n{claim('deviceClassName: c', 'v1beta1')}\n---\n{POD.replace('image: i', 'x: 1')}"
    report = check(text)
    assert (report.refused, report.warned) == (1, 1)
    lines = list(report.lines())
    assert lines[0] == "ResourceClaim c (f.yaml, document 2, line 2):"
    assert lines[1].startswith("  warning: resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+")
    assert lines[2] == "Pod p (f.yaml, document 3, line 9):"
    assert lines[-1] == "3 checked, 2 valid, 1 invalid, 1 with warnings"
    assert [(each["problems"] == [], len(each["warnings"])) for each in report.as_json()] == [
        (True, 0),
        (True, 1),
        (False, 0),
    ]
