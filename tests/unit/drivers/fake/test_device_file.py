"""Device files: the bundled ones, and the messages for invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.drivers.fake.device_file import BUILT_IN, find_drivers, parse_drivers, parse_text
from plimsoll.drivers.fake.devices import make_devices
from plimsoll.errors import ConfigError
from plimsoll.tools.device_file_check import check_plan
from tests.sizes import examples

SMALL = """
drivers:
- name: gpu.example.com
  devices:
  - name: gpu-{i}
    count: 2
"""


def driver(**fields: Any) -> dict[str, Any]:
    return {"drivers": [{"name": "gpu.example.com", **fields}]}


def device(**fields: Any) -> dict[str, Any]:
    return driver(devices=[{"name": "gpu-{i}", **fields}])


@pytest.mark.parametrize("name", BUILT_IN)
def test_bundled_files_can_be_published(name: str) -> None:
    for plan in find_drivers(name):
        assert not check_plan(plan)
        assert plan.device_classes()


def test_ways_to_name_a_file(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text(SMALL)
    by_text, by_path, by_name = find_drivers(SMALL), find_drivers(path), find_drivers(str(path))
    assert by_text[0].templates[0].name == "gpu-{i}"
    assert by_path == by_name
    assert list(make_devices(by_path[0], "n").devices) == ["gpu-0", "gpu-1"]
    assert find_drivers("gpus")[0].name == "gpu.example.com"


def test_a_missing_file() -> None:
    with pytest.raises(ConfigError, match=r"gpu: no such file.* accelerators, gpus, nics"):
        find_drivers("gpu")
    with pytest.raises(ConfigError, match="No such file"):
        find_drivers(Path("/nowhere/gpus.yaml"))


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ([], "drivers: must be a mapping of settings"),
        ({}, "drivers: drivers: must be a list with at least one driver"),
        ({"drivers": []}, "must be a list with at least one entry"),
        ({"kind": "Pod"}, "drivers: kind: must be one of FakeDrivers, not 'Pod'"),
        ({"drivers": [{"name": "x"}], "driver": 1}, "drivers: driver: unknown field"),
        ({"drivers": [{}]}, "drivers: drivers[0].name: must be given, such as gpu.example.com"),
        ({"drivers": [{"name": "GPU"}]}, "'GPU' is not a valid driver name: it must be lower case letters"),
        ({"drivers": [{"name": "a." * 40 + "a"}]}, "must be at most 63 bytes long"),
        (
            {"drivers": [{"name": "x"}, {"name": "x"}]},
            "duplicate driver x; list all its devices in one entry",
        ),
        (driver(device=[]), "drivers[0].device: unknown field; valid fields: name, pool, classes"),
        (driver(pool="{i}"), "drivers[0].pool: {i}: unknown name 'i'; known names: node"),
        (driver(classes=[{}]), "drivers[0].classes[0].name: must be given, such as gpu.example.com"),
        (device(count=0), "devices[0].count: must be a whole number from 1 to 10000, not 0"),
        (device(nmae=1), "devices[0].nmae: unknown field"),
        (driver(devices=[{"name": "gpu", "count": 2}]), "duplicate name 'gpu': use {i} in the name"),
        (
            driver(devices=[{"name": "GPU-{i}"}]),
            "devices[0].name: 'GPU-0' is not a valid name: it must be lower case",
        ),
        (driver(devices=[{}]), "devices[0].name: must be given, such as gpu-{i}"),
        (device(attributes={"a": 1.5}), "devices[0].attributes.a: must be a string, an integer"),
        (device(attributes={"a": {"version": 1, "x": 2}}), "attributes.a: must be a string, an integer"),
        (device(attributes={"a": {"int": "{node}"}}), "attributes.a: 'node' is not an integer"),
        (device(attributes={"a": [1, "b"]}), "attributes.a: must be a string, an integer"),
        (device(attributes={"a": "{x}"}), "attributes.a: {x}: unknown name 'x'"),
        (device(capacity={"m": "4Qi"}), "capacity.m: '4Qi' is not a quantity"),
        (device(capacity={"m": -1}), "capacity.m: -1 must not be negative"),
        (device(capacity={"m": True}), "capacity.m: must be a quantity such as 8, 500m or 40Gi"),
        (device(capacity={"m": {"value": 1, "requestPolicy": {}}}), "needs allowMultipleAllocations: true"),
        (device(capacity={"m": {"value": 1, "policy": 1}}), "capacity.m.policy: unknown field"),
        (device(nodeResources={"cpu": {}}), "nodeResources.cpu: must have perDevice, perCapacity"),
        (
            device(nodeResources={"cpu": {"perCapacity": {"name": "cores"}}}),
            "nodeResources.cpu.perCapacity.name: 'cores' is not a capacity; valid names: none",
        ),
        (
            device(nodeResources={"cpu": {"perDevice": 1, "perCapacity": {"name": "c"}}}),
            "perCapacity: must not be set together with perDevice",
        ),
        (device(taints=[{"effect": "NoSchedule"}]), "taints[0].key: must be given"),
        (device(taints=[{"key": "a", "effect": "Never"}]), "taints[0].effect: must be one of NoSchedule"),
        (device(binding={"conditions": "a"}), "binding.failureConditions: must have at least one type"),
        (device(binding={"outcome": "later"}), "binding.outcome: must be one of ready, fail, never"),
        (device(partitions=[{"profile": "1g"}]), "partitions[0].counters: must be set: the counters"),
        (
            device(partitions=[{"profile": "1g", "counters": {"m": 1}}]),
            "devices[0].counters: must be set for a device with partitions",
        ),
        (
            device(counters={"m": 2}, partitions=[{"profile": "1g", "counters": {"x": 1}}]),
            "gpu-0-1g-0 consumes the unknown counter 'x' of gpu-0; counters: m",
        ),
        (
            device(counters={"m": 2}, partitions=[{"profile": "1g", "counters": {"m": 3}}]),
            "gpu-0-1g-0 consumes 3 m of gpu-0, which has 2",
        ),
        (
            device(counters={"m": 2}, partitions=[{"profile": "1 g", "counters": {"m": 1}}]),
            "partitions[0].profile: the partition name 'gpu-0-1 g-0' is invalid",
        ),
        (
            device(consumesCounters=[{"counterSet": "s", "counters": {"m": 1}}]),
            "gpu-0 consumes the unknown counter set 's'; counter sets: none",
        ),
        (device(container={"env": {"A": "{x}"}}), "container.env.A: {x}: unknown name 'x'"),
        (device(container={"mounts": [{"hostPath": "a"}]}), "mounts[0].hostPath: must be an absolute path"),
        (
            device(container={"deviceNodes": [{"hostPath": "/a"}]}),
            "deviceNodes[0].path: must be given, such as /dev/null",
        ),
        (device(status={"a": [1]}), "status.a: must be a string, a whole number or true or false"),
        (device(status={"a": "{x}"}), "status.a: {x}: unknown name 'x'"),
        (device(container={"hooks": []}), "container.hooks: unknown field"),
        (driver(prepare={"delay": "soon"}), "drivers[0].prepare.delay: must be a time such as 500ms"),
        (driver(prepare={"failfirst": 1}), "prepare.failfirst: unknown field; valid fields: delay"),
        (driver(health=[{"state": "Ill"}]), "health[0].state: must be one of Unknown, Healthy, Unhealthy"),
        (driver(absent=[1]), "absent: must be a list of strings"),
        (
            driver(devices=[{"name": "g{i}", "count": 5000}, {"name": "h{i}", "count": 5001}]),
            "drivers[0].devices: must be at most 10000 for a node, not 10001",
        ),
    ],
)
def test_errors_name_their_position(tree: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_drivers(tree)
    assert problem in str(caught.value), str(caught.value)


def test_text_that_is_not_a_device_file() -> None:
    with pytest.raises(ConfigError, match="not YAML"):
        parse_text("a: [\n")
    with pytest.raises(ConfigError, match="one document, found 2"):
        parse_text("a: 1\n---\nb: 2\n")


def test_api_validation_errors_are_reported() -> None:
    (plan,) = parse_drivers(device(attributes={"no name": 1}))
    (problem,) = check_plan(plan)
    assert problem.startswith("spec.devices[0].attributes")
    (plan,) = parse_drivers(driver(classes=[{"name": "c", "selectors": ["device.driver =="]}]))
    assert any("selectors" in problem for problem in check_plan(plan))


# -- random files

WORDS = st.sampled_from(
    [
        "name",
        "count",
        "devices",
        "drivers",
        "gpu-{i}",
        "x.example.com",
        "{i",
        "40Gi",
        "",
        "counters",
        "*",
        "a/b",
    ]
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-2, 40), st.floats(0, 2), WORDS)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
FIELDS = [
    "name",
    "count",
    "spread",
    "attributes",
    "capacity",
    "allowMultipleAllocations",
    "nodeResources",
    "taints",
    "binding",
    "container",
    "status",
    "counters",
    "whole",
    "partitions",
    "consumesCounters",
    "compatibilityGroups",
]


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(FIELDS), TREES, max_size=4), TREES)
def test_any_file_is_read_or_refused(fields: dict[str, Any], other: Any) -> None:
    for tree in (other, {"drivers": other}, device(**fields), driver(prepare=other), driver(health=other)):
        try:
            found = parse_drivers(tree)
        except ConfigError:
            continue
        for plan in found:
            make_devices(plan, "some-node")
