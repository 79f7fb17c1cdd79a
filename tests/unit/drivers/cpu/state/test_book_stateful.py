"""A book against a naive model, in any order of events: claims, restarts, lost and foreign files, hotplug."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices.groups import arrange
from plimsoll.drivers.cpu.settings import Mode, PinSettings
from plimsoll.drivers.cpu.state import CpuBook, Holding
from plimsoll.drivers.cpu.state.cdi import read_files
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.state.desk import INDIVIDUAL, MACHINE, Asked, Container, Desk, make_claim, uid_of

WHOLE = make_machine(sockets=2, cores=3, threads=2)  # CPUs 0-11
ALL = set(range(12))
SETTINGS: list[dict[str, Any]] = [
    {},
    MACHINE,
    INDIVIDUAL,
    {"reserved": CpuSet([0, 6])},
    {"min_shared": 2},
    {"pin": PinSettings(requests_apart=True, mix=True), "min_shared": 1},
]
some_cpus = st.sets(st.integers(0, 11), min_size=1, max_size=3)


class Naive:
    """What should be known, in sets and loops: CPUs by claim, claims in dispute, CPUs only a file names."""

    def __init__(self) -> None:
        self.granted: dict[str, set[int]] = {}
        self.contested: dict[str, set[int]] = {}
        self.disputed: set[str] = set()
        self.files: dict[str, set[int]] = {}

    def cpus(self, uid: str) -> set[int]:
        return self.granted[uid] | self.contested.get(uid, set())

    def held(self) -> set[int]:
        held: set[int] = set()
        for uid in self.granted:
            held |= self.cpus(uid)
        return held

    def forget_record(self) -> None:
        self.granted, self.contested, self.disputed = {}, {}, set()

    def look(self, usable: set[int]) -> None:
        """Compare record and files."""
        for uid, named in self.files.items():
            if uid not in self.granted:
                self.granted[uid] = set(named)
                if not named <= usable:
                    self.disputed.add(uid)
            elif named != self.granted[uid]:
                self.contested[uid] = self.contested.get(uid, set()) | (named - self.granted[uid])
                self.disputed.add(uid)
        for uid in self.granted:
            for other in self.granted:
                if uid != other and self.cpus(uid) & self.cpus(other):
                    self.disputed.add(uid)
        for uid in self.granted:
            if uid not in self.files and uid not in self.disputed:
                self.files[uid] = set(self.granted[uid])


class Books(RuleBasedStateMachine):
    @initialize(extra=st.sampled_from(SETTINGS))
    def begin(self, extra: dict[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
        self.desk = Desk(self.folder, WHOLE, dict(extra))
        self.model = Naive()
        self.asked: dict[str, AllocatedClaim] = {}
        self.count = 0
        self.needed = False
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def open(self) -> None:
        self.book: CpuBook = self.desk.open()
        self.book.needed = lambda: self.needed
        self.model.look(self.usable())

    def usable(self) -> set[int]:
        return set(self.book.topology.all - self.book.arrangement.reserved)

    def next_uid(self) -> str:
        self.count += 1
        return uid_of(self.count)

    def pick(self, number: int) -> str:
        return sorted(self.model.granted)[number % len(self.model.granted)]

    # -- claims

    @rule(device=st.integers(0, 40), amount=st.integers(1, 5), second=st.booleans(), needed=st.booleans())
    def prepare(self, device: int, amount: int, second: bool, needed: bool) -> None:
        domains = self.book.arrangement.domains
        if not domains:
            return
        self.needed = needed
        name = sorted(domains)[device % len(domains)]
        single = self.desk.settings.mode is Mode.INDIVIDUAL
        results = [Asked(name, None if single else str(amount), "a")]
        if second and not single:
            results.append(Asked(name, "1", "b", share="s"))
        claim = make_claim(self.next_uid(), *results)
        wanted = 1 if single else amount + len(results) - 1
        free = self.usable() - set(self.book.arrangement.floor) - self.model.held()
        left = len(self.usable() - self.model.held()) - wanted
        fits = len(free & set(domains[name].cpus)) >= wanted
        least = self.desk.settings.min_shared or int(needed)
        answer = self.book.prepare(claim)
        uid = claim.ref.uid
        if not fits or left < least:
            assert isinstance(answer, ClaimError)
            assert uid not in self.book.holdings
            return
        assert isinstance(answer, Holding), answer
        assert len(answer.cpus) == wanted
        assert set(answer.cpus) <= free & set(domains[name].cpus)
        self.asked[uid] = claim
        self.model.granted[uid] = set(answer.cpus)
        self.model.files[uid] = set(answer.cpus)

    @precondition(lambda self: self.asked)
    @rule(number=st.integers(0, 40))
    def prepare_again(self, number: int) -> None:
        uid = sorted(self.asked)[number % len(self.asked)]
        adopted = uid in self.book.holdings and self.book.holdings[uid].adopted
        answer = self.book.prepare(self.asked[uid])
        if uid in self.model.disputed:
            assert isinstance(answer, ClaimError)
        elif isinstance(answer, Holding):
            assert set(answer.cpus) == self.model.granted[uid]
        else:
            # What was taken over is measured against devices of today.
            assert adopted, answer

    @precondition(lambda self: self.model.granted)
    @rule(number=st.integers(0, 40))
    def release(self, number: int) -> None:
        uid = self.pick(number)
        assert self.book.release(ClaimRef("default", "any", uid)) is None
        for known in (self.model.granted, self.model.contested, self.model.files, self.asked):
            known.pop(uid, None)
        self.model.disputed.discard(uid)

    # -- restarts and files

    @rule()
    def restart(self) -> None:
        before = self.book.holdings
        self.open()
        assert self.book.holdings == before

    @rule()
    def damage_the_record(self) -> None:
        self.desk.settings.record.parent.mkdir(parents=True, exist_ok=True)
        self.desk.settings.record.write_bytes(b'{"kind":"CpuHoldings","version":1,"body":{}}')
        self.model.forget_record()
        self.open()
        self.asked = {uid: claim for uid, claim in self.asked.items() if uid in self.model.granted}

    @rule(number=st.integers(0, 40))
    def lose_a_file(self, number: int) -> None:
        if not self.model.files:
            return
        uid = sorted(self.model.files)[number % len(self.model.files)]
        self.desk.file(uid).unlink()
        del self.model.files[uid]
        self.open()

    @rule(cpus=some_cpus, restart=st.booleans())
    def find_a_foreign_file(self, cpus: set[int], restart: bool) -> None:
        uid = self.next_uid()
        self.desk.write_foreign(uid, str(CpuSet(cpus)))
        self.model.files[uid] = cpus
        if restart:
            self.open()
        else:
            self.book.recheck()
            self.model.look(self.usable())

    @precondition(lambda self: self.model.granted)
    @rule(number=st.integers(0, 40), cpus=some_cpus)
    def alter_a_file(self, number: int, cpus: set[int]) -> None:
        uid = self.pick(number)
        self.desk.write_foreign(uid, str(CpuSet(cpus)))
        self.model.files[uid] = cpus
        self.open()

    @precondition(lambda self: self.model.granted)
    @rule(number=st.integers(0, 40), cpus=some_cpus)
    def meet_a_liar(self, number: int, cpus: set[int]) -> None:
        uid, pool = self.pick(number), set(self.book.shared)
        namespace = self.book.holdings[uid].ref.namespace or "default"
        self.book.witness([Container("p/c", {uid: CpuSet(cpus)}, namespace)])
        lies = cpus != self.model.granted[uid]
        assert bool(self.book.holdings[uid].disputed) == (lies or uid in self.model.disputed)
        assert set(self.book.shared) <= pool
        assert bool(self.book.shared) == bool(pool)
        assert self.book.witness([]) == ()
        assert set(self.book.shared) == pool

    # -- the machine

    @rule(off=st.sets(st.integers(0, 11), max_size=6))
    def hotplug(self, off: set[int]) -> None:
        self.desk.topology = switch_off(WHOLE, CpuSet(off)) if off else WHOLE
        before = self.book.holdings
        arrangement = arrange(
            self.desk.topology, self.desk.settings, earlier=self.book.arrangement, held=self.book.by_device
        )
        self.book.change(self.desk.topology, arrangement)
        assert self.book.holdings == before
        assert set(self.book.lost) == {uid for uid, cpus in self.model.granted.items() if cpus & off}

    # -- what always holds

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        if not hasattr(self, "book"):
            return
        holdings = self.book.holdings
        assert {uid: set(holding.granted) for uid, holding in holdings.items()} == self.model.granted
        assert {uid for uid, holding in holdings.items() if holding.disputed} == self.model.disputed
        for uid, holding in holdings.items():
            assert set(holding.cpus) == self.model.cpus(uid)
        assert set(self.book.shared) == self.usable() - self.model.held()
        files, faults = read_files(self.desk.settings.cdi)
        assert not faults
        assert {uid: set(file.cpus) for uid, file in files.items()} == self.model.files

    @invariant()
    def who_may_start_has_its_cpus_alone(self) -> None:
        if not hasattr(self, "book"):
            return
        for uid, holding in self.book.holdings.items():
            if not holding.disputed:
                for other, rival in self.book.holdings.items():
                    assert uid == other or not holding.cpus & rival.cpus
                assert not holding.cpus & self.book.shared


TestBooks = Books.TestCase
TestBooks.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
