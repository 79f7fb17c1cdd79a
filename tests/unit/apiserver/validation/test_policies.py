"""Pod policies, RBAC and certificate kinds, webhooks and admission policies."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.generic_objects import (
    LABELS,
    created,
    edit,
    field_errors,
    minimal,
    write,
)

RBAC = "rbac.authorization.k8s.io"


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({}, []),
        ({"maxUnavailable": "100%", "selector": {}}, []),
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec Invalid"]),
        ({"minAvailable": -1}, ["spec.minAvailable Invalid"]),
        ({"minAvailable": "x"}, ["spec.minAvailable Invalid"]),
        ({"maxUnavailable": "101%"}, ["spec.maxUnavailable Invalid"]),
        ({"selector": {"matchLabels": {"?": "x"}}}, ["spec.selector.matchLabels Invalid"]),
        ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, []),
        ({"unhealthyPodEvictionPolicy": "Never"}, ["spec.unhealthyPodEvictionPolicy NotSupported"]),
    ],
)
def test_budgets(spec: Any, errors: list[str]) -> None:
    assert field_errors(minimal("PodDisruptionBudget", {"spec": spec})) == errors


def test_a_budget_starts_without_any() -> None:
    tree = created("PodDisruptionBudget", {"status": {"disruptionsAllowed": 5}})
    assert tree["status"] == {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }
    with pytest.raises(DecodeError):
        write(minimal("PodDisruptionBudget", {"spec.minAvailable": [1]}))


def test_autoscalers() -> None:
    spec = created("HorizontalPodAutoscaler")["spec"]
    assert spec["minReplicas"] == 1
    assert spec["metrics"] == [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }
    ]
    up, down = spec["behavior"]["scaleUp"], spec["behavior"]["scaleDown"]
    assert (up["stabilizationWindowSeconds"], up["selectPolicy"], len(up["policies"])) == (0, "Max", 2)
    assert down == {
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }
    own = {"selectPolicy": "Min", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]}
    metric = {"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1024Mi"}}}
    changes = {"spec.behavior": {"scaleDown": own}, "spec.metrics": [metric], "spec.minReplicas": 0}
    spec = created("HorizontalPodAutoscaler", changes)["spec"]
    assert (spec["behavior"]["scaleDown"], spec["minReplicas"]) == (own, 0)
    assert spec["metrics"][0]["resource"]["target"]["averageValue"] == "1Gi"
    assert "behavior" not in created("HorizontalPodAutoscaler", {"spec": {"maxReplicas": 1}})["spec"]


def test_defaults_are_not_shared() -> None:
    first = created("HorizontalPodAutoscaler")["spec"]
    first["behavior"]["scaleUp"]["policies"].clear()
    first["metrics"][0]["resource"]["name"] = "changed"
    again = created("HorizontalPodAutoscaler")["spec"]
    assert len(again["behavior"]["scaleUp"]["policies"]) == 2
    assert again["metrics"][0]["resource"]["name"] == "cpu"
    assert created("PodDisruptionBudget")["status"] is not created("PodDisruptionBudget")["status"]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {
                "type": "Container",
                "max": {"cpu": "2000m"},
                "min": {"cpu": "1", "memory": "1Mi"},
                "defaultRequest": {"memory": "2Mi"},
            },
            {"default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "2Mi"}},
        ),
        ({"type": "Container", "default": {"cpu": "1"}}, {"defaultRequest": {"cpu": "1"}}),
        ({"type": "Pod", "max": {"cpu": "1"}}, {"default": None, "defaultRequest": None}),
        ({"type": "Container"}, {"default": None, "defaultRequest": None}),
    ],
)
def test_limit_ranges(item: Any, expected: Any) -> None:
    (limits,) = created("LimitRange", {"spec.limits": [item]})["spec"]["limits"]
    assert {name: limits.get(name) for name in expected} == expected


def test_runtime_classes() -> None:
    old = created("RuntimeClass", {"overhead.podFixed": {"memory": "1024Ki"}})
    assert old["overhead"]["podFixed"] == {"memory": "1Mi"}
    assert field_errors(edit(old, {"handler": "other"}), old) == ["handler Invalid"]
    assert field_errors(minimal("RuntimeClass", {"handler": ""})) == ["handler Required"]


# -- access


def test_bindings_get_their_groups() -> None:
    subjects = [{"kind": kind, "name": "n"} for kind in ("User", "Group", "ServiceAccount")]
    tree = created("RoleBinding", {"subjects": subjects})
    assert tree["roleRef"] == {"kind": "Role", "name": "r", "apiGroup": RBAC}
    assert [subject.get("apiGroup") for subject in tree["subjects"]] == [RBAC, RBAC, None]


@pytest.mark.parametrize(
    ("kind", "changes", "errors"),
    [
        (
            "RoleBinding",
            {"roleRef": {"kind": "X", "apiGroup": "y"}},
            ["apiGroup NS", "kind NS", "name Required"],
        ),
        ("ClusterRoleBinding", {"roleRef": {"kind": "Role", "name": "r"}}, ["kind NS"]),
    ],
)
def test_roles_that_cannot_be_bound(kind: str, changes: Any, errors: list[str]) -> None:
    wanted = [f"roleRef.{error}".replace("NS", "NotSupported") for error in errors]
    assert field_errors(minimal(kind, changes)) == wanted


@pytest.mark.parametrize(
    ("subject", "errors"),
    [
        ({"kind": "Machine", "name": "n"}, ["kind NotSupported"]),
        ({"kind": "User"}, ["name Required"]),
        ({"kind": "User", "name": "n", "apiGroup": "x"}, ["apiGroup NotSupported"]),
        ({"kind": "ServiceAccount", "name": "n"}, ["namespace Required"]),
        ({"kind": "ServiceAccount", "name": "N", "namespace": "a"}, ["name Invalid"]),
        (
            {"kind": "ServiceAccount", "name": "n", "namespace": "a", "apiGroup": RBAC},
            ["apiGroup NotSupported"],
        ),
    ],
)
def test_subjects_that_cannot_be_bound(subject: Any, errors: list[str]) -> None:
    tree = minimal("ClusterRoleBinding", {"subjects": [subject]})
    assert field_errors(tree) == [f"subjects[0].{error}" for error in errors]


def test_a_binding_keeps_its_role() -> None:
    old = created("RoleBinding")
    assert field_errors(edit(old, {"roleRef.name": "other"}), old) == ["roleRef Invalid"]
    assert field_errors(edit(old, {"subjects": []}), old) == []


def test_secrets_of_an_account_are_names() -> None:
    assert created("ServiceAccount", {"secrets": [{"name": "s", "uid": "u"}]})["secrets"] == [{"name": "s"}]


def test_webhooks() -> None:
    (webhook,) = created("ValidatingWebhookConfiguration")["webhooks"]
    assert webhook["clientConfig"]["service"]["port"] == 443
    assert webhook["rules"][0]["scope"] == "*"
    defaults = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }
    assert defaults.items() <= webhook.items()
    assert "reinvocationPolicy" not in webhook
    (webhook,) = created("MutatingWebhookConfiguration")["webhooks"]
    assert webhook["reinvocationPolicy"] == "Never"
    own = {"failurePolicy": "Ignore", "namespaceSelector": {"matchLabels": LABELS}, "timeoutSeconds": 1}
    changes = {f"webhooks.0.{name}": value for name, value in own.items()}
    assert own.items() <= created("MutatingWebhookConfiguration", changes)["webhooks"][0].items()


@pytest.mark.parametrize("kind", ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"])
def test_policies_of_admission(kind: str) -> None:
    spec = created(kind)["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert spec["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert spec["matchConstraints"]["resourceRules"][0]["scope"] == "*"
    binding = created(f"{kind}Binding")["spec"]["matchResources"]
    assert (binding["namespaceSelector"], binding["objectSelector"]) == ({}, {})
