"""CPU state compared with a naive model under random events: claims, restarts, lost files, hotplug."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.settings import DeviceMode, PinSettings
from plimsoll.drivers.cpu.state import ClaimAllocation, CPUState
from plimsoll.drivers.cpu.state.cdi import read_files
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.protocols.dra import ClaimRef
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.state.fixtures import (
    INDIVIDUAL,
    MACHINE,
    AllocationSpec,
    Container,
    CPUStateFixture,
    make_claim,
    uid_of,
)

WHOLE = make_machine(sockets=2, cores=3, threads=2)  # CPUs 0-11
ALL = set(range(12))
SETTINGS: list[dict[str, Any]] = [
    {},
    MACHINE,
    INDIVIDUAL,
    {"reserved": CpuSet([0, 6])},
    {"min_shared": 2},
    {"pin": PinSettings(per_request_cpus=True, include_shared=True), "min_shared": 1},
]
some_cpus = st.sets(st.integers(0, 11), min_size=1, max_size=3)


class Naive:
    """Naive model in sets and loops: CPUs by claim, disputed claims, CPUs that only a file names."""

    def __init__(self) -> None:
        self.assigned: dict[str, set[int]] = {}
        self.contested: dict[str, set[int]] = {}
        self.disputed: set[str] = set()
        self.files: dict[str, set[int]] = {}

    def cpus(self, uid: str) -> set[int]:
        return self.assigned[uid] | self.contested.get(uid, set())

    def allocated(self) -> set[int]:
        allocated: set[int] = set()
        for uid in self.assigned:
            allocated |= self.cpus(uid)
        return allocated

    def forget_record(self) -> None:
        self.assigned, self.contested, self.disputed = {}, {}, set()

    def look(self, usable: set[int]) -> None:
        """Compare the checkpoint with the files."""
        for uid, named in self.files.items():
            if uid not in self.assigned:
                self.assigned[uid] = set(named)
                if not named <= usable:
                    self.disputed.add(uid)
            elif named != self.assigned[uid]:
                self.contested[uid] = self.contested.get(uid, set()) | (named - self.assigned[uid])
                self.disputed.add(uid)
        for uid in self.assigned:
            for other in self.assigned:
                if uid != other and self.cpus(uid) & self.cpus(other):
                    self.disputed.add(uid)
        for uid in self.assigned:
            if uid not in self.files and uid not in self.disputed:
                self.files[uid] = set(self.assigned[uid])


class CPUStateMachine(RuleBasedStateMachine):
    @initialize(extra=st.sampled_from(SETTINGS))
    def begin(self, extra: dict[str, Any]) -> None:
        self.plugin_dir = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
        self.fixture = CPUStateFixture(self.plugin_dir, WHOLE, dict(extra))
        self.model = Naive()
        self.asked: dict[str, AllocatedClaim] = {}
        self.count = 0
        self.shared_pool_in_use = False
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "plugin_dir"):
            shutil.rmtree(self.plugin_dir)

    def open(self) -> None:
        self.state: CPUState = self.fixture.open()
        self.state.shared_pool_in_use = lambda: self.shared_pool_in_use
        self.model.look(self.usable())

    def usable(self) -> set[int]:
        return set(self.state.topology.all - self.state.layout.reserved)

    def next_uid(self) -> str:
        self.count += 1
        return uid_of(self.count)

    def pick(self, number: int) -> str:
        return sorted(self.model.assigned)[number % len(self.model.assigned)]

    # -- claims

    @rule(
        device=st.integers(0, 40),
        amount=st.integers(1, 5),
        second=st.booleans(),
        shared_pool_in_use=st.booleans(),
    )
    def prepare(self, device: int, amount: int, second: bool, shared_pool_in_use: bool) -> None:
        domains = self.state.layout.domains
        if not domains:
            return
        self.shared_pool_in_use = shared_pool_in_use
        name = sorted(domains)[device % len(domains)]
        single = self.fixture.settings.mode is DeviceMode.INDIVIDUAL
        results = [AllocationSpec(name, None if single else str(amount), "a")]
        if second and not single:
            results.append(AllocationSpec(name, "1", "b", share="s"))
        claim = make_claim(self.next_uid(), *results)
        wanted = 1 if single else amount + len(results) - 1
        free = self.usable() - set(self.state.layout.always_shared) - self.model.allocated()
        left = len(self.usable() - self.model.allocated()) - wanted
        fits = len(free & set(domains[name].cpus)) >= wanted
        least = self.fixture.settings.min_shared or int(shared_pool_in_use)
        answer = self.state.prepare(claim)
        uid = claim.ref.uid
        if not fits or left < least:
            assert isinstance(answer, ClaimError)
            assert uid not in self.state.allocations
            return
        assert isinstance(answer, ClaimAllocation), answer
        assert len(answer.cpus) == wanted
        assert set(answer.cpus) <= free & set(domains[name].cpus)
        self.asked[uid] = claim
        self.model.assigned[uid] = set(answer.cpus)
        self.model.files[uid] = set(answer.cpus)

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 40))
    def prepare_again(self, number: int) -> None:
        uid = sorted(self.asked)[number % len(self.asked)]
        adopted = uid in self.state.allocations and self.state.allocations[uid].adopted
        answer = self.state.prepare(self.asked[uid])
        if uid in self.model.disputed:
            assert isinstance(answer, ClaimError)
        elif isinstance(answer, ClaimAllocation):
            assert set(answer.cpus) == self.model.assigned[uid]
        else:
            # What was taken over is measured against devices of today.
            assert adopted, answer

    @precondition(lambda self: self.model.assigned)
    @rule(number=st.integers(0, 40))
    def release(self, number: int) -> None:
        uid = self.pick(number)
        assert self.state.release(ClaimRef("default", "any", uid)) is None
        for known in (self.model.assigned, self.model.contested, self.model.files, self.asked):
            known.pop(uid, None)
        self.model.disputed.discard(uid)

    # -- restarts and files

    @rule()
    def restart(self) -> None:
        before = self.state.allocations
        self.open()
        assert self.state.allocations == before

    @rule()
    def damage_the_record(self) -> None:
        self.fixture.settings.checkpoint_path.parent.mkdir(parents=True, exist_ok=True)
        self.fixture.settings.checkpoint_path.write_bytes(b'{"kind":"CpuHoldings","version":1,"body":{}}')
        self.model.forget_record()
        self.open()
        self.asked = {uid: claim for uid, claim in self.asked.items() if uid in self.model.assigned}

    @rule(number=st.integers(0, 40))
    def lose_a_file(self, number: int) -> None:
        if not self.model.files:
            return
        uid = sorted(self.model.files)[number % len(self.model.files)]
        self.fixture.file(uid).unlink()
        del self.model.files[uid]
        self.open()

    @rule(cpus=some_cpus, restart=st.booleans())
    def find_a_foreign_file(self, cpus: set[int], restart: bool) -> None:
        uid = self.next_uid()
        self.fixture.write_foreign(uid, str(CpuSet(cpus)))
        self.model.files[uid] = cpus
        if restart:
            self.open()
        else:
            self.state.reconcile_files()
            self.model.look(self.usable())

    @precondition(lambda self: self.model.assigned)
    @rule(number=st.integers(0, 40), cpus=some_cpus)
    def alter_a_file(self, number: int, cpus: set[int]) -> None:
        uid = self.pick(number)
        self.fixture.write_foreign(uid, str(CpuSet(cpus)))
        self.model.files[uid] = cpus
        self.open()

    @precondition(lambda self: self.model.assigned)
    @rule(number=st.integers(0, 40), cpus=some_cpus)
    def meet_a_liar(self, number: int, cpus: set[int]) -> None:
        uid, pool = self.pick(number), set(self.state.shared)
        namespace = self.state.allocations[uid].ref.namespace or "default"
        self.state.check_containers([Container("p/c", {uid: CpuSet(cpus)}, namespace)])
        lies = cpus != self.model.assigned[uid]
        assert bool(self.state.allocations[uid].disputed) == (lies or uid in self.model.disputed)
        assert set(self.state.shared) <= pool
        assert bool(self.state.shared) == bool(pool)
        assert self.state.check_containers([]) == ()
        assert set(self.state.shared) == pool

    # -- the machine

    @rule(off=st.sets(st.integers(0, 11), max_size=6))
    def hotplug(self, off: set[int]) -> None:
        self.fixture.topology = switch_off(WHOLE, CpuSet(off)) if off else WHOLE
        before = self.state.allocations
        layout = compute_layout(
            self.fixture.topology,
            self.fixture.settings,
            earlier=self.state.layout,
            allocated=self.state.by_device,
        )
        findings = self.state.update_topology(self.fixture.topology, layout)
        assert self.state.allocations == before
        offline = [cpus & off for cpus in self.model.assigned.values() if cpus & off]
        reported = [found.what for found in findings if found.what.endswith("are offline")]
        assert sorted(what.split()[1] for what in reported) == sorted(str(CpuSet(each)) for each in offline)

    # -- invariants

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        if not hasattr(self, "state"):
            return
        allocations = self.state.allocations
        assert {
            uid: set(allocation.assigned) for uid, allocation in allocations.items()
        } == self.model.assigned
        assert {uid for uid, allocation in allocations.items() if allocation.disputed} == self.model.disputed
        for uid, allocation in allocations.items():
            assert set(allocation.cpus) == self.model.cpus(uid)
        assert set(self.state.shared) == self.usable() - self.model.allocated()
        files, faults = read_files(self.fixture.settings.cdi)
        assert not faults
        assert {uid: set(file.cpus) for uid, file in files.items()} == self.model.files

    @invariant()
    def who_may_start_has_its_cpus_alone(self) -> None:
        if not hasattr(self, "state"):
            return
        for uid, allocation in self.state.allocations.items():
            if not allocation.disputed:
                for other, rival in self.state.allocations.items():
                    assert uid == other or not allocation.cpus & rival.cpus
                assert not allocation.cpus & self.state.shared


TestCPUState = CPUStateMachine.TestCase
TestCPUState.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
