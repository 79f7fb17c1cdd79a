"""Detection of the node-allocatable wire form that an API server supports.

`detect_form` reads the server's OpenAPI document. A server with its feature gates off still drops the fields,
and Kubernetes 1.37 rejects them for a node that does not declare the feature: `detect_kept_form` also creates
a slice in a dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plimsoll.api import codec
from plimsoll.api.forms import Form
from plimsoll.client.client import Client
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.common.json_tree import branch, items
from plimsoll.errors import ApiError, InputError

_DOCUMENT = "/openapi/v3/apis/resource.k8s.io/v1"
_SCHEMA = "io.k8s.api.resource.v1.Device"
#: Device field of each form, newest first.
FIELDS = ((Form.V1_37, "nodeAllocatableResources"), (Form.V1_36, "nodeAllocatableResourceMappings"))

#: Status codes with which an API server rejects a slice because of its content.
REJECTIONS = (400, 403, 422)


async def detect_kept_form(
    client: Client, driver: str, node: str, make_devices: Callable[[Form], Sequence[dict[str, Any]]]
) -> Form | None:
    """Return the form in which the API server keeps mappings of a node's devices, None if it does not."""
    form = await detect_form(client)
    devices = make_devices(form)[:1] if form is not None else ()
    if form is None or not devices:
        return form
    try:
        kept = await client.create(RESOURCE_SLICES, probe_slice(driver, node, devices), dry_run=True)
    except ApiError as error:
        if error.code not in REJECTIONS:
            raise
        return None
    return form if any(device.get(dict(FIELDS)[form]) for device in _kept_devices(kept)) else None


def probe_slice(driver: str, node: str, devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a slice for a dry run."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "probe-"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def _kept_devices(tree: Any) -> Sequence[dict[str, Any]]:
    return items(branch(tree, "spec"), "devices")


async def detect_form(client: Client) -> Form | None:
    """Return the newest form that the API server supports, or None if neither or unknown."""
    try:
        reply = await client.call("GET", _DOCUMENT)
        return read_form(codec.decode_tree(reply.body))
    except ApiError as error:
        if error.code in (401, 403, 404, 406):
            return None
        raise
    except InputError:
        return None


def read_form(document: Any) -> Form | None:
    """Return the newest form in an OpenAPI document."""
    known = branch(document, "components", "schemas", _SCHEMA, "properties")
    return next((form for form, name in FIELDS if name in known), None)
