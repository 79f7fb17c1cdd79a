"""Device templates: names, attributes, capacity, counters, node resources in the requested form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.forms import Form
from plimsoll.api.quantity import ZERO
from plimsoll.drivers.fake.device_file import find_drivers, parse_drivers
from plimsoll.drivers.fake.devices import FakeInventory, fill_edits, make_devices
from plimsoll.errors import InputError
from plimsoll.tools.check import check_object
from plimsoll.tools.device_file_check import check_plan, slice_trees
from tests.sizes import examples


def arrange(*templates: dict[str, Any], form: Form | None = Form.V1_37, **more: Any) -> FakeInventory:
    (plan,) = parse_drivers({"drivers": [{"name": "x.example.com", "devices": list(templates), **more}]})
    return make_devices(plan, "node-1", form)


def test_names_and_attributes() -> None:
    inventory = arrange(
        {
            "name": "gpu-{i}",
            "count": 2,
            "attributes": {
                "index": "{i}",
                "text": {"string": "{i}"},
                "name": "on {node}",
                "rdma": True,
                "cores": 4,
                "firmware": {"version": "1.{i}.0"},
                "links": ["a-{i}", "b"],
                "ports": {"ints": ["{i}", 7]},
            },
        }
    )
    assert inventory.pool == "node-1"
    assert list(inventory.devices) == ["gpu-0", "gpu-1"]
    assert inventory.devices["gpu-1"].tree["attributes"] == {
        "index": {"int": 1},
        "text": {"string": "1"},
        "name": {"string": "on node-1"},
        "rdma": {"bool": True},
        "cores": {"int": 4},
        "firmware": {"version": "1.1.0"},
        "links": {"strings": ["a-1", "b"]},
        "ports": {"ints": [1, 7]},
    }


def test_devices_are_spread_in_blocks() -> None:
    inventory = arrange(
        {
            "name": "gpu-{i}",
            "count": 8,
            "spread": {"numaNodes": 2, "pcieRoots": 4},
            "attributes": {"place": "{numa}.{pcie}"},
        }
    )
    numa = [
        d.tree["attributes"]["resource.kubernetes.io/numaNode"]["int"] for d in inventory.devices.values()
    ]
    roots = [
        d.tree["attributes"]["resource.kubernetes.io/pcieRoot"]["string"] for d in inventory.devices.values()
    ]
    node_paths = [d.tree["attributes"]["place"]["string"] for d in inventory.devices.values()]
    assert numa == [0, 0, 0, 0, 1, 1, 1, 1]
    assert roots == [f"pci0000:0{n}" for n in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert node_paths[5] == "1.2"


def test_shared_capacity_with_its_policy() -> None:
    policy = {"default": "1G", "validRange": {"min": "1G", "max": "{i+1}0G", "step": "1G"}}
    inventory = arrange(
        {
            "name": "nic-{i}",
            "allowMultipleAllocations": True,
            "capacity": {"bandwidth": {"value": "{i+1}0G", "requestPolicy": policy}},
        }
    )
    tree = inventory.devices["nic-0"].tree
    assert tree["allowMultipleAllocations"] is True
    assert tree["capacity"]["bandwidth"]["requestPolicy"]["validRange"] == {
        "min": "1G",
        "max": "10G",
        "step": "1G",
    }


def test_request_policies_are_published_in_the_plain_form() -> None:
    template = {
        "name": "nic-{i}",
        "allowMultipleAllocations": True,
        "requestPolicies": {"steps": {"default": "{i+1}G", "validRange": {"min": "1G", "step": "1G"}}},
        "capacity": {
            "in": {"value": "10G", "requestPolicy": {"requestPolicyName": "steps"}},
            "out": {"value": "5G", "requestPolicy": {"requestPolicyName": "steps"}},
            "sessions": {"value": "1", "requestPolicy": {"zeroConsumption": True}},
        },
    }
    tree = arrange(template).devices["nic-0"].tree
    steps = {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}
    assert {name: entry["requestPolicy"] for name, entry in tree["capacity"].items()} == {
        "in": steps,
        "out": steps,
        "sessions": {"default": "0", "validValues": ["0"]},
    }
    assert "requestPolicies" not in tree


@pytest.mark.parametrize(
    ("policies", "policy", "error"),
    [
        ({}, {"requestPolicyName": "x"}, "requestPolicyName: 'x' is not one of the requestPolicies"),
        ({"x": {"requestPolicyName": "y"}}, {"requestPolicyName": "x"}, "must not refer to another policy"),
        ({}, {"zeroConsumption": True, "default": 1}, "must be the only field"),
        ({}, {"zeroConsumption": "yes"}, "zeroConsumption"),
    ],
)
def test_request_policies_that_are_invalid(
    policies: dict[str, Any], policy: dict[str, Any], error: str
) -> None:
    template = {
        "name": "nic-{i}",
        "allowMultipleAllocations": True,
        "requestPolicies": policies,
        "capacity": {"in": {"value": "10G", "requestPolicy": policy}},
    }
    with pytest.raises(InputError, match=error):
        arrange(template)


def test_partitions_share_the_counters_of_their_device() -> None:
    (plan,) = find_drivers("gpus")
    inventory = make_devices(plan, "n")
    assert set(inventory.counters) == {"gpu-0", "gpu-1"}
    full = inventory.devices["gpu-1"]
    assert full.consumes == {"gpu-1": inventory.counters["gpu-1"]}
    part = inventory.devices["gpu-1-2g-10gb-2"]
    assert {name: str(amount) for name, amount in part.consumes["gpu-1"].items()} == {
        "memory": "10Gi",
        "compute": "2",
        "copy-engines": "2",
        "memory-slice-4": "1",
        "memory-slice-5": "1",
    }
    assert part.tree["attributes"]["profile"] == {"string": "2g.10gb"}
    assert part.tree["attributes"]["parent"] == {"string": "gpu-1"}
    assert part.tree["attributes"]["type"] == {"string": "partition"}
    assert part.tree["attributes"]["model"] == full.tree["attributes"]["model"]
    assert part.tree["capacity"] == {"memory": {"value": "10Gi"}, "compute": {"value": "2"}}


def test_compatibility_groups() -> None:
    inventory = arrange(
        {
            "name": "gpu",
            "counters": {"memory": "40Gi"},
            "compatibilityGroups": ["full"],
            "partitions": [
                {"profile": "a", "counters": {"memory": "20Gi"}, "compatibilityGroups": ["small", "mixed"]},
                {"profile": "b", "counters": {"memory": "10Gi"}},
            ],
        },
        {
            "name": "other",
            "consumesCounters": [{"counterSet": "s", "counters": {"m": 1}, "compatibilityGroups": ["x"]}],
        },
        counterSets=[{"name": "s", "counters": {"m": 2}}],
    )
    found = {
        name: device.tree["consumesCounters"][0].get("compatibilityGroups")
        for name, device in inventory.devices.items()
    }
    assert found == {"gpu": ["full"], "gpu-a-0": ["small", "mixed"], "gpu-b-0": None, "other": ["x"]}


def test_a_device_with_partitions_only() -> None:
    halves = [{"profile": "half", "count": 2, "counters": {"m": 1}}]
    inventory = arrange({"name": "gpu-{i}", "whole": False, "counters": {"m": 2}, "partitions": halves})
    assert list(inventory.devices) == ["gpu-0-half-0", "gpu-0-half-1"]


def test_counters_shared_by_several_templates() -> None:
    inventory = arrange(
        {"name": "a-{i}", "count": 2, "consumesCounters": [{"counterSet": "link-{i}", "counters": {"m": 1}}]},
        {"name": "b-{i}", "consumesCounters": [{"counterSet": "link-{i}", "counters": {"m": 2}}]},
        counterSets=[{"name": "link-{i}", "count": 2, "counters": {"m": 2}}],
    )
    assert set(inventory.counters) == {"link-0", "link-1"}
    assert [list(device.consumes) for device in inventory.devices.values()] == [
        ["link-0"],
        ["link-1"],
        ["link-0"],
    ]


RESOURCES = {
    "name": "acc-{i}",
    "capacity": {"buffers": "8Gi"},
    "nodeResources": {
        "cpu": "500m",
        "memory": {"perCapacity": {"name": "buffers", "times": 2}, "perPod": "64Mi"},
        "hugepages-2Mi": {"perDevice": "512Mi"},
    },
}


def test_node_resources_in_the_form_of_1_37() -> None:
    device = arrange(RESOURCES).devices["acc-0"]
    assert device.tree["nodeAllocatableResources"] == {
        "cpu": {"mapping": {"deviceMultiplier": "500m"}},
        "memory": {
            "mapping": {"capacityKey": "buffers", "capacityMultiplier": "2"},
            "overhead": {"perPod": "64Mi"},
        },
        "hugepages-2Mi": {"mapping": {"deviceMultiplier": "512Mi"}},
    }
    assert not device.dropped_fields


def test_node_resources_in_the_form_of_1_36() -> None:
    device = arrange(RESOURCES, form=Form.V1_36).devices["acc-0"]
    assert device.tree["nodeAllocatableResourceMappings"] == {
        "cpu": {"allocationMultiplier": "500m"},
        "memory": {"capacityKey": "buffers", "allocationMultiplier": "2"},
        "hugepages-2Mi": {"allocationMultiplier": "512Mi"},
    }
    assert len(device.dropped_fields) == 1
    assert "overhead of 64Mi per pod" in device.dropped_fields[0]


def test_node_resources_that_no_api_server_knows() -> None:
    device = arrange(RESOURCES, form=None).devices["acc-0"]
    assert not {"nodeAllocatableResources", "nodeAllocatableResourceMappings"} & set(device.tree)
    assert "cpu, memory, hugepages-2Mi: not supported by this API server" in device.dropped_fields[0]


@pytest.mark.parametrize("form", [Form.V1_36, Form.V1_37, None])
@pytest.mark.parametrize("name", ["gpus", "nics", "accelerators"])
def test_bundled_files_are_valid_in_every_form(name: str, form: Form | None) -> None:
    for plan in find_drivers(name):
        assert check_plan(plan, form) == ()


def test_container_edits_of_a_device() -> None:
    inventory = arrange(
        {
            "name": "gpu-{i}",
            "capacity": {"memory": "4Gi"},
            "container": {
                "env": {"GPU_{REQUEST}": "{device} of {claim}", "MEMORY": "{capacity.memory}"},
                "mounts": [{"hostPath": "/opt/{device}", "containerPath": "/opt/gpu", "options": ["ro"]}],
                "deviceNodes": [
                    "/dev/null",
                    {"path": "/dev/gpu{i}", "hostPath": "/dev/zero", "fileMode": 438},
                ],
            },
        }
    )
    claim = {"claim": "c1", "REQUEST": "MINE", "capacity.memory": "1Gi"}
    edits = fill_edits(inventory.devices["gpu-0"], claim)
    assert edits.env == {"GPU_MINE": "gpu-0 of c1", "MEMORY": "1Gi"}
    assert edits.mounts == ({"hostPath": "/opt/gpu-0", "containerPath": "/opt/gpu", "options": ["ro"]},)
    assert edits.device_nodes == (
        {"path": "/dev/null"},
        {"path": "/dev/gpu0", "hostPath": "/dev/zero", "fileMode": 438},
    )


NAMES = st.from_regex(r"[a-z]{1,6}", fullmatch=True)
AMOUNTS = st.integers(1, 64)


@st.composite
def templates(draw: st.DrawFn, paths: int) -> dict[str, Any]:
    shared = draw(st.booleans())
    counters = draw(st.dictionaries(NAMES, AMOUNTS, max_size=3))
    tree: dict[str, Any] = {
        "name": f"d{paths}-{{i}}",
        "count": draw(st.integers(1, 12)),
        "attributes": draw(
            st.dictionaries(NAMES, st.one_of(NAMES, st.booleans(), AMOUNTS, st.just("{i*2}")), max_size=4)
        ),
        "capacity": {
            name: str(value) for name, value in draw(st.dictionaries(NAMES, AMOUNTS, max_size=2)).items()
        },
        "spread": {"numaNodes": draw(st.integers(1, 4))},
    }
    if draw(st.booleans()):
        tree["nodeResources"] = {"cpu": f"{draw(AMOUNTS)}m", "memory": {"perPod": "1Mi"}}
    if draw(st.booleans()):
        tree["taints"] = [{"key": "example.com/x", "effect": "NoSchedule"}]
    if counters and not shared:
        tree["counters"] = counters
        tree["partitions"] = [
            {
                "profile": f"{size}g",
                "count": draw(st.integers(1, 4)),
                "counters": {name: max(1, amount // size) for name, amount in counters.items()},
            }
            for size in draw(st.sets(st.integers(1, 4), max_size=3))
        ] or None
    elif shared:
        tree["allowMultipleAllocations"] = True
    return tree


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).flatmap(
        lambda node_paths: st.tuples(*(templates(paths) for paths in node_paths))
    ),
    st.sampled_from([Form.V1_36, Form.V1_37]),
)
def test_any_file_gives_valid_slices(found: tuple[dict[str, Any], ...], form: Form) -> None:
    (plan,) = parse_drivers({"drivers": [{"name": "x.example.com", "devices": list(found)}]})
    now = datetime.now(UTC)
    names = []
    for tree in slice_trees(plan, "node-1", form):
        assert not check_object(tree, now).problems
        names += [device["name"] for device in tree["spec"].get("devices", ())]
    desired = sum(
        each["count"] * (1 + sum(part["count"] for part in each.get("partitions") or ())) for each in found
    )
    assert len(set(names)) == len(names) == desired
    inventory = make_devices(plan, "node-1", form)
    for device in inventory.devices.values():
        for of, amounts in device.consumes.items():
            assert all(ZERO < amount <= inventory.counters[of][name] for name, amount in amounts.items())
