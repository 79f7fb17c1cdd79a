"""Machine description files: valid fields, and the messages for mistakes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import NodeAddress, Taint
from plimsoll.errors import ConfigError, InputError
from plimsoll.node.machine.file import parse_machine, read_machine_file
from plimsoll.node.machine.file_values import parse_taint
from plimsoll.node.machine.machine import NumaNode

TEXT = """
kind: Machine
capacity: {cpu: 4, memory: 8Gi, hugepages-2Mi: 4Mi, example.com/gpu: 2}
cpus: 0-1,4-5
numa:
- {id: 0, cpus: 0-1, memory: 4Gi}
- {id: 1, cpus: [4, 5], memory: 4Gi, hugePages: {2Mi: 4Mi}}
labels: {topology.kubernetes.io/zone: a}
taints: [{key: dedicated, value: x, effect: NoSchedule}]
addresses: [{address: 10.0.0.7}, {type: Hostname, address: h}]
bootID: b
architecture: arm64
pids: 100
"""


def test_a_machine_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(TEXT)
    machine = read_machine_file(path)
    assert {name: str(amount) for name, amount in machine.capacity.items()} == {
        "cpu": "4",
        "memory": "8Gi",
        "hugepages-2Mi": "4Mi",
        "example.com/gpu": "2",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }
    assert machine.cpus == (0, 1, 4, 5)
    assert machine.numa == (
        NumaNode(id=0, cpus=(0, 1), memory=4 << 30),
        NumaNode(id=1, cpus=(4, 5), memory=4 << 30, huge_pages={"2Mi": 4 << 20}),
    )
    assert machine.taints == (Taint(key="dedicated", value="x", effect="NoSchedule"),)
    assert machine.addresses == (
        NodeAddress(type="InternalIP", address="10.0.0.7"),
        NodeAddress(type="Hostname", address="h"),
    )
    assert (machine.boot_id, machine.arch, machine.pids) == ("b", "arm64", 100)
    assert machine.labels == {"topology.kubernetes.io/zone": "a"}


def test_minimal_machine_file() -> None:
    machine = parse_machine({"capacity": {"cpu": "2500m", "memory": "1Gi"}})
    assert machine.cpus == (0, 1, 2)
    assert machine.numa == (NumaNode(id=0, cpus=(0, 1, 2), memory=1 << 30),)


FINE: dict[str, Any] = {"capacity": {"cpu": 4, "memory": "8Gi"}}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"kind": "Node"}, "kind"),
        ({"capacity": None}, "capacity.cpu"),
        ({"capacity": 3}, "capacity"),
        ({"capacity": {"cpu": 4}}, "capacity.memory"),
        ({"capacity": {"cpu": 0, "memory": 1}}, "capacity.cpu"),
        ({"capacity": {"cpu": "x", "memory": 1}}, "capacity.cpu"),
        ({"capacity": {"cpu": -1, "memory": 1}}, "capacity.cpu"),
        ({"capacity": {"cpu": 10**9, "memory": 1}}, "capacity.cpu"),
        ({"capacity": {"cpu": 1, "memory": "100m"}}, "capacity.memory"),
        ({"capacity": {"cpu": 1, "memory": 1, "gpu": 1}}, "capacity.gpu"),
        ({"capacity": {"cpu": 1, "memory": 1, "hugepages-2Mi": "3Mi"}}, "capacity.hugepages-2Mi"),
        ({"capacity": {"cpu": 1, "memory": 1, "hugepages-x": "3Mi"}}, "capacity.hugepages-x"),
        ({"cpus": "0-2"}, "cpus"),
        ({"cpus": "a"}, "cpus"),
        ({"cpus": {}}, "cpus"),
        ({"numa": []}, "numa"),
        ({"numa": [{"id": -1}]}, "numa[0].id"),
        ({"numa": [{"cpus": "0-3"}, {"id": 0}]}, "numa[1].id"),
        ({"numa": [{"cpus": "0-3", "memory": "x"}]}, "numa[0].memory"),
        ({"numa": [{"cpus": "0-3", "memory": "9Gi"}]}, "numa"),
        ({"numa": [{"cpus": "0-4"}]}, "numa[0].cpus"),
        ({"numa": [{"cpus": "0-3"}, {"cpus": "3"}]}, "numa[1].cpus"),
        ({"numa": [{"cpus": "0-2"}]}, "numa"),
        ({"numa": [{"cpus": "0-3", "hugePages": {"2Mi": "2Mi"}}]}, "numa"),
        ({"numa": [{"cpus": "0-3", "strange": 1}]}, "numa[0].strange"),
        ({"labels": {"a b": "c"}}, "labels"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"labels": []}, "labels"),
        ({"taints": [{"key": "a"}]}, "taints[0].effect"),
        ({"taints": [{"key": "", "effect": "NoSchedule"}]}, "taints[0].key"),
        ({"taints": [{"key": "a", "effect": "Never"}]}, "taints[0].effect"),
        ({"taints": [{"key": "a", "effect": "NoExecute"}] * 2}, "taints[1].key"),
        ({"addresses": [{"type": "X", "address": "a"}]}, "addresses[0].type"),
        ({"addresses": [{}]}, "addresses[0].address"),
        ({"pids": 0}, "pids"),
        ({"strange": 1}, "strange"),
    ],
)
def test_mistakes_name_their_position(change: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_machine({**FINE, **change}, "m.yaml")
    assert str(caught.value).startswith(f"m.yaml: {place}: "), str(caught.value)


@pytest.mark.parametrize("text", ["", "a: 1\n---\nb: 2", "{", "[]", "- a"])
def test_malformed_machine_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"m\.yaml"):
        read_machine_file(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_machine_file(tmp_path / "absent")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("capacity", "cpus", "numa", "labels", "taints", "addresses", "pids", "hostname", "kind")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.booleans())
def test_any_content_is_read_or_a_config_error(tree: dict[str, Any], whole: bool) -> None:
    with contextlib.suppress(ConfigError):
        parse_machine({**FINE, **tree} if whole else tree)


def test_taints_as_flags() -> None:
    assert parse_taint("a=b:NoExecute") == Taint(key="a", value="b", effect="NoExecute")
    assert parse_taint("a:NoSchedule") == Taint(key="a", effect="NoSchedule")
    for text in ("a", "a=b", "a=b:Never", ":NoExecute", "a b:NoExecute"):
        with pytest.raises(InputError, match="is not a taint"):
            parse_taint(text)
