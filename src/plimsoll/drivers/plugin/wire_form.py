"""Detection of the node-allocatable wire form that an API server supports.

`detect_form` reads the server's OpenAPI document, and drivers publish in that form. A server with its feature
gates off may still drop the fields.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.api.forms import Form
from plimsoll.client.client import Client
from plimsoll.common.json_tree import branch
from plimsoll.errors import ApiError, InputError

_DOCUMENT = "/openapi/v3/apis/resource.k8s.io/v1"
_SCHEMA = "io.k8s.api.resource.v1.Device"
#: Device field of each form, newest first.
FIELDS = ((Form.V1_37, "nodeAllocatableResources"), (Form.V1_36, "nodeAllocatableResourceMappings"))


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
