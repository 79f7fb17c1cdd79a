"""Status of FlowSchemas: the condition Dangling reports a missing priority level."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from datetime import datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.flowcontrol.flow_controller import FlowController
from plimsoll.apiserver.registry.flow_control_objects import API_VERSION, Tree
from plimsoll.client import Client
from plimsoll.client.endpoints import FLOW_SCHEMAS
from plimsoll.errors import ApiError

_log = logging.getLogger("plimsoll.server")

_MANAGER = "api-priority-and-fairness-config-consumer-v1"
#: Time before each pass, so that neither the start of the server nor a client that writes other conditions
#: has to wait for it.
_PAUSE_SECONDS = 0.2


async def run_flow_schema_status(
    client: Client, controller: FlowController, now: Callable[[], datetime]
) -> None:
    """Update the conditions whenever the configuration changes."""
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        controller.changed.clear()
        try:
            await update_conditions(client, controller, now)
        except ApiError as error:
            _log.warning("cannot update the status of a FlowSchema: %s", error)
        await controller.changed.wait()


async def update_conditions(client: Client, controller: FlowController, now: Callable[[], datetime]) -> None:
    """Write the conditions that are not correct; ApiError."""
    levels = controller.configuration.levels
    for raw in (await client.list(FLOW_SCHEMAS)).items:
        tree = codec.decode_tree(raw)
        condition = find_condition(tree, levels)
        if condition is None:
            continue
        condition["lastTransitionTime"] = format_datetime(now())
        name = tree["metadata"]["name"]
        patch = {
            "apiVersion": API_VERSION,
            "kind": "FlowSchema",
            "metadata": {"name": name},
            "status": {"conditions": [condition]},
        }
        try:
            await client.patch(
                FLOW_SCHEMAS,
                name,
                patch,
                subresource="status",
                type="apply",
                field_manager=_MANAGER,
                force=True,
            )
        except ApiError as error:
            if error.reason != "NotFound":
                raise


def find_condition(tree: Tree, levels: Container[str]) -> dict[str, Any] | None:
    """Return the condition that a FlowSchema should have, or None if it has it."""
    level = ((tree.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", "")
    start = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if level in levels:
        wanted = {"status": "False", "reason": "Found", "message": f"{start} and it exists"}
    else:
        wanted = {"status": "True", "reason": "NotFound", "message": f"{start} but there is no such object"}
    for condition in (tree.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Dangling" and condition.items() >= wanted.items():
            return None
    return {"type": "Dangling", **wanted}
