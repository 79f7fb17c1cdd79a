"""Validating policies: which requests they see, what they decide, and what follows."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.apiserver.auth.users import EXTRA_CREDENTIAL, EXTRA_NODE_NAME, User, service_account_user
from plimsoll.apiserver.request import ApiRequest
from tests.unit.apiserver.admission.policies.build import (
    CONFIG_MAPS,
    PODS,
    bind,
    create,
    enforce,
    rule,
    validating,
)
from tests.unit.apiserver.build import ADMIN, ApiHarness, config_map, pod, run

DRIVER = Path(__file__).parents[5] / "deploy" / "manifests" / "cpu-driver" / "driver.yaml"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def answer(
    policy: Any, method: str = "POST", path: str = CONFIG_MAPS, body: Any = None, **binding: Any
) -> Any:
    """Return the answer to a request while a policy is in force."""

    async def play(harness: ApiHarness) -> tuple[int, Any]:
        await harness.request("POST", CONFIG_MAPS, config_map("old", labels={"app": "old"}))
        await enforce(harness, policy, **binding)
        given = config_map() if body is None and method == "POST" else body
        return await harness.request(method, path, given)

    return run(play)


def test_denied_request() -> None:
    code, body = answer(validating("object.data.a == '2'"))
    text = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed expression: "
    text += "object.data.a == '2'"
    assert (code, body["reason"]) == (422, "Invalid")
    assert body["message"] == f'configmaps "c" is forbidden: {text}'
    assert body["details"] == {"name": "c", "kind": "configmaps", "causes": [{"message": text}]}


@pytest.mark.parametrize(("reason", "code"), [("Forbidden", 403), ("RequestEntityTooLarge", 413)])
def test_the_reason_of_a_validation_is_that_of_the_answer(reason: str, code: int) -> None:
    status, body = answer(validating({"expression": "false", "reason": reason}))
    assert (status, body["reason"]) == (code, reason)


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ({"message": " no "}, "no"),
        ({"message": "no", "messageExpression": "'a=' + object.data.a"}, "a=1"),
        ({"message": "no", "messageExpression": "object.data.zz + ''"}, "no"),
        ({"messageExpression": "'two\\nlines'"}, "failed expression: false"),
    ],
)
def test_messages(validation: dict[str, str], expected: str) -> None:
    _, body = answer(validating({"expression": "false", **validation}))
    assert body["message"].endswith(f"denied request: {expected}")


@pytest.mark.parametrize(("failure_policy", "code"), [("Fail", 422), ("Ignore", 201)])
def test_failing_expressions_follow_the_failure_policy(failure_policy: str, code: int) -> None:
    status, body = answer(validating("object.data.zz == '1'", failurePolicy=failure_policy))
    assert status == code
    if code == 422:
        assert "expression 'object.data.zz == '1'' resulted in error: no such key: zz" in body["message"]


def test_policies_without_a_binding_are_not_enforced() -> None:
    async def play(harness: ApiHarness) -> int:
        await create(harness, validating("false"))
        return (await harness.request("POST", CONFIG_MAPS, config_map()))[0]

    assert run(play) == 201


def test_deleted_and_changed_policies_take_effect_at_once() -> None:
    async def play(harness: ApiHarness) -> list[int]:
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p"
        await enforce(harness, validating("false"))
        codes = [(await harness.request("POST", CONFIG_MAPS, config_map()))[0]]
        changed = {"spec": {"validations": [{"expression": "true"}]}}
        merge = "application/merge-patch+json"
        await harness.request("PATCH", path, changed, content_type=merge)
        codes.append((await harness.request("POST", CONFIG_MAPS, config_map()))[0])
        changed = {"spec": {"validations": [{"expression": "false"}]}}
        await harness.request("PATCH", path, changed, content_type=merge)
        await harness.request("DELETE", path)
        codes.append((await harness.request("POST", CONFIG_MAPS, config_map("d")))[0])
        return codes

    assert run(play) == [422, 201, 201]


def test_updates_and_deletions_are_validated() -> None:
    policy = validating("request.operation == 'CREATE' || oldObject.metadata.name != 'old'")
    for method, body in (("PUT", config_map("old")), ("DELETE", None)):
        assert answer(policy, method, f"{CONFIG_MAPS}/old", body)[0] == 422
    assert answer(policy, "DELETE", CONFIG_MAPS, None)[0] == 422


def test_a_collection_is_not_deleted_if_one_deletion_is_denied() -> None:
    async def play(harness: ApiHarness) -> list[str]:
        for name in ("a", "b"):
            await harness.request("POST", CONFIG_MAPS, config_map(name))
        await enforce(harness, validating("request.operation != 'DELETE' || oldObject.metadata.name != 'b'"))
        assert (await harness.request("DELETE", CONFIG_MAPS))[0] == 422
        _, listed = await harness.request("GET", CONFIG_MAPS)
        return [item["metadata"]["name"] for item in listed["items"]]

    assert {"a", "b"} <= set(run(play))


@pytest.mark.parametrize(
    ("constraints", "code"),
    [
        ({"resourceRules": [rule("pods")]}, 201),
        ({"resourceRules": [rule("*")]}, 422),
        ({"resourceRules": [rule("configmaps", operations=["DELETE"])]}, 201),
        ({"resourceRules": [rule("configmaps", resourceNames=["c"])]}, 422),
        ({"resourceRules": [rule("configmaps", resourceNames=["d"])]}, 201),
        ({"resourceRules": [rule("configmaps", scope="Cluster")]}, 201),
        ({"resourceRules": [rule("configmaps", scope="Namespaced")]}, 422),
        ({"resourceRules": [rule("*")], "excludeResourceRules": [rule("configmaps")]}, 201),
        ({"resourceRules": [rule("*")], "objectSelector": {"matchLabels": {"a": "b"}}}, 201),
        ({"resourceRules": [rule("*")], "namespaceSelector": {"matchLabels": {"a": "b"}}}, 201),
        (
            {
                "resourceRules": [rule("*")],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            },
            422,
        ),
    ],
)
def test_matching(constraints: dict[str, Any], code: int) -> None:
    assert answer(validating("false", matchConstraints=constraints))[0] == code
    bound = answer(validating("false"), matchResources=constraints)
    excluded = constraints["resourceRules"] == [rule("pods")]
    assert bound[0] == (201 if excluded else code)


@pytest.mark.parametrize(("match_policy", "denied"), [("Equivalent", True), ("Exact", False)])
def test_equivalent_versions(match_policy: str, denied: bool) -> None:
    """A policy for v1beta2 sees requests for v1 as objects of v1beta2, unless it matches exactly."""
    constraints = {
        "matchPolicy": match_policy,
        "resourceRules": [rule("deviceclasses", groups=("resource.k8s.io",), apiVersions=["v1beta2"])],
    }
    seen = "object.apiVersion + ' ' + request.kind.version + ' ' + request.requestKind.version"
    policy = validating({"expression": "false", "messageExpression": seen}, matchConstraints=constraints)
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}
    code, body = answer(policy, "POST", "/apis/resource.k8s.io/v1/deviceclasses", body)
    assert code == (422 if denied else 201)
    if denied:
        assert body["message"].endswith("denied request: resource.k8s.io/v1beta2 v1beta2 v1")


def test_warnings_and_audit_let_the_request_pass(caplog: pytest.LogCaptureFixture) -> None:
    async def play(harness: ApiHarness) -> dict[str, str]:
        await enforce(harness, validating("false"), validationActions=["Warn", "Audit"])
        raw = ApiRequest("POST", CONFIG_MAPS, ADMIN, body=json.dumps(config_map()).encode())
        response = await harness.api.handle(raw)
        assert response.status == 201
        return response.headers

    with caplog.at_level(logging.INFO, "plimsoll.server.audit"):
        warning = run(play)["Warning"]
    assert (
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': failed expression" in warning
    )
    assert "validation.policy.admission.k8s.io/validation_failure" in caplog.text


def test_audit_annotations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    annotations = [
        {"key": "a", "valueExpression": "'is ' + object.data.a"},
        {"key": "none", "valueExpression": "null"},
    ]
    with caplog.at_level(logging.INFO, "plimsoll.server.audit"):
        assert answer(validating(auditAnnotations=annotations))[0] == 201
    assert "CREATE configmaps default/c by admin: p/a=is 1" in caplog.text
    assert "p/none" not in caplog.text


def test_parameters() -> None:
    policy = validating(
        {"expression": "object.data.a != params.data.bad", "messageExpression": "'' + params.metadata.name"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConditions=[{"name": "others", "expression": "!has(object.data.bad)"}],
    )

    async def play(harness: ApiHarness) -> list[Any]:
        await create(harness, policy)
        results = []
        for number, ref in enumerate(
            (
                {"name": "limits", "parameterNotFoundAction": "Deny"},
                {"name": "missing", "parameterNotFoundAction": "Allow"},
                {"name": "missing", "parameterNotFoundAction": "Deny"},
                {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"},
            )
        ):
            limits = {**config_map("limits", labels={"limit": "yes"}), "data": {"bad": "1"}}
            await harness.request("POST", CONFIG_MAPS, limits)
            binding = bind(policy, f"b{number}", paramRef=ref)
            await create(harness, binding)
            code, body = await harness.request("POST", CONFIG_MAPS, config_map(f"c{number}"))
            results.append((code, body.get("message", "").rpartition("denied request: ")[2]))
            path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
            await harness.request("DELETE", f"{path}/b{number}")
        return results

    missing = "no params found for policy binding with `Deny` parameterNotFoundAction"
    assert run(play) == [
        (422, "limits"),
        (201, ""),
        (422, f"failed to configure binding: {missing}"),
        (422, "limits"),
    ]


def test_the_authorizer_is_that_of_the_server() -> None:
    policy = validating(
        {
            "expression": "authorizer.requestResource.check('approve').allowed()",
            "message": "needs the permission to approve",
        }
    )

    async def play(harness: ApiHarness) -> list[int]:
        await enforce(harness, policy)
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
        }
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        assert (await harness.request("POST", f"{base}/roles", role))[0] == 201
        assert (await harness.request("POST", f"{base}/rolebindings", binding))[0] == 201
        ann = User("ann")
        codes = [(await harness.request("POST", CONFIG_MAPS, config_map(), user=ann))[0]]
        role["rules"].append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["approve"]})  # type: ignore[attr-defined]
        assert (await harness.request("PUT", f"{base}/roles/r", role))[0] == 200
        codes.append((await harness.request("POST", CONFIG_MAPS, config_map(), user=ann))[0])
        return codes

    assert run(play) == [422, 201]


def test_bindings_evictions_and_scales_are_validated() -> None:
    async def play(harness: ApiHarness) -> list[tuple[int, str]]:
        await harness.request("POST", PODS, pod())
        constraints = {"resourceRules": [rule("pods/*", "deployments/scale", groups=("*",))]}
        seen = "request.kind.kind + ' ' + request.subResource + ' ' + object.kind"
        await enforce(
            harness,
            validating({"expression": "false", "messageExpression": seen}, matchConstraints=constraints),
        )
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        results = []
        for path, body in (("binding", binding), ("eviction", eviction)):
            code, response = await harness.request("POST", f"{PODS}/p/{path}", body)
            results.append((code, response["message"].rpartition("request: ")[2]))
        return results

    assert run(play) == [(422, "Binding binding Binding"), (422, "Eviction eviction Eviction")]


def test_policies_do_not_apply_to_policies() -> None:
    everything = {"resourceRules": [rule("*/*", "*", groups=("*",), apiVersions=["*"])]}

    async def play(harness: ApiHarness) -> int:
        await enforce(harness, validating("false", matchConstraints=everything))
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p"
        return (await harness.request("DELETE", path))[0]

    with pytest.raises(AssertionError):  # '*' and '*/*' together are refused
        run(play)
    everything["resourceRules"][0]["resources"] = ["*"]
    assert run(play) == 200


def test_a_driver_writes_slices_of_its_own_node_only() -> None:
    """The policy of the CPU driver's chart, with a service account token that is bound to a node."""
    policy, binding = (
        tree
        for tree in yaml.safe_load_all(DRIVER.read_text())
        if tree["kind"].startswith("ValidatingAdmissionPolicy")
    )

    async def play(harness: ApiHarness) -> list[tuple[int, str]]:
        await create(harness, policy, binding)
        account = service_account_user("kube-system", "plimsoll-cpu-driver")
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "driver"},
            "rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]}],
        }
        bound = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "driver"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "driver"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "plimsoll-cpu-driver", "namespace": "kube-system"}
            ],
        }
        base = "/apis/rbac.authorization.k8s.io/v1"
        await harness.request("POST", f"{base}/clusterroles", role)
        await harness.request("POST", f"{base}/clusterrolebindings", bound)
        results = []
        for number, (caller, node) in enumerate((("n1", "n1"), ("n1", "n2"), ("", "n1"))):
            extra = {EXTRA_CREDENTIAL: ("x",)} | ({EXTRA_NODE_NAME: (caller,)} if caller else {})
            user = User(account.name, account.uid, account.groups, extra)
            slice_ = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"s{number}"},
                "spec": {
                    "driver": "dra.cpu",
                    "nodeName": node,
                    "pool": {"name": node, "resourceSliceCount": 1, "generation": 1},
                    "devices": [],
                },
            }
            code, body = await harness.request("POST", SLICES, slice_, user=user)
            results.append((code, body.get("message", "").rpartition("denied request: ")[2]))
        foreign = User(account.name, account.uid, account.groups, {EXTRA_NODE_NAME: ("n2",)})
        results.append(((await harness.request("DELETE", f"{SLICES}/s0", user=foreign))[0], ""))
        return results

    assert run(play) == [
        (201, ""),
        (422, "a driver on node n1 may not write slices of node n2"),
        (422, "the token does not contain a node name; use a token that is bound to a pod"),
        (422, ""),
    ]
