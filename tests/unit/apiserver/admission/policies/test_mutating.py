"""Mutating policies: apply configurations, JSON patches, reinvocation and failures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.admission.policies.build import CONFIG_MAPS, PODS, applying, enforce, validating
from tests.unit.apiserver.build import ApiHarness, config_map, pod, run


def send(*policies: Any, path: str = CONFIG_MAPS, body: Any = None) -> tuple[int, Any]:
    async def play(harness: ApiHarness) -> tuple[int, Any]:
        for policy in policies:
            await enforce(harness, policy)
        return await harness.request("POST", path, config_map() if body is None else body)

    return run(play)


def test_apply_configurations_are_merged_and_defaults_are_visible() -> None:
    policy = applying(
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', "
        "env: [Object.spec.containers.env{name: 'GRACE', "
        "value: string(object.spec.terminationGracePeriodSeconds)}]}]}}"
    )
    code, body = send(policy, path=PODS, body=pod())
    assert code == 201
    (container,) = body["spec"]["containers"]
    assert container["image"] == "i"
    assert container["env"] == [{"name": "GRACE", "value": "30"}]


def test_json_patches_are_applied_in_order() -> None:
    policy = applying(
        "[JSONPatch{op: 'add', path: '/data/b', value: '2'}]",
        "[JSONPatch{op: 'add', path: '/data/c', value: object.data.b + '3'}]",
    )
    assert send(policy)[1]["data"] == {"a": "1", "b": "2", "c": "23"}


def test_a_failed_test_operation_changes_nothing() -> None:
    policy = applying(
        "[JSONPatch{op: 'test', path: '/data/a', value: '7'}, JSONPatch{op: 'remove', path: '/data/a'}]"
    )
    assert send(policy)[1]["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("expression", "code", "text"),
    [
        ("Object{data: {'b': object.data.zz}}", 403, "no such key: zz"),
        ("Object{wrong: 1}", 403, ".wrong: field not declared in schema"),
        ("Object{metadata: Object.wrong{}}", 403, 'unexpected type name "Object.wrong"'),
        ("[JSONPatch{op: 'remove', path: '/data/zz'}]", 403, "JSON Patch: error in remove"),
        ("[JSONPatch{op: 'add', path: '/data/b', value: 1}]", 500, "Internal error occurred: json:"),
    ],
)
def test_mutations_that_fail_deny_the_request(expression: str, code: int, text: str) -> None:
    status, body = send(applying(expression))
    assert status == code
    assert text in body["message"]
    if code == 403:
        assert body["reason"] == "Invalid"
        assert body["message"].startswith("policy 'm' with binding 'm' denied request: ")
        assert send(applying(expression, failurePolicy="Ignore"))[0] == 201


def test_atomic_parts_cannot_be_applied() -> None:
    policy = applying("Object{spec: Object.spec{nodeSelector: {'a': 'b'}, tolerations: []}}")
    code, body = send(policy, path=PODS, body=pod())
    assert code == 403
    assert "may not mutate atomic arrays, maps or structs: .spec" in body["message"]


@pytest.mark.parametrize(("reinvocation", "expected"), [("Never", "1"), ("IfNeeded", "11")])
def test_policies_run_again_after_a_later_change(reinvocation: str, expected: str) -> None:
    first = applying(
        "Object{data: {'n': object.?data.?n.orValue('') + '1'}}", name="a", reinvocationPolicy=reinvocation
    )
    second = applying("Object{data: {'b': 'x'}}", name="b")
    assert send(first, second)[1]["data"] == {"a": "1", "n": expected, "b": "x"}


def test_the_mutated_object_is_validated() -> None:
    changing = applying("Object{data: {'a': '2'}}")
    checking = validating("object.data.a == '1'")
    code, body = send(changing, checking)
    assert (code, "ValidatingAdmissionPolicy 'p'" in body["message"]) == (422, True)
    code, body = send(applying("Object{metadata: Object.metadata{labels: {'-': 'x'}}}"))
    assert (code, body["reason"]) == (422, "Invalid")


def test_other_plugins_see_the_mutated_object() -> None:
    """A mutation chooses a priority class; its value is set afterwards."""
    policy = applying("Object{spec: Object.spec{priorityClassName: 'system-node-critical'}}")
    code, body = send(policy, path=PODS, body=pod(priority=None))
    assert code == 403, body
    patch = applying(
        "[JSONPatch{op: 'replace', path: '/spec/priorityClassName', value: 'system-node-critical'}, "
        "JSONPatch{op: 'remove', path: '/spec/priority'}]"
    )
    assert send(patch, path=PODS, body=pod())[0] in (201, 403)
