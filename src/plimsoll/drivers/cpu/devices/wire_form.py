"""What an API server keeps of devices.

Owns `detect_abilities`: fields behind a feature gate that is off are in the server's OpenAPI document all the
same, and are dropped from what is written, so it is asked with a slice that is checked and not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.forms import Form
from plimsoll.client.client import Client
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.drivers.cpu.devices.devices import CAPACITY, OFFLINE_TAINT, PCIE_ROOT, Abilities
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings
from plimsoll.drivers.cpu.settings import Mapping as MappingChoice
from plimsoll.drivers.plugin.wire_form import FIELDS, child, detect_form
from plimsoll.errors import ApiError


async def detect_abilities(client: Client, settings: CpuSettings) -> Abilities:
    """What the API server keeps of this driver's devices, in the form that the settings want.

    Asked by a slice that is checked and not stored. A server that refuses even that is taken to keep all.
    """
    form = _wanted(settings)
    if settings.mapping is MappingChoice.AUTO:
        form = await detect_form(client)
    # A server that drops lists has an attribute without a value then, and refuses the whole slice.
    for lists in (True, False):
        try:
            kept = await client.create(RESOURCE_SLICES, probe(settings.node, form, lists=lists), dry_run=True)
        except ApiError as error:
            if error.code not in (400, 403, 404, 405, 422):
                raise
        else:
            return read_abilities(kept, form)
    return Abilities(form)


def _wanted(settings: CpuSettings) -> Form | None:
    if settings.mapping is MappingChoice.V1_36:
        return Form.V1_36
    return Form.V1_37 if settings.mapping is MappingChoice.V1_37 else None


def probe(node: str, form: Form | None, *, lists: bool = True) -> dict[str, Any]:
    """A slice with every field of which the driver must know whether it is kept."""
    capacity = {"value": "2", "requestPolicy": {"default": "2", "validRange": {"min": "1", "step": "1"}}}
    device: dict[str, Any] = {
        "name": "probe",
        "attributes": {PCIE_ROOT: {"strings": ["pci0000:00"]}} if lists else {},
        "capacity": {CAPACITY: capacity},
        "allowMultipleAllocations": True,
        "taints": [{"key": OFFLINE_TAINT, "effect": "NoSchedule"}],
    }
    if form is Form.V1_36:
        device["nodeAllocatableResourceMappings"] = {"cpu": {"capacityKey": CAPACITY}}
    elif form is Form.V1_37:
        mapping = {"capacityKey": CAPACITY, "capacityMultiplier": "1"}
        device["nodeAllocatableResources"] = {"cpu": {"mapping": mapping}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "probe-"},
        "spec": {
            "driver": DRIVER_NAME,
            "nodeName": node,
            "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }


def read_abilities(kept: Any, form: Form | None) -> Abilities:
    """What is left of the probe."""
    devices = child(child(kept, "spec"), "devices")
    device = devices[0] if isinstance(devices, list) and devices else None
    if not isinstance(device, Mapping):
        return Abilities(form)
    if form is not None and not device.get(dict(FIELDS)[form]):
        form = None
    capacity = child(child(device, "capacity"), CAPACITY)
    root = child(child(device, "attributes"), PCIE_ROOT)
    return Abilities(
        form=form,
        policy=bool(child(capacity, "requestPolicy")),
        taints=bool(device.get("taints")),
        lists=bool(child(root, "strings")),
    )
