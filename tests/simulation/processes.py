"""Processes of the control plane: schedulers with their supervisor, and controllers."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from plimsoll.client import Client
from plimsoll.controllers.manager import ControllerManager
from plimsoll.errors import LeaseLostError
from plimsoll.scheduler.process.configuration import LeaderElection, SchedulerSettings
from plimsoll.scheduler.process.placeholder_writer import PlaceholderSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.simulation.faults import Dice
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from tests.simulation.case import Case

#: Times of the lease (seconds): short, so that it is often lost within a case.
LEASE, RENEW, RETRY = 4.0, 3.0, 0.5
#: Longest time for devices and volumes of a pod to become ready (milliseconds).
BINDING_MS = 6000
#: Time that a scheduler has for its bindings when it is stopped (seconds).
STOP_SECONDS = 3.0
CONTROLLERS = (
    "resourceclaim-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "device-taint-eviction-controller",
)


class Supervised:
    """Program that is started again whenever its process has ended."""

    def __init__(self, case: Case, name: str, run: Callable[[Client, Process], Awaitable[None]]) -> None:
        self._case = case
        self.name = name
        self._run = run
        self._starts = 0
        self.process: Process | None = None
        #: Asks the process to end in good order.
        self.stop: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start a process, unless one is running."""
        if self.process is not None and self.process.alive:
            return
        self._starts += 1
        name = f"{self.name}.{self._starts}"
        dice = Dice(self._case.seed, name)
        rate = dice.between(0.98, 1.02) if self._case.clocks_drift else 1.0
        self.process = self._case.loop.process(name, rate=rate, wall_offset=dice.between(-30, 30))
        self.process.start(self._live(self.process))

    async def _live(self, process: Process) -> None:
        case = self._case
        client = Client(case.network.transport(process, self.name), user_agent=self.name)
        try:
            await self._run(client, process)
        except LeaseLostError:
            case.history.note(process.name, "lost its lease")
        except Exception as error:
            if not process.alive:
                return
            case.report(f"{process.name} ended: {type(error).__name__}: {error}")
        process.kill()
        self.start_later(case.dice(f"{process.name}/restart").between(0.1, 1))

    def kill(self, seconds: float) -> None:
        """Kill the process; its supervisor starts another one after some seconds."""
        if self.process is not None and self.process.alive:
            self.process.kill()
            self.start_later(seconds)

    def start_later(self, seconds: float) -> None:
        self._case.loop.call_at_global(self._case.loop.now + seconds, self.start)


def scheduler_settings(*, elect: bool, with_kubelets: bool, binds: int = 128) -> SchedulerSettings:
    """Return the settings of a scheduler; without kubelets, no placeholder would be admitted."""
    placeholders = PlaceholderSettings(mode="Auto" if with_kubelets else "Off")
    election = LeaderElection(elect=elect, lease=LEASE, renew=RENEW, retry=RETRY)
    settings = SchedulerSettings()
    profiles = tuple(
        dataclasses.replace(each, binding_timeout_ms=BINDING_MS, volume_timeout_ms=BINDING_MS)
        for each in settings.profiles
    )
    return msgspec.structs.replace(
        settings,
        profiles=profiles,
        election=election,
        named_seconds=0.5,
        generated_seconds=2.0,
        binds=binds,
        stop_seconds=STOP_SECONDS,
        placeholders=placeholders,
    )


def scheduler(case: Case, name: str, settings: SchedulerSettings) -> Supervised:
    async def run(client: Client, process: Process) -> None:
        program = SchedulerProcess(client, settings, identity=process.name)
        supervised.stop = program.stop
        await program.run()

    supervised = Supervised(case, name, run)
    return supervised


def controllers(case: Case, name: str) -> Supervised:
    async def run(client: Client, process: Process) -> None:
        await ControllerManager(client, only=CONTROLLERS).run()

    return Supervised(case, name, run)
