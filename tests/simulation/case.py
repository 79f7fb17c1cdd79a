"""One case: a cluster, its load and its faults, all from one seed."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.api.server import ApiServer
from tests.simulation.clocks import EPOCH, Running
from tests.simulation.events import Event, plan_events
from tests.simulation.faults import Dice, FaultPlan, Weather
from tests.simulation.features.chosen import ChosenFeatures
from tests.simulation.history import History
from tests.simulation.invariants import Checker
from tests.simulation.kube_scheduler import kube_scheduler
from tests.simulation.loop import EndlessCaseError, SimulationLoop
from tests.simulation.network import Network
from tests.simulation.nodes import Nodes
from tests.simulation.placeholders import PlaceholderStates
from tests.simulation.processes import LEASE, Supervised, controllers, scheduler, scheduler_settings
from tests.simulation.rest import find_unrest
from tests.simulation.workload import Admin, Mode

#: Time with faults, and the longest time until the cluster is at rest afterward (seconds).
SECONDS, PATIENCE = 25.0, 240.0
#: How long a problem must last at rest, longer than any backoff of the scheduler's queue (seconds).
_LASTING = 90.0
_POLL = 2.0
_REFILL = 12


@dataclass
class Outcome:
    """Result of a case."""

    seed: int
    violations: list[str]
    history: History
    faults: Counter[str]
    injected: list[str]
    steps: int
    seconds: float
    bound: int = 0
    writes: int = 0


class Case:
    """Cluster of one seed; `allowed` are the faults and events that happen, None: all."""

    def __init__(
        self,
        seed: int,
        allowed: frozenset[str] | None = None,
        *,
        mode: Mode | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self.seed = seed
        self.seconds = seconds
        dice = self.dice("case")
        self.clocks_drift = dice.random() < 0.5
        self.has_election = dice.random() < 0.8
        self.mode = mode or dice.choice((Mode.CONTROL_PLANE, Mode.CONTROL_PLANE, Mode.NODES, Mode.STOCK))
        self.loop = SimulationLoop(Random(seed), shuffled=dice.random() < 0.3)
        self.loop.set_exception_handler(self._on_loop_error)
        self.faults = FaultPlan(seed, LEASE, allowed)
        self.history = History(self.loop)
        uids = Random(seed + 1)
        self.api = ApiServer(
            now=lambda: EPOCH + self.loop.now,
            new_uid=lambda: f"{uids.getrandbits(128):032x}",
            alpha_fields=self.mode is not Mode.STOCK,
        )
        self.api.on_write = self._on_write
        self.network = Network(self.loop, self.api, self.faults, self.history)
        records_charges = self.mode is not Mode.STOCK
        self.checker = Checker(records_charges, self.report, lambda: self.loop.now)
        self.admin = Admin(self.api)
        self.nodes: Nodes | None = None
        self.placeholders: PlaceholderStates | None = None
        self.features = ChosenFeatures(self, any_at_all=self.mode is Mode.CONTROL_PLANE)
        self.violations: list[str] = []
        self.bound = 0
        self.writes = 0
        self.at_rest = False
        names = ("scheduler-a", "scheduler-b") if self.has_election else ("scheduler-a",)
        settings = scheduler_settings(
            elect=self.has_election,
            with_kubelets=self.mode is not Mode.CONTROL_PLANE,
            binds=self.dice("binds").choice((128, 128, 8, 2)),
        )
        self.schedulers = [scheduler(self, name, settings) for name in names]
        self.programs: list[Supervised] = [*self.schedulers, controllers(self, "controllers")]
        if self.mode is not Mode.CONTROL_PLANE:
            self.nodes = Nodes(self, counts_claims=self.mode is Mode.NODES)
        if self.mode is Mode.STOCK:
            self.placeholders = PlaceholderStates(self.report)
            self.programs.append(kube_scheduler(self))

    def dice(self, name: str) -> Dice:
        return Dice(self.seed, name)

    # -- findings

    def report(self, violation: str) -> None:
        """Note a violation; the case ends at the first one."""
        self.violations.append(violation)
        self.history.note("checker", "VIOLATION", violation)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        what = context.get("task") or context.get("future") or context.get("handle")
        self.report(f"unexpected {error!r}: {context.get('message')}: {what!r}")

    def _on_write(self, change: Any) -> None:
        tree = change.new or change.old
        if change.resource not in ("events", "leases"):
            self.writes += 1
            self.history.note_write(change.type, tree)
        if change.resource == "pods" and change.new is not None and change.new["spec"].get("nodeName"):
            self.bound += not (change.old or {}).get("spec", {}).get("nodeName")
        self.checker.on_change(change.resource, change.old, change.new)
        if self.nodes is not None:
            self.nodes.checker.on_change(change.resource, change.old, change.new)
        self.features.on_change(change.resource, change.old, change.new)
        if self.placeholders is not None:
            self.placeholders.on_change(change.type == "DELETED", tree)

    # -- course

    def run(self) -> Outcome:
        """Run the case to its end."""
        handler = _ErrorHandler(self.report)
        logger = logging.getLogger("plimsoll")
        logger.addHandler(handler)
        gc.disable()
        try:
            self.loop.run_case(self._direct())
        except EndlessCaseError as error:
            self.report(str(error))
        finally:
            Running.process = None
            logger.removeHandler(handler)
            self.history.end()
            self.loop.end()
            if self.nodes is not None:
                self.nodes.end()
        return Outcome(
            self.seed,
            self.violations,
            self.history,
            self.faults.counts,
            self.faults.injected,
            self.loop.steps,
            self.loop.now,
            self.bound,
            self.writes,
        )

    async def _direct(self) -> None:
        self.admin.create_cluster(self.mode)
        if self.nodes is not None:
            self.nodes.start()
        for program in self.programs:
            program.start()
        self.history.note("case", "features", ", ".join(self.features.names))
        self.features.create_objects()
        for event in plan_events(self):
            await asyncio.sleep(max(0.0, event.at - self.loop.now))
            if self.violations:
                return
            self._apply(event)
        self._end_faults()
        await self._await_rest()
        if self.dice("refill").random() < 0.4:
            # Nothing of what was seen before may be forgotten: taints, what is taken, what is free.
            self.history.note("case", "more pods")
            for number in range(_REFILL):
                self.history.note("case", self.admin.create_pod(self.dice(f"refill/{number}")))
            await self._await_rest()

    def _apply(self, event: Event) -> None:
        if not (self.faults.permits(event.key) or event.key.startswith("end/")):
            return
        done = event.run(self.dice(event.key))
        if done:
            self.history.note("case", done, f"({event.key})")
            if event.fault:
                self.faults.note(event.key, event.fault)
            else:
                self.faults.injected.append(event.key)

    def _end_faults(self) -> None:
        self.faults.weather = Weather.CALM
        self.at_rest = True
        self.history.note("case", "faults end")
        self.network.up = True
        for program in self.programs:
            program.start()

    async def _await_rest(self) -> None:
        """Wait until nothing is wrong; report what stays wrong."""
        since: dict[str, float] = {}
        # Kubelets try again after up to a minute.
        patience, lasting_seconds = (PATIENCE, _LASTING) if self.nodes is None else (600.0, 240.0)
        deadline = self.loop.now + patience
        quiet_at, writes = 0.0, -1
        while not self.violations:
            await asyncio.sleep(_POLL)
            self._help_to_rest(deadline - patience)
            problems = find_unrest(self) + (self.nodes.find_leaks() if self.nodes is not None else [])
            since = {each: since.get(each, self.loop.now) for each in problems}
            if self.writes != writes:
                quiet_at, writes = self.loop.now, self.writes
            if not problems and not self.network.in_flight and self.loop.now - quiet_at > 3 * _POLL:
                break
            lasting = [each for each, start in since.items() if self.loop.now - start > lasting_seconds]
            if self.loop.now > deadline or lasting:
                for each in lasting or problems or ["writes do not end"]:
                    self.report(f"at rest: {each}")

    def _help_to_rest(self, since: float) -> None:
        """Do what kubelets, machines and people do in time."""
        if self.nodes is None:
            for _ in self.admin.finish_deletions():
                pass
            self.features.help_to_rest()
            return
        self.nodes.start()
        if self.loop.now - since > 60:
            self.nodes.release_forgotten_claims()


def simulate(seed: int, allowed: frozenset[str] | None = None, mode: Mode | None = None) -> Outcome:
    """Run a case and forget all of it but the outcome, without reports of coroutines that never ended."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    logging.getLogger("plimsoll").propagate = False
    try:
        outcome = Case(seed, allowed, mode=mode).run()
        logging.disable()
        gc.collect()
        return outcome
    finally:
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)


class _ErrorHandler(logging.Handler):
    """Reporter of exceptions that the product logs and does not expect."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):  # those are faults of devices
            self._report(f"logged {type(error).__name__}: {error}: {record.getMessage()}")
