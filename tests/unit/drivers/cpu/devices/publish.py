"""Devices in slices, validated by the API server's rules and offered to the allocator."""

from __future__ import annotations

from typing import Any

from plimsoll.allocator import AllocationOutcome
from plimsoll.api.codec import convert
from plimsoll.api.forms import Form
from plimsoll.api.resource import ResourceSlice
from plimsoll.drivers.cpu.devices import compute_layout, make_devices, per_slice
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.topology import Topology
from tests.build import NODE, claim, exactly
from tests.unit.allocator.allocate import attempt
from tests.unit.apiserver.validation.objects import field_errors

Tree = dict[str, Any]


def slices_of(devices: list[Tree], settings: CpuSettings) -> list[Tree]:
    size = per_slice(settings, devices)
    chunks = [devices[start : start + size] for start in range(0, len(devices), size)] or [[]]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{number}"},
            "spec": {
                "driver": "dra.cpu",
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": len(chunks)},
                "devices": chunk,
            },
        }
        for number, chunk in enumerate(chunks)
    ]


def publish(topology: Topology, form: Form | None = None, **options: Any) -> list[Tree]:
    """Return the devices of a machine after validating them."""
    settings = CpuSettings(node=NODE, **options)
    devices = make_devices(topology, compute_layout(topology, settings), settings, form)
    assert_valid(devices, settings)
    return devices


def assert_valid(devices: list[Tree], settings: CpuSettings) -> None:
    for tree in slices_of(devices, settings):
        assert field_errors(tree) == []


def ask(devices: list[Tree], amount: str | None, *, count: int = 1, **settings: Any) -> AllocationOutcome:
    """Return the allocator's result for a request of an amount of CPUs."""
    trees = slices_of(devices, CpuSettings(node=NODE, **settings))
    capacity: Tree = {} if amount is None else {"capacity": {"dra.cpu/cpu": amount}}
    request = exactly(count=count, **capacity)
    return attempt([convert(tree, ResourceSlice) for tree in trees], claim("c", request))


def attributes(device: Tree) -> Tree:
    """Return attributes without their types."""
    return {name: next(iter(value.values())) for name, value in device["attributes"].items()}
