"""Container creation: calls the plugins for their adjustments, then the validators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from plimsoll.api.go_text import quote_go
from plimsoll.node.nri import checks
from plimsoll.node.nri.merge import ContainerCreation
from plimsoll.node.nri.required import required_fault
from plimsoll.node.nri.session import PluginSession
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.events import NriEvent
from plimsoll.protocols.ttrpc import TtrpcFault

logger = logging.getLogger(__name__)


async def request_adjustments(
    plugins: Sequence[PluginSession],
    pod: nri.PodSandbox,
    creation: ContainerCreation,
    required: Sequence[str],
    on_evict: Callable[[Iterable[nri.ContainerEviction], str], None],
) -> str | None:
    """Call the plugins in order and merge their adjustments; return why the container must not be created.

    `required` names plugins that must be connected; `on_evict` receives the evictions that a plugin requests.
    """
    before = nri.Container()
    before.CopyFrom(creation.container)
    validators = [plugin for plugin in plugins if plugin.is_validator]
    for plugin in plugins:
        if not plugin.subscribed(NriEvent.CREATE_CONTAINER):
            continue
        request = nri.CreateContainerRequest(pod=pod, container=creation.container)
        response = await plugin.deliver(NriEvent.CREATE_CONTAINER, request)
        if isinstance(response, TtrpcFault):
            if response.fatal:
                continue
            return response.message
        if text := creation.add(response, plugin.name):
            return text
        log_unsupported(plugin.name, checks.unsupported_fields(response.adjust))
        on_evict(response.evict, plugin.name)
    present = [(plugin.index, plugin.base) for plugin in plugins]
    if text := required_fault(pod.annotations, creation.container.name, required, present):
        return f'validator "00-default-validator" rejected container adjustment, reason: {text}'
    return await _validate(validators, pod, before, creation, present)


async def _validate(
    validators: Sequence[PluginSession],
    pod: nri.PodSandbox,
    container: nri.Container,
    creation: ContainerCreation,
    present: Sequence[tuple[str, str]],
) -> str | None:
    if not validators:
        return None
    request = nri.ValidateContainerAdjustmentRequest(
        pod=pod,
        container=container,
        adjust=creation.adjust,
        update=creation.changes.messages(),
        owners=creation.owners.message(),
        plugins=[nri.PluginInstance(name=base, index=index) for index, base in present],
    )
    event = NriEvent.VALIDATE_CONTAINER_ADJUSTMENT
    responses = await asyncio.gather(*(plugin.deliver(event, request) for plugin in validators))
    for plugin, response in zip(validators, responses, strict=True):
        if isinstance(response, TtrpcFault):
            return f"validator plugin {plugin.name} failed: {response.message}"
        if response.reject:
            reason = response.reason or "unknown rejection reason"
            return f"validator {quote_go(plugin.name)} rejected container adjustment, reason: {reason}"
    return None


def log_unsupported(plugin: str, names: Sequence[str]) -> None:
    """Log the requested fields that are not supported."""
    if names:
        logger.warning("NRI plugin %s requested unsupported adjustments: %s", plugin, ", ".join(names))
