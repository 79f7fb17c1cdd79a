"""Detection of the device fields that an API server stores.

Fields behind a disabled feature gate are in the server's OpenAPI document but dropped on write, so detection
uses a dry-run creation of a slice.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from plimsoll.api.forms import Form
from plimsoll.api.resource import PCIE_ROOT
from plimsoll.client.client import Client
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.common.json_tree import branch, items
from plimsoll.drivers.cpu.devices.devices import OFFLINE_TAINT, ServerCapabilities
from plimsoll.drivers.cpu.settings import CAPACITY, DRIVER_NAME, CpuSettings
from plimsoll.drivers.cpu.settings import Mapping as MappingChoice
from plimsoll.drivers.plugin.wire_form import FIELDS, detect_form, probe_slice
from plimsoll.errors import ApiError


async def detect_capabilities(client: Client, settings: CpuSettings) -> ServerCapabilities:
    """Detect which fields of this driver's devices the API server stores.

    Uses a dry-run creation. A server that rejects it is assumed to store all fields.
    """
    wanted = _wanted(settings)
    forms: tuple[Form | None, ...] = (wanted,)
    if settings.mapping is MappingChoice.AUTO:
        wanted = await detect_form(client)
        # Kubernetes 1.37 rejects mappings for a node that does not declare the feature.
        forms = (wanted, None) if wanted is not None else (None,)
    # A server that drops lists rejects the slice, because the attribute then has no value.
    for form, lists in product(forms, (True, False)):
        try:
            kept = await client.create(RESOURCE_SLICES, probe(settings.node, form, lists=lists), dry_run=True)
        except ApiError as error:
            if error.code not in (400, 403, 404, 405, 422):
                raise
        else:
            return read_capabilities(kept, form)
    return ServerCapabilities(wanted)


def _wanted(settings: CpuSettings) -> Form | None:
    if settings.mapping is MappingChoice.V1_36:
        return Form.V1_36
    return Form.V1_37 if settings.mapping is MappingChoice.V1_37 else None


def probe(node: str, form: Form | None, *, lists: bool = True) -> dict[str, Any]:
    """Build a slice with all fields whose support must be known."""
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
    return probe_slice(DRIVER_NAME, node, [device])


def read_capabilities(kept: Any, form: Form | None) -> ServerCapabilities:
    """Read the capabilities from the stored probe."""
    devices = items(branch(kept, "spec"), "devices")
    if not devices:
        return ServerCapabilities(form)
    device = devices[0]
    if form is not None and not device.get(dict(FIELDS)[form]):
        form = None
    return ServerCapabilities(
        form=form,
        policy=bool(branch(device, "capacity", CAPACITY, "requestPolicy")),
        taints=bool(device.get("taints")),
        lists=bool(branch(device, "attributes", PCIE_ROOT).get("strings")),
        sharing=bool(device.get("allowMultipleAllocations")),
    )
