"""The common loop: keys are taken from a queue and reconciled, many at once, again and again until they fit.

Owns `Controller`, what a controller must offer, and how one key is worked on. Promises: whatever goes wrong
with one key is reported, tried again with growing delay, and keeps no other key from being worked on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from plimsoll.cluster.controllers.actions import Plan
from plimsoll.cluster.controllers.queue import WorkQueue
from plimsoll.errors import ApiError, PlimsollError

_log = logging.getLogger("plimsoll.controllers")


class Controller(Protocol):
    """One concern: it puts keys into its queue when objects change, and knows what to do for a key."""

    @property
    def name(self) -> str: ...

    @property
    def queue(self) -> WorkQueue[Any]: ...

    @property
    def workers(self) -> int: ...

    async def reconcile(self, key: Any) -> Plan:
        """Bring what a key stands for in order; the plan that comes back says whether to look again."""
        ...


async def run(controller: Controller) -> None:
    """Work on keys until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.queue.run_timer())
        for _ in range(controller.workers):
            group.create_task(_work(controller))


async def _work(controller: Controller) -> None:
    while True:
        await process(controller, await controller.queue.next())


async def process(controller: Controller, key: Any) -> None:
    """Work on one key, which the queue has given out."""
    queue = controller.queue
    try:
        plan = await controller.reconcile(key)
        if plan.trouble:
            delay = queue.retry(key)
            _log.info("%s: %s: %s; again in %.3f s", controller.name, key, plan.trouble, delay)
        else:
            queue.forget(key)
            if plan.again is not None:
                queue.add_after(key, plan.again)
    except ApiError as error:
        delay = queue.retry(key)
        level = logging.DEBUG if error.code == 409 else logging.WARNING
        _log.log(level, "%s: %s: %s; again in %.3f s", controller.name, key, error, delay)
    except PlimsollError as error:
        _log.warning("%s: %s: %s; again in %.3f s", controller.name, key, error, queue.retry(key))
    except Exception as error:  # a bug in one controller must not stop the others
        _log.debug("trace", exc_info=error)
        delay = queue.retry(key)
        _log.error(
            "%s: %s: %s: %s; again in %.3f s", controller.name, key, type(error).__name__, error, delay
        )
    finally:
        queue.done(key)
