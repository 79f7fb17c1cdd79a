"""Validation of admission policies and bindings when they are written, and their type check."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.auth.users import User
from tests.unit.apiserver.admission.policies.build import applying, bind, path_of, rule, validating
from tests.unit.apiserver.build import ADMIN, ApiHarness, run


def write(*trees: Any, user: User = ADMIN) -> tuple[int, Any]:
    """Create objects; return the answer to the last."""

    async def play(harness: ApiHarness) -> tuple[int, Any]:
        for tree in trees[:-1]:
            assert (await harness.request("POST", path_of(tree), tree))[0] == 201
        return await harness.request("POST", path_of(trees[-1]), trees[-1], user=user)

    return run(play)


def causes(tree: Any) -> list[tuple[str, str]]:
    code, body = write(tree)
    assert code == 422, body
    return [(cause["field"], cause["message"]) for cause in body["details"]["causes"]]


@pytest.mark.parametrize(
    ("tree", "field", "message"),
    [
        (
            validating("object.data.a == b"),
            "spec.validations[0].expression",
            "undeclared reference to 'b' (in container '')\n | object.data.a == b\n | .................^",
        ),
        (validating("1"), "spec.validations[0].expression", "must evaluate to bool but got int"),
        (
            validating({"expression": "true", "messageExpression": "1"}),
            "spec.validations[0].messageExpression",
            "must evaluate to string but got int",
        ),
        (
            validating(auditAnnotations=[{"key": "k", "valueExpression": "1"}]),
            "spec.auditAnnotations[0].valueExpression",
            "must evaluate to one of [string null_type] but got int",
        ),
        (
            validating("true", variables=[{"name": "a", "expression": "b"}]),
            "spec.variables[0].expression",
            "undeclared reference to 'b'",
        ),
        (
            validating("true", variables=[{"name": "for", "expression": "1"}]),
            "spec.variables[0].name",
            "must be a valid CEL identifier",
        ),
        (
            validating("true", matchConditions=[{"name": "n", "expression": "variables.a"}]),
            "spec.matchConditions[0].expression",
            "undeclared reference to 'variables'",
        ),
        (validating(), "spec.validations", "validations or auditAnnotations must contain at least one item"),
        (
            validating("true", matchConstraints={"resourceRules": [rule("*", "pods")]}),
            "spec.matchConstraints.resourceRules[0].resources",
            "if '*' is present, must not specify other resources without subresources",
        ),
        (validating("true", matchConstraints={}), "spec.matchConstraints.resourceRules", "Required value"),
        (
            validating("true", paramKind={"apiVersion": "a/b/c", "kind": "K"}),
            "spec.paramKind.apiVersion",
            "unexpected GroupVersion string: a/b/c",
        ),
        (
            applying("Object{}", matchConstraints={"resourceRules": [rule("pods", operations=["DELETE"])]}),
            "spec.matchConstraints.resourceRules.operations",
            "must be one of: *, CONNECT, CREATE, UPDATE",
        ),
        (applying("{'a': 1}"), "spec.mutations[0].applyConfiguration.expression", "must evaluate to Object"),
        (applying("[1]"), "spec.mutations[0].jsonPatch.expression", "must evaluate to list(JSONPatch)"),
        (applying("Object{}", reinvocationPolicy=""), "spec.reinvocationPolicy", "Required value"),
        (
            bind(validating("true"), validationActions=["Deny", "Warn"]),
            "spec.validationActions",
            "must not contain both Deny and Warn",
        ),
        (
            bind(validating("true"), paramRef={"parameterNotFoundAction": "Deny"}),
            "spec.paramRef",
            "one of name or selector must be specified",
        ),
    ],
)
def test_rejected_policies_name_the_field(tree: Any, field: str, message: str) -> None:
    found = dict(causes(tree))
    assert message in found[field]


def test_all_errors_of_an_expression_are_reported() -> None:
    ((_, message),) = causes(validating("a && b"))
    assert "1:1: undeclared reference to 'a'" in message
    assert "1:6: undeclared reference to 'b'" in message


def test_type_check_warnings_are_in_the_status() -> None:
    constraints = {"resourceRules": [rule("deployments", groups=("apps",))]}
    policy = validating(
        {"expression": "object.spec.replicas > 1", "messageExpression": "'' + object.metadata.name"},
        {"expression": "object.spec.replicas > '1'", "messageExpression": "object.spec.nothing + ''"},
        matchConstraints=constraints,
    )
    _, body = write(policy)
    assert body["status"]["observedGeneration"] == 1
    warnings = {
        one["fieldRef"]: one["warning"] for one in body["status"]["typeChecking"]["expressionWarnings"]
    }
    assert set(warnings) == {"spec.validations[1].expression", "spec.validations[1].messageExpression"}
    assert warnings["spec.validations[1].expression"].startswith(
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to "
        "'(int, string)'\n"
    )
    assert "undefined field 'nothing'" in warnings["spec.validations[1].messageExpression"]


@pytest.mark.parametrize(
    "expression",
    [
        "object.metadata.namespace == 'x' || object.metadata.__namespace__ == 'y'",
        "object.spec.strategy.rollingUpdate.maxSurge == 1",
        "object.metadata.creationTimestamp > timestamp('2000-01-01T00:00:00Z')",
    ],
)
def test_expressions_that_fit_the_kind_have_no_warnings(expression: str) -> None:
    constraints = {"resourceRules": [rule("deployments", groups=("apps",))]}
    _, body = write(validating(expression, matchConstraints=constraints))
    assert body["status"] == {"observedGeneration": 1, "typeChecking": {}}


def test_the_type_check_knows_the_request_resource() -> None:
    _, body = write(validating("authorizer.requestResource.check('x').allowed()"))
    assert body["status"]["typeChecking"] == {}


def test_the_type_check_follows_the_generation() -> None:
    async def play(harness: ApiHarness) -> list[Any]:
        policy = validating("object.data.a == 1")
        path = f"{path_of(policy)}/p"
        await harness.request("POST", path_of(policy), policy)
        statuses = []
        for expression in ("object.data.a == '1'", "object.data.a == '1'"):
            change = {"spec": {"validations": [{"expression": expression}]}}
            _, body = await harness.request(
                "PATCH", path, change, content_type="application/merge-patch+json"
            )
            statuses.append(body["status"])
        return statuses

    assert run(play) == [{"observedGeneration": 2, "typeChecking": {}}] * 2


def test_authors_must_be_able_to_read_the_parameters() -> None:
    """A user who may write policies could otherwise read any object through their messages."""
    policy = validating("params != null", paramKind={"apiVersion": "v1", "kind": "Secret"})
    binding = bind(policy, paramRef={"name": "s", "namespace": "default", "parameterNotFoundAction": "Deny"})

    async def play(harness: ApiHarness) -> list[tuple[int, str]]:
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "author"},
            "rules": [{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}],
        }
        bound = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "author"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author"},
            "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        base = "/apis/rbac.authorization.k8s.io/v1"
        await harness.request("POST", f"{base}/clusterroles", role)
        await harness.request("POST", f"{base}/clusterrolebindings", bound)
        results = []
        for tree in (policy, binding):
            code, body = await harness.request("POST", path_of(tree), tree, user=User("ann"))
            results.append((code, body["details"]["causes"][0]["message"]))
            await harness.request("POST", path_of(tree), tree)
        return results

    (policy_code, policy_text), (binding_code, binding_text) = run(play)
    assert (policy_code, binding_code) == (422, 422)
    assert 'must have "get" permission on all objects of the referenced paramKind' in policy_text
    assert 'does not have "get" permission on the object referenced by paramRef' in binding_text
