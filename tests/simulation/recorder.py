"""Recorder of the script of a case, which goes on to a state that the case alone determines.

When faults have ended, pods that contend are removed until all others fit however they are placed; then a pod
is created for each device, and one too many of each kind.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

from plimsoll.client.endpoints import PODS, Endpoint
from plimsoll.client.transport import Reply
from tests.chaos.scheduler_faults.end_state import FILL, choose_pods_that_fit, summarize
from tests.chaos.scheduler_faults.faults import CallKind
from tests.chaos.scheduler_faults.small_cluster import NS, pod_tree
from tests.simulation.case import Case
from tests.simulation.events import Event
from tests.simulation.faults import Call, Fault, FaultPlan
from tests.simulation.features.chosen import ChosenFeatures
from tests.simulation.network import Stream
from tests.simulation.processes import LEASE
from tests.simulation.rest import read_objects
from tests.simulation.script import CONTROLLERS, LEADER, OTHER, Step, Target, target_of
from tests.simulation.workload import Admin, Mode

Tree = dict[str, Any]

#: Steps that faults of processes become. Clocks cannot jump in one process of a machine only.
_STEPS = {
    "scheduler killed": "kill",
    "scheduler paused": "pause",
    "scheduler suspended": "pause",
    "controllers killed": "kill",
    "server restarted": "restart",
    "history compacted": "expire",
    "watches cut": "cut",
    "watches held": "hold",
}
_WHO_AND_SECONDS = re.compile(r"(scheduler-\w|controllers|API server|watches) for ([\d.]+) s")


class RecordingCase(Case):
    """Case of the control plane alone that writes its script as it runs."""

    def __init__(self, seed: int, seconds: float) -> None:
        super().__init__(seed, mode=Mode.CONTROL_PLANE, seconds=seconds)
        self.features = ChosenFeatures(self, any_at_all=False)  # real processes do not have their actors
        self.steps: list[Step] = []
        self._leader = self._first_leader = ""
        self.admin = RecordingAdmin(self)
        self.faults = self.network.faults = RecordingFaults(self)

    def note(self, do: str, **details: Any) -> None:
        self.steps.append(Step(round(self.loop.now, 3), do, **details))

    def _on_write(self, change: Any) -> None:
        super()._on_write(change)
        if change.resource == "leases" and change.new is not None:
            self._leader = str(change.new["spec"].get("holderIdentity") or "").partition(".")[0]
            self._first_leader = self._first_leader or self._leader

    def role_of(self, process: str) -> str:
        """Return whether a scheduler has the lease, even if it has died."""
        return LEADER if process.partition(".")[0] == self._leader else OTHER

    def program_of(self, process: str) -> str:
        """Return the name of a program as scripts have it: `a` is the scheduler that leads first."""
        name = process.partition(".")[0]
        return name if name == CONTROLLERS else "a" if name == self._first_leader else "b"

    # -- course

    async def _direct(self) -> None:
        await super()._direct()
        pods = self.admin.pods()
        fitting = choose_pods_that_fit(pods)
        for tree in pods:
            if tree["metadata"]["name"] not in fitting:
                self.admin.delete(PODS, tree)
        await self._reach_state()
        for tree in self.admin.pods():
            self.admin.delete(PODS, tree)
        await self._reach_state()
        for kind, count in FILL.items():
            for number in range(count):
                self._create(f"fill-{kind}-{number}", kind)
        await self._reach_state()
        for kind in (*FILL, "either", "both", "extended"):
            self._create(f"extra-{kind}", kind)
        await self._reach_state()

    def _create(self, name: str, kind: str) -> None:
        self.admin.create(PODS, pod_tree(name, kind, cpu="100m"), NS)

    async def _reach_state(self) -> None:
        await self._await_rest()
        self.note("state", tree=summarize(read_objects(self)))

    def _end_faults(self) -> None:
        super()._end_faults()
        self.note("calm")

    # -- faults of processes and watches

    def _apply(self, event: Event) -> None:
        streams = {each: each.held_until for each in self.network.streams}
        done: list[str] = []

        def run(dice: Any) -> str:
            done.append(event.run(dice))
            return done[0]

        super()._apply(event._replace(run=run))
        if done and done[0] and event.fault in _STEPS:
            found = _WHO_AND_SECONDS.search(done[0])
            name, seconds = (found[1], float(found[2])) if found else ("", 0.0)
            who = self.role_of(name) if name.startswith("scheduler-") else name
            do = _STEPS[event.fault]
            watches = sorted(self._watches_hit(streams)) if do in ("cut", "hold", "expire") else []
            self.note(do, who=who, seconds=seconds, watches=watches)

    def _watches_hit(self, before: dict[Stream, float]) -> list[tuple[str, str]]:
        """Return the watches that were cut or held since."""
        return [
            (self.program_of(stream.process.name), stream.path.rsplit("/", 1)[-1])
            for stream, held_until in before.items()
            if stream not in self.network.streams or stream.held_until != held_until
        ]


class RecordingAdmin(Admin):
    """Requests of people, of which those that changed pods are recorded."""

    def __init__(self, case: RecordingCase) -> None:
        super().__init__(case.api)
        self._case = case

    def create(self, endpoint: Endpoint, tree: Tree, namespace: str = "") -> Reply:
        reply = super().create(endpoint, tree, namespace)
        if endpoint is PODS and reply.status < 300:
            self._case.note("create", tree=tree)
        return reply

    def delete(self, endpoint: Endpoint, tree: Tree, grace: int | None = None) -> Reply:
        reply = super().delete(endpoint, tree, grace)
        if not tree["metadata"].get("deletionTimestamp") and reply.status < 300:
            self._case.note("delete", name=tree["metadata"]["name"], grace=grace)
        return reply


class RecordingFaults(FaultPlan):
    """Faults of requests, recorded with the purpose of the request."""

    def __init__(self, case: RecordingCase) -> None:
        super().__init__(case.seed, LEASE)
        self._case = case
        self._calls: Counter[Target] = Counter()

    def choose(self, call: Call) -> Fault | None:
        program = call.process.partition(".")[0]
        target = target_of(program, call.method, call.path, watch=call.watch)
        self._calls[target] += 1
        fault = super().choose(call)
        if fault is None or target.call == CallKind.EVENT.value:
            return fault
        number = self._calls[target]
        if call.is_lease and program != CONTROLLERS:
            target, number = target._replace(who=self._case.role_of(program)), 0
        elif target.who == program:
            target = target._replace(who=self._case.program_of(program))
        seconds = round(fault.seconds, 3)
        self._case.note(
            "fault", target=target, number=number, fault=fault.kind.name, seconds=seconds, status=fault.status
        )
        return fault


def record(seed: int, seconds: float) -> tuple[list[Step], list[str]]:
    """Run the only case of a process; return its script with the states that it reached, and violations."""
    sys.unraisablehook = lambda unraisable: None  # coroutines that never end
    case = RecordingCase(seed, seconds)
    case.run()
    return case.steps, case.violations
