"""Event loop of the simulation: many processes, one thread, virtual time, and an order that a seed decides.

A process has clocks of its own (rate, wall time, time spent suspended) and can be paused or killed; its tasks
and timers carry it in their context. Of the processes that have something to run, the seed chooses the next
one; within a process, callbacks run in the order that asyncio guarantees, or in any order if `shuffled`.
Time passes when nothing is ready, and by the little that code spends (`Process.spend`).
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from tests.simulation.clocks import EPOCH, Running

T = TypeVar("T")

#: Time that every callback takes at least (seconds).
_STEP_SECONDS = 5e-6
#: Most time that code spends between two readings of the clock (seconds).
_SPENT = 0.002
#: Callbacks after which a case counts as endless.
_STEPS_MAX = 1_000_000
#: Most time for a call in a thread (seconds).
_THREAD_SECONDS = 0.02


class EndlessCaseError(Exception):
    """A case that goes on without end, or in which everything waits for ever."""


class Process:
    """Process of the simulation, or the machine itself (`SYSTEM`), which is never paused."""

    def __init__(
        self, loop: SimulationLoop, name: str, *, rate: float = 1.0, wall_offset: float = 0.0
    ) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.paused_until = 0.0
        #: Seconds of its clock per second of the simulation.
        self.rate = rate
        self.wall_offset = wall_offset
        #: Seconds in which the monotonic clock stood still.
        self.suspended = 0.0
        self.ready: deque[asyncio.Handle] = deque()
        #: Called when the process is killed: its connections break.
        self.on_death: list[Callable[[], None]] = []

    # -- clocks

    def monotonic(self) -> float:
        return (self.loop.now - self.suspended) * self.rate

    def uptime(self) -> float:
        """Return the clock that includes the time in which the machine was suspended."""
        return self.loop.now * self.rate

    def wall(self) -> float:
        return EPOCH + self.wall_offset + self.loop.now

    def spend(self) -> float:
        """Let a little time pass, as code that runs does; return the clock that measures it."""
        self.loop.now += self.loop.dice.random() * _SPENT
        return self.monotonic()

    def to_global(self, when: float) -> float:
        """Convert a time of the monotonic clock."""
        return when / self.rate + self.suspended

    # -- life

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this process."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        return self.loop.create_task(coroutine, context=context)

    def pause(self, seconds: float) -> None:
        """Stop running for a while; what arrives waits."""
        self.paused_until = max(self.paused_until, self.loop.now + seconds)
        self.loop.call_at_global(self.paused_until, lambda: None)

    def suspend(self, seconds: float) -> None:
        """Stop as a virtual machine does: its monotonic clock and its timers stand still."""
        self.pause(seconds)
        self.suspended += seconds
        self.loop.postpone_timers(self, seconds)

    def kill(self) -> None:
        """End at once, without running anything more."""
        if self.alive:
            self.alive = False
            self.loop.bury(self)
            self.ready.clear()
            for callback in self.on_death:
                callback()


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class NumberedFuture(asyncio.Future[Any]):
    """Future whose place in a set does not depend on its address in memory."""

    def __init__(self, *, loop: SimulationLoop) -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class NumberedTask(asyncio.Task[Any]):
    """Task whose place in a set does not depend on its address in memory."""

    def __init__(self, coroutine: Any, *, loop: SimulationLoop, **options: Any) -> None:
        self._number = loop.next_number()
        self.process = loop.owner(options.get("context"))
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class SimulationLoop(asyncio.BaseEventLoop):
    """Event loop that runs one callback at a time, chosen by the seed."""

    def __init__(self, dice: Random, *, shuffled: bool = False) -> None:
        super().__init__()
        self.dice = dice
        self._numbers = 0
        self.set_task_factory(
            lambda loop, coroutine, **options: NumberedTask(coroutine, loop=self, **options)
        )
        self.shuffled = shuffled
        self.now = 0.0
        self.steps = 0
        self.system = Process(self, "system")
        self.processes: list[Process] = [self.system]
        self._timers: list[tuple[float, int, Process, asyncio.TimerHandle]] = []
        self._sequence = 0
        #: Tasks of killed processes and abandoned generators: nothing of them runs, not even clean-up.
        self.buried: list[object] = []

    def process(self, name: str, *, rate: float = 1.0, wall_offset: float = 0.0) -> Process:
        """Create a process."""
        created = Process(self, name, rate=rate, wall_offset=wall_offset)
        self.processes.append(created)
        return created

    @property
    def current(self) -> Process:
        """Process whose code runs now."""
        return Running.process or self.system

    def owner(self, context: contextvars.Context | None) -> Process:
        """Return the process that a callback belongs to."""
        return self.current if context is None else context.get(_process, self.system)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- what asyncio calls

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    def time(self) -> float:
        return self.current.monotonic()

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        process = self.owner(context)
        if process.alive:
            process.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = self.current
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if process.alive:
            self._push(process.to_global(when), process, handle)
        return handle

    def call_at_global(self, when: float, callback: Any, *args: Any) -> None:
        """Run a callback of the system at a time of the simulation."""
        context = self._system_context
        self._push(when, self.system, asyncio.TimerHandle(when, callback, args, self, context))

    def postpone_timers(self, process: Process, seconds: float) -> None:
        self._timers = [
            (when + seconds if owner is process else when, number, owner, handle)
            for when, number, owner, handle in self._timers
        ]
        heapq.heapify(self._timers)

    def _push(self, when: float, process: Process, handle: asyncio.TimerHandle) -> None:
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, process, handle))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # it is skipped when it is due

    def run_in_executor(  # type: ignore[override]
        self, executor: object, function: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        """Run a function as a step of the loop, some time later."""
        result: asyncio.Future[T] = self.create_future()

        def call() -> None:
            try:
                value = function(*arguments)
            except BaseException as error:
                if not result.cancelled():
                    result.set_exception(error)
            else:
                if not result.cancelled():
                    result.set_result(value)

        self.call_later(self.dice.random() * _THREAD_SECONDS, call)
        return result

    def _asyncgen_finalizer_hook(self, generator: Any) -> None:
        if self.current.alive and not self.is_closed():
            super()._asyncgen_finalizer_hook(generator)  # type: ignore[misc]
        else:
            self.buried.append(generator)

    def _run_once(self) -> None:
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            _, _, process, timer = heapq.heappop(timers)
            if process.alive and not timer.cancelled():
                process.ready.append(timer)
        runnable = [each for each in self.processes if each.ready and each.paused_until <= now]
        if not runnable:
            if not timers:
                raise EndlessCaseError("everything waits and nothing is due")
            self.now = max(now, timers[0][0])
            return
        process = runnable[0] if len(runnable) == 1 else runnable[int(self.dice.random() * len(runnable))]
        if self.shuffled and len(process.ready) > 1:
            process.ready.rotate(-int(self.dice.random() * len(process.ready)))
        handle = process.ready.popleft()
        if handle.cancelled():
            return
        self.steps += 1
        self.now += _STEP_SECONDS
        if self.steps > _STEPS_MAX:
            raise EndlessCaseError(f"the case does not end: {process.name} runs {handle!r}")
        Running.process = process
        try:
            handle._run()
        finally:
            Running.process = None
        if not process.alive:
            process.ready.clear()

    # -- life

    def run_case(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine that directs a case, as the system, to its end."""
        context = contextvars.copy_context()
        context.run(_process.set, self.system)
        self._system_context = context
        Running.dice = Random(self.dice.getrandbits(64))
        task = self.create_task(main, context=context)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def bury(self, process: Process | None = None) -> None:
        """Keep the tasks of a process, or all, from running and from being reported."""
        for task in asyncio.all_tasks(self):
            if process is None or task.process is process:  # type: ignore[attr-defined]
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self.buried.append(task)

    def end(self) -> None:
        """Forget everything that has not ended, without running any of it."""
        self.bury()
        for process in self.processes:
            process.alive = False
            process.ready.clear()
        self._timers.clear()
