"""Reconcile loop common to all controllers.

An error for one key is logged and retried with exponential backoff; it never blocks other keys.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from plimsoll.controllers.actions import ActionPlan
from plimsoll.controllers.work_queue import FIRST_DELAY, WorkQueue
from plimsoll.errors import ApiError, PlimsollError

_log = logging.getLogger("plimsoll.controllers")
#: Backoff from which every failure is logged at its own level.
_QUIET_BACKOFF = 1.0


class Controller(Protocol):
    """Interface of a controller: adds keys to its queue when objects change, and reconciles one key at a
    time.
    """

    @property
    def name(self) -> str: ...

    @property
    def queue(self) -> WorkQueue[Any]: ...

    @property
    def workers(self) -> int: ...

    async def reconcile(self, key: Any) -> ActionPlan:
        """Reconcile the object of a key; the returned plan states whether and when to reconcile again."""
        ...


async def run_controller(controller: Controller) -> None:
    """Process keys until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.queue.run_timer())
        for _ in range(controller.workers):
            group.create_task(_work(controller))


async def _work(controller: Controller) -> None:
    while True:
        await process_key(controller, await controller.queue.next())


async def process_key(controller: Controller, key: Any) -> None:
    """Reconcile one key taken from the queue."""
    queue = controller.queue
    try:
        plan = await controller.reconcile(key)
        if plan.error:
            _requeue(controller, key, plan.error, logging.INFO)
        else:
            queue.forget(key)
            if plan.requeue_after is not None:
                queue.add_after(key, plan.requeue_after)
    except ApiError as error:
        # Conflicts are expected and retried.
        _requeue(controller, key, str(error), logging.DEBUG if error.code == 409 else logging.WARNING)
    except PlimsollError as error:
        _requeue(controller, key, str(error), logging.WARNING)
    except Exception as error:  # a bug in one controller must not stop the others
        _log.debug("unexpected error", exc_info=error)
        _requeue(controller, key, f"{type(error).__name__}: {error}", logging.ERROR)
    finally:
        queue.done(key)


def _requeue(controller: Controller, key: Any, problem: str, level: int) -> None:
    """Requeue a key with backoff; of the quick first retries only one is logged above debug level."""
    delay = controller.queue.retry(key)
    if FIRST_DELAY < delay < _QUIET_BACKOFF:
        level = logging.DEBUG
    _log.log(level, "%s: %s: %s; retrying in %.3f s", controller.name, key, problem, delay)
