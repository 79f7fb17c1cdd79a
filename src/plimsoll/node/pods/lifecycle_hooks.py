"""PostStart and preStop hooks of containers.

A hook fails if it does not finish within its timeout; its handler is that of a probe, or a sleep.
"""

from __future__ import annotations

import asyncio

from plimsoll.api.containers import LifecycleHandler
from plimsoll.api.core import Container, Pod
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.handlers import HandlerResult, run_handler
from plimsoll.node.pods.probes import pod_address

#: Timeout of a postStart hook, which may take long.
POST_START_SECONDS = 24 * 3600.0


def post_start_of(container: Container) -> LifecycleHandler | None:
    return container.lifecycle.post_start if container.lifecycle is not None else None


def pre_stop_of(pod: Pod, name: str) -> tuple[Container, LifecycleHandler] | None:
    """Return a container of a pod and its preStop hook, if it has one."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        if container.name == name and container.lifecycle is not None:
            handler = container.lifecycle.pre_stop
            return (container, handler) if handler is not None else None
    return None


async def run_hook(
    handler: LifecycleHandler,
    container: Container,
    id: str,
    pod: Pod,
    deps: WorkerDependencies,
    seconds: float,
) -> HandlerResult:
    """Run a hook of a running container."""
    if deps.skip_probes:
        return HandlerResult(True)
    if handler.sleep is not None:
        await asyncio.sleep(min(seconds, max(0, handler.sleep.seconds) * deps.timing.second))
        return HandlerResult(True)
    return await run_handler(handler, container, id, pod_address(pod, deps), deps.commands, seconds)
