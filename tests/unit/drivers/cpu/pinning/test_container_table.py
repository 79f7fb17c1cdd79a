"""The roll of containers under random events, beside a runtime of which everything is known.

The runtime here is the naive one: it keeps the CPUs of every container as they really are, does the changes
it is told in answers or fails some of them without a word, and knows containers only when they are made.
Whatever happens, a container that is made with exclusive CPUs shares none of them with others, unless a
change was swallowed, and then the next round brings it in line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.pinning.container_table import Admission, Change, Roll, agrees, given
from plimsoll.drivers.cpu.pinning.plan import ContainerView, PinFault, Reason, Scene, Wanted, take_scene
from plimsoll.drivers.cpu.settings import PinSettings
from tests.unit.drivers.cpu.machines import switch_off
from tests.unit.drivers.cpu.pinning.parts import Book, cpus, hold, machine, scene, view

A = hold("a", "0-1")


# -- single rules


def test_what_a_container_has_is_compared_as_sets() -> None:
    wish = Wanted(cpus("0-2"), mems="0-1", lift_quota=True)
    assert agrees(view("c", cpus="0,1,2", mems="0,1"), wish)
    assert agrees(view("c", cpus="0-2", mems="0-1", quota=-1), wish)
    assert not agrees(view("c", cpus="0-3", mems="0-1"), wish)
    assert not agrees(view("c", cpus="0-2"), wish)
    assert not agrees(view("c", cpus="0-2", mems="0-1", quota=5000), wish)
    assert not agrees(view("c", cpus="nonsense"), wish)
    assert agrees(view("c", cpus="7"), Wanted(CpuSet()))
    assert agrees(given(view("c", quota=5000), wish), wish)


def test_an_exclusive_container_waits_for_those_that_cannot_leave() -> None:
    """The pool is empty, and a shared container runs."""
    book = Book(machine(2))
    roll = Roll()
    roll.start_over({}, [view("s", cpus="0-1")])
    book.hold(hold("a", "0-1"))
    found = roll.admit(view("own", hold("a", "0-1")), scene(book), patient=True)
    assert isinstance(found, PinFault)
    assert found.reason is Reason.CROWDED


def test_a_container_of_unknown_cpus_counts_as_being_everywhere() -> None:
    roll = Roll()
    roll.start_over({}, [view("s")])
    book = Book(machine(4), A)
    found = roll.admit(view("own", A), scene(book), patient=False)
    assert isinstance(found, Admission)
    assert [change.view.id for change in found.changes] == ["s"]
    book.hold(hold("b", "2-3"))
    roll.entries["s"].view = view("s")
    assert isinstance(roll.admit(view("two", hold("b", "2-3")), scene(book), patient=False), PinFault)


def test_an_owner_is_forgotten_with_its_claim() -> None:
    roll, book = Roll(), Book(machine(4), A)
    assert isinstance(roll.admit(view("one", A, pod="p"), scene(book), patient=True), Admission)
    assert roll.owners == {"a": "uid-p"}
    book.release("a")
    book.hold(hold("a", "2"))
    roll.prune(scene(Book(machine(4))))
    assert roll.owners == {}


def test_an_owner_outlives_its_containers_but_not_its_sandboxes() -> None:
    roll, book = Roll(), Book(machine(4), A)
    roll.add_sandbox("sb1", "uid-p")
    roll.add_sandbox("sb2", "uid-p")
    roll.admit(view("one", A, pod="p"), scene(book), patient=True)
    roll.forget("one")
    roll.forget_sandbox("sb1")
    assert roll.owners == {"a": "uid-p"}
    roll.forget_sandbox("sb2")
    assert roll.owners == {}
    roll.forget_sandbox("unknown")


def test_answers_of_another_time_change_nothing() -> None:
    roll, book = Roll(), Book(machine(4), A)
    roll.start_over({}, [view("s", cpus="0-3")])
    (old,) = roll.due(scene(book))
    roll.start_over({}, [view("s", cpus="0-3")])
    assert roll.doubt(old, "late") is None
    assert roll.entries["s"].refused is None
    roll.say(replace(old, view=view("gone")), sure=True)
    assert roll.doubt(replace(old, view=view("gone")), "late") is None


# -- everything at once


@dataclass
class Real:
    """A container as it really is."""

    view: ContainerView
    cpus: CpuSet
    made: bool = False


@dataclass
class Making:
    view: ContainerView
    wanted: Wanted
    failing: bool = field(default=False)


class Runtime(RuleBasedStateMachine):
    """Events in any order."""

    @initialize(count_=st.integers(3, 8), patient=st.booleans(), mix=st.booleans())
    def begin(self, count_: int, patient: bool, mix: bool) -> None:
        self.whole = machine(count_)
        self.book = Book(self.whole)
        self.roll = Roll()
        self.patient = patient
        self.pin = PinSettings(mix=mix)
        self.real: dict[str, Real] = {}
        self.numbers = count(1)
        #: Containers for which a change was swallowed since they were last asked about for sure.
        self.cheated: set[str] = set()

    def scene(self) -> Scene:
        return take_scene(self.book, self.book.topology, self.pin)

    def carry_out(self, changes: Any, fail: bool = False) -> None:
        """An answer's changes; failures are not told."""
        for change in changes:
            self.roll.say(change, sure=False)
            real = self.real.get(change.view.id)
            if real is None or not real.made:
                continue
            if fail:
                self.cheated.add(change.view.id)
            else:
                self.cheated.discard(change.view.id)
                real.cpus = change.wanted.cpus

    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        free = list(self.book.shared)
        if len(free) < 2:
            return
        chosen = data.draw(st.sets(st.sampled_from(free), min_size=1, max_size=len(free) - 1))
        self.book.hold(hold(f"u{next(self.numbers)}", str(CpuSet(chosen))))

    @rule(data=st.data())
    @precondition(lambda self: bool(self.book.holdings))
    def release(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.book.holdings)))
        if not any(uid in real.view.claims for real in self.real.values()):
            self.book.release(uid)

    @rule(data=st.data(), fail=st.booleans(), done=st.booleans())
    def create(self, data: st.DataObject, fail: bool, done: bool) -> None:
        held = sorted(self.book.holdings)
        claims = st.sets(st.sampled_from(held), min_size=data.draw(st.integers(0, 1)), max_size=2)
        uids = data.draw(claims) if held else ()
        id = f"c{next(self.numbers)}"
        asked = view(id, *(self.book.holdings[uid] for uid in uids), pod=data.draw(st.sampled_from("pq")))
        found = self.roll.admit(asked, self.scene(), patient=self.patient)
        if isinstance(found, PinFault):
            assert id not in self.roll.entries
            return
        assert found.wanted.cpus
        self.carry_out(found.changes, fail)
        swallowed = {change.view.id for change in found.changes} if fail else set()
        self.real[id] = Real(asked, found.wanted.cpus)
        for other, real in self.real.items():
            crowded = real.cpus & found.wanted.exclusive
            if other == id or not crowded:
                continue
            same = real.view.claims.keys() & asked.claims.keys()
            assert same or other in swallowed or (self.patient and not real.made), (id, other)
        if done:
            self.finish(id)

    def finish(self, id: str) -> None:
        real = self.real[id]
        real.made = True
        self.roll.see(replace(real.view, cpus=str(real.cpus)))

    @rule(data=st.data())
    @precondition(lambda self: any(not real.made for real in self.real.values()))
    def created(self, data: st.DataObject) -> None:
        self.finish(data.draw(st.sampled_from(sorted(id for id, real in self.real.items() if not real.made))))

    @rule(data=st.data())
    @precondition(lambda self: bool(self.real))
    def stop(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.real)))
        del self.real[id]
        self.cheated.discard(id)
        assert self.roll.forget(id)
        self.carry_out(self.roll.due(self.scene()))

    @rule(failing=st.booleans())
    def push(self, failing: bool) -> None:
        """The plugin's own call: what fails is told."""
        changes: list[Change] = self.roll.due(self.scene(), unsure=True)
        for position, change in enumerate(changes):
            if failing and position % 2:
                self.roll.doubt(change, "failed")
            else:
                self.real[change.view.id].cpus = change.wanted.cpus
                self.cheated.discard(change.view.id)
                self.roll.say(change, sure=True)
        assert failing or not self.roll.due(self.scene(), unsure=True)

    @rule()
    def reconnect(self) -> None:
        """Everything is told anew, as it really is."""
        self.roll.start_over(
            {}, [replace(real.view, cpus=str(real.cpus)) for real in self.real.values() if real.made]
        )
        self.real = {id: real for id, real in self.real.items() if real.made}
        self.cheated.clear()
        self.carry_out(self.roll.due(self.scene()))

    @rule(data=st.data())
    def hotplug(self, data: st.DataObject) -> None:
        off = data.draw(st.sets(st.sampled_from(list(self.whole.all)), max_size=len(self.whole.all) - 1))
        self.book.change(switch_off(self.whole, CpuSet(off)))

    @invariant()
    def nobody_is_left_without_cpus(self) -> None:
        for change in self.roll.due(self.scene(), unsure=True):
            assert change.wanted.cpus
            assert change.wanted.cpus <= self.book.topology.all

    @invariant()
    def after_a_round_that_works_exclusive_cpus_are_exclusive(self) -> None:
        """What would come of a push now, for all that have been made and can be brought in line."""
        after = {id: real.cpus for id, real in self.real.items() if real.made}
        after |= {change.view.id: change.wanted.cpus for change in self.roll.due(self.scene(), unsure=True)}
        verdicts = self.roll.verdicts(self.scene())
        settled = {id: verdicts[id].wanted for id in after if verdicts[id].wanted is not None}
        for id, wish in settled.items():
            assert wish is not None
            assert after[id] == wish.cpus or id in self.cheated
            for other, second in settled.items():
                assert second is not None
                if id != other and wish.exclusive & second.cpus:
                    assert self.real[id].view.claims.keys() & self.real[other].view.claims.keys()


Runtime.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRuntime = pytest.mark.filterwarnings("default")(Runtime.TestCase)
