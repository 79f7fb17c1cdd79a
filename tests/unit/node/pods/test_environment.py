"""Environment of containers: expansion, the downward API, ConfigMaps and Secrets."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import Quantity
from plimsoll.client.endpoints import Endpoint
from plimsoll.errors import ApiError
from plimsoll.node.containers import RuntimeFault
from plimsoll.node.pods.downward_fields import DownwardNodeInfo
from plimsoll.node.pods.environment import ContainerEnvironment, build_environment, expand

FACTS = DownwardNodeInfo(
    "n1", ("10.0.0.1", "fd00::1"), {"cpu": Quantity.parse("8"), "memory": Quantity.parse("4Gi")}
)


class Store:
    """Objects by kind and name."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects = objects
        self.asked: list[str] = []

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]:
        self.asked.append(name)
        if name == "forbidden":
            raise ApiError(403, "Forbidden", "you may not")
        if name not in self.objects:
            raise ApiError(404, "NotFound", f"{name} not found")
        return {"data": self.objects[name]}


def surround(container: dict[str, Any], store: Store | None = None) -> ContainerEnvironment | RuntimeFault:
    tree = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": {"a": "x", "b": 'y"'}},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "sa",
            "containers": [
                {"name": "c", **container},
                {"name": "o", "resources": {"limits": {"cpu": "2500m"}}},
            ],
        },
    }
    pod = codec.decode(codec.encode(tree), Pod)
    own: Container = pod.spec.containers[0]
    return asyncio.run(build_environment(pod, own, store or Store(), FACTS, ("10.1.0.1",)))


def env_of(*variables: dict[str, Any], store: Store | None = None, **rest: Any) -> dict[str, str]:
    found = surround({"env": list(variables), **rest}, store)
    assert isinstance(found, ContainerEnvironment)
    return dict(found.env)


def fault_of(*variables: dict[str, Any], store: Store | None = None, **rest: Any) -> str:
    found = surround({"env": list(variables), **rest}, store)
    assert isinstance(found, RuntimeFault)
    assert found.reason == "CreateContainerConfigError"
    return found.message


def test_variables_see_those_before_them() -> None:
    env = env_of(
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)2 $(C) $$(A) $A"},
        {"name": "C", "value": "3"},
        {"name": "D"},
    )
    assert env == {"A": "1", "B": "12 $(C) $(A) $A", "C": "3", "D": ""}


def test_command_and_arguments() -> None:
    found = surround({"command": ["run", "$(A)"], "args": ["$(B)"], "env": [{"name": "A", "value": "1"}]})
    assert isinstance(found, ContainerEnvironment)
    assert found.command == ("run", "1", "$(B)")


def naive_expand(text: str, variables: dict[str, str]) -> str:
    def put(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", put, text, flags=re.S)


@given(
    st.text("$()AB x", max_size=20), st.dictionaries(st.sampled_from(["A", "B", "AB", ""]), st.just("v$(A)"))
)
def test_expansion(text: str, variables: dict[str, str]) -> None:
    assert expand(text, variables) == naive_expand(text, variables)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "d"),
        ("metadata.uid", "u"),
        ("metadata.labels['a']", "x"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'a="x"\nb="y\\""'),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.0.0.1"),
        ("status.hostIPs", "10.0.0.1,fd00::1"),
        ("status.podIP", "10.1.0.1"),
    ],
)
def test_fields(path: str, value: str) -> None:
    assert env_of({"name": "F", "valueFrom": {"fieldRef": {"fieldPath": path}}}) == {"F": value}


def test_an_unknown_field() -> None:
    text = fault_of({"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "spec.secrets"}}})
    assert text == "field label not supported: spec.secrets"


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu"}, "8"),  # no limit: the whole node
        ({"resource": "limits.cpu", "containerName": "o"}, "3"),
        ({"resource": "limits.cpu", "containerName": "o", "divisor": "1m"}, "2500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "100"),
        ({"resource": "requests.cpu"}, "0"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "4"),
    ],
)
def test_resources(reference: dict[str, str], value: str) -> None:
    variable = {"name": "R", "valueFrom": {"resourceFieldRef": reference}}
    assert env_of(variable, resources={"requests": {"memory": "100Mi"}}) == {"R": value}


def test_config_maps_and_secrets() -> None:
    secret = base64.b64encode(b"hush").decode()
    store = Store(cm={"k": "v", "other": "w"}, s={"key": secret})
    env = env_of(
        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
        {"name": "N", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no", "optional": True}}},
        {"name": "M", "valueFrom": {"secretKeyRef": {"name": "none", "key": "no", "optional": True}}},
        {"name": "k2", "value": "$(P_k)"},
        store=store,
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}}],
    )
    assert env == {"P_k": "v", "P_other": "w", "key": "hush", "K": "v", "S": "hush", "k2": "v"}
    assert store.asked.count("cm") == 1


def test_missing_references_are_named() -> None:
    reference = {"name": "cm", "key": "no"}
    assert fault_of({"name": "K", "valueFrom": {"configMapKeyRef": reference}}) == 'configmap "cm" not found'
    text = fault_of({"name": "K", "valueFrom": {"configMapKeyRef": reference}}, store=Store(cm={}))
    assert text == "couldn't find key no in ConfigMap d/cm"
    assert fault_of(envFrom=[{"secretRef": {"name": "s"}}]) == 'secret "s" not found'
    assert fault_of(envFrom=[{"secretRef": {"name": "forbidden", "optional": True}}]) == "you may not"
    assert "base64" in fault_of(envFrom=[{"secretRef": {"name": "s"}}], store=Store(s={"k": "?"}))


def test_values_with_nul_are_refused() -> None:
    assert "NUL" in fault_of({"name": "A", "value": "a\0b"})
    assert "NUL" in fault_of(command=["a\0b"])
