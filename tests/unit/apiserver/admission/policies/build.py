"""Builders of admission policies and bindings, and a server that has them."""

from __future__ import annotations

from typing import Any

from tests.unit.apiserver.build import ApiHarness

Tree = dict[str, Any]

API = "admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def rule(*resources: str, groups: tuple[str, ...] = ("",), **fields: Any) -> Tree:
    return {
        "apiGroups": list(groups),
        "apiVersions": ["v1"],
        "operations": ["*"],
        "resources": list(resources),
        **fields,
    }


def validating(*expressions: str | Tree, name: str = "p", **spec: Any) -> Tree:
    validations = [{"expression": one} if isinstance(one, str) else one for one in expressions]
    spec.setdefault("matchConstraints", {"resourceRules": [rule("configmaps")]})
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"validations": validations, **spec},
    }


def applying(*expressions: str, name: str = "m", **spec: Any) -> Tree:
    """Return a mutating policy with apply configurations, or JSON patches if they are lists."""
    mutations: list[Tree] = []
    for text in expressions:
        is_patch = text.startswith("[")
        kind, field = ("JSONPatch", "jsonPatch") if is_patch else ("ApplyConfiguration", "applyConfiguration")
        mutations.append({"patchType": kind, field: {"expression": text}})
    rules = [rule("configmaps", "pods", operations=["CREATE", "UPDATE"])]
    spec.setdefault("matchConstraints", {"resourceRules": rules})
    spec.setdefault("reinvocationPolicy", "Never")
    return {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"mutations": mutations, **spec},
    }


def bind(policy: Tree, name: str = "b", **spec: Any) -> Tree:
    if policy["kind"].startswith("Validating"):
        spec.setdefault("validationActions", ["Deny"])
    spec["policyName"] = policy["metadata"]["name"]
    return {"apiVersion": API, "kind": f"{policy['kind']}Binding", "metadata": {"name": name}, "spec": spec}


def path_of(tree: Tree) -> str:
    plurals = {"Policy": "policies", "Binding": "policybindings"}
    kind = tree["kind"]
    end = "Binding" if kind.endswith("Binding") else "Policy"
    prefix = "mutating" if kind.startswith("Mutating") else "validating"
    return f"/apis/{API}/{prefix}admission{plurals[end]}"


async def create(harness: ApiHarness, *trees: Tree, user: Any = None) -> None:
    for tree in trees:
        more = {} if user is None else {"user": user}
        code, body = await harness.request("POST", path_of(tree), tree, **more)
        assert code == 201, body


async def enforce(harness: ApiHarness, policy: Tree, **binding: Any) -> None:
    """Create a policy with a binding of its own name."""
    await create(harness, policy, bind(policy, policy["metadata"]["name"], **binding))
