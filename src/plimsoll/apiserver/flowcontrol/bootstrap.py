"""Storage of the bootstrap FlowSchemas and PriorityLevelConfigurations, as kube-apiserver maintains them.

Missing objects are created again. The spec of a mandatory object is always restored; that of a suggested one
only while its annotation `apf.kubernetes.io/autoupdate-spec` is true, so that an administrator can take it
over. Objects with that annotation which are no bootstrap objects (any more) are deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.registry.flow_control_objects import (
    AUTO_UPDATE,
    EXEMPT,
    MANDATORY_FLOW_SCHEMAS,
    MANDATORY_LEVELS,
    SUGGESTED_FLOW_SCHEMAS,
    SUGGESTED_LEVELS,
    Tree,
)
from plimsoll.apiserver.validation.equality import trees_equal
from plimsoll.client import Client
from plimsoll.client.endpoints import FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS, Endpoint
from plimsoll.errors import ApiError

_log = logging.getLogger("plimsoll.server")

_MANAGER = "api-priority-and-fairness-config-producer-v1"
_INTERVAL_SECONDS = 60.0
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


async def ensure_bootstrap_objects(client: Client) -> None:
    """Create, restore and delete objects so that the configuration is complete; ApiError."""
    await _ensure(client, PRIORITY_LEVEL_CONFIGURATIONS, SUGGESTED_LEVELS, MANDATORY_LEVELS)
    await _ensure(client, FLOW_SCHEMAS, SUGGESTED_FLOW_SCHEMAS, MANDATORY_FLOW_SCHEMAS)


async def run_bootstrap(client: Client) -> None:
    """Maintain the bootstrap objects."""
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        try:
            await ensure_bootstrap_objects(client)
        except ApiError as error:
            _log.warning("cannot restore the configuration of API priority and fairness: %s", error)


async def _ensure(
    client: Client, endpoint: Endpoint, suggested: Iterable[Tree], mandatory: Iterable[Tree]
) -> None:
    listing = await client.list(endpoint)
    stored = {tree["metadata"]["name"]: tree for tree in map(codec.decode_tree, listing.items)}
    wanted = [*((tree, False) for tree in suggested), *((tree, True) for tree in mandatory)]
    await asyncio.gather(
        *(
            _ensure_object(client, endpoint, stored.pop(tree["metadata"]["name"], None), tree, is_mandatory)
            for tree, is_mandatory in wanted
        )
    )
    for name, tree in stored.items():
        if _parse_auto_update(tree):
            await _ignoring("NotFound", client.delete(endpoint, name))


async def _ensure_object(
    client: Client, endpoint: Endpoint, current: Tree | None, wanted: Tree, is_mandatory: bool
) -> None:
    if current is None:
        await _ignoring("AlreadyExists", client.create(endpoint, wanted, field_manager=_MANAGER))
        return
    revised = revise(current, wanted, is_mandatory=is_mandatory)
    if revised is not None:
        await _ignoring("Conflict", client.update(endpoint, revised, field_manager=_MANAGER))


async def _ignoring(reason: str, call: Any) -> None:
    """Await a call; if it fails for that reason, another client wrote the object at the same time."""
    try:
        await call
    except ApiError as error:
        if error.reason != reason:
            raise


def revise(current: Tree, wanted: Tree, *, is_mandatory: bool) -> Tree | None:
    """Return a stored object as it should be, or None if it is."""
    chosen = _parse_auto_update(current)
    keeps_spec = is_mandatory or (
        chosen if chosen is not None else current["metadata"].get("generation") == 1
    )
    revised = {**current}
    if keeps_spec:
        revised["spec"] = _adopt_spec(current.get("spec") or {}, wanted)
    if chosen != keeps_spec:
        annotations = current["metadata"].get("annotations") or {}
        annotations = {**annotations, AUTO_UPDATE: "true" if keeps_spec else "false"}
        revised["metadata"] = {**current["metadata"], "annotations": annotations}
    return None if trees_equal(revised, current) else revised


def _adopt_spec(spec: Tree, wanted: Tree) -> Tree:
    """Return the wanted spec; of the exempt level, the settings may be the administrator's."""
    if wanted["metadata"]["name"] == EXEMPT and spec.get("exempt"):
        return {**wanted["spec"], "exempt": {**wanted["spec"].get("exempt", {}), **spec["exempt"]}}
    return dict(wanted["spec"])


def _parse_auto_update(tree: Tree) -> bool | None:
    """Return whether the server may update an object by its annotation, or None if that is not given."""
    text = (tree["metadata"].get("annotations") or {}).get(AUTO_UPDATE)
    return _BOOLEANS.get(text) if text is not None else None
