"""The common loop: keys are taken from a queue and reconciled, many at once, again and again until they fit.

Owns `Controller`, what a controller must offer, and how one key is worked on. Promises: whatever goes wrong
with one key is reported, tried again with growing delay, and keeps no other key from being worked on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from plimsoll.controllers.actions import Plan
from plimsoll.controllers.queue import FIRST_DELAY, WorkQueue
from plimsoll.errors import ApiError, PlimsollError

_log = logging.getLogger("plimsoll.controllers")
#: The delay from which on every failure is told.
_WORTH_TELLING = 1.0


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
            _put_off(controller, key, plan.trouble, logging.INFO)
        else:
            queue.forget(key)
            if plan.again is not None:
                queue.add_after(key, plan.again)
    except ApiError as error:
        # That somebody else was quicker is nothing to worry about.
        _put_off(controller, key, str(error), logging.DEBUG if error.code == 409 else logging.WARNING)
    except PlimsollError as error:
        _put_off(controller, key, str(error), logging.WARNING)
    except Exception as error:  # a bug in one controller must not stop the others
        _log.debug("trace", exc_info=error)
        _put_off(controller, key, f"{type(error).__name__}: {error}", logging.ERROR)
    finally:
        queue.done(key)


def _put_off(controller: Controller, key: Any, problem: str, level: int) -> None:
    """Have a key come back later; the first few times in a row come so quickly that one message will do."""
    delay = controller.queue.retry(key)
    if FIRST_DELAY < delay < _WORTH_TELLING:
        level = logging.DEBUG
    _log.log(level, "%s: %s: %s; again in %.3f s", controller.name, key, problem, delay)
