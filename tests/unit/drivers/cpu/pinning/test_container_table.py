"""Container table under random events, compared with a runtime whose state is known.

The runtime here is the naive one: it keeps the CPUs of every container as they really are, applies the
changes in responses or fails some of them without a word, and knows containers only when they are made.
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
from plimsoll.drivers.cpu.pinning.container_table import (
    ContainerAdmission,
    ContainerChange,
    ContainerTable,
    apply_desired,
    matches_desired,
)
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    DesiredCpuset,
    PinFault,
    PinFaultReason,
    PinSnapshot,
    take_snapshot,
)
from plimsoll.drivers.cpu.settings import PinSettings
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import switch_off
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, cpus, hold, machine, snapshot, view

A = hold("a", "0-1")


# -- single rules


def test_cpusets_are_compared_as_sets() -> None:
    desired = DesiredCpuset(cpus("0-2"), mems="0-1", lift_quota=True)
    assert matches_desired(view("c", cpus="0,1,2", mems="0,1"), desired)
    assert matches_desired(view("c", cpus="0-2", mems="0-1", quota=-1), desired)
    assert not matches_desired(view("c", cpus="0-3", mems="0-1"), desired)
    assert not matches_desired(view("c", cpus="0-2"), desired)
    assert not matches_desired(view("c", cpus="0-2", mems="0-1", quota=5000), desired)
    assert not matches_desired(view("c", cpus="nonsense"), desired)
    assert matches_desired(view("c", cpus="7"), DesiredCpuset(CpuSet()))
    assert matches_desired(apply_desired(view("c", quota=5000), desired), desired)


def test_an_exclusive_container_waits_for_containers_that_cannot_be_moved() -> None:
    """The pool is empty, and a shared container runs."""
    state = FakeCPUState(machine(2))
    table = ContainerTable()
    table.reset({}, [view("s", cpus="0-1")])
    state.hold(hold("a", "0-1"))
    found = table.admit(view("own", hold("a", "0-1")), snapshot(state), can_defer=True)
    assert isinstance(found, PinFault)
    assert found.reason is PinFaultReason.OVERLAPPING


def test_an_empty_pool_can_be_allowed_as_in_the_go_driver() -> None:
    state, pin = FakeCPUState(machine(2)), PinSettings(empty_pool=True)
    table = ContainerTable()
    table.reset({}, [view("s", cpus="0-1")])
    state.hold(hold("a", "0-1"))
    now = replace(snapshot(state), pin=pin)
    assert isinstance(table.admit(view("own", hold("a", "0-1")), now, can_defer=True), ContainerAdmission)
    assert table.list_changes(now) == []
    late = table.admit(view("late"), now, can_defer=True)
    assert isinstance(late, ContainerAdmission)
    assert not late.desired.cpus


def test_containers_of_a_pod_share_a_claim_unless_that_is_disabled() -> None:
    for shared in (True, False):
        state = FakeCPUState(machine(4), A)
        now = replace(snapshot(state), pin=PinSettings(across_containers=shared))
        table = ContainerTable()
        for id in ("one", "two"):
            found = table.admit(view(id, A, pod="p"), now, can_defer=True)
            assert isinstance(found, ContainerAdmission if shared or id == "one" else PinFault)
        if not shared:
            assert isinstance(found, PinFault)
            assert found.message == 'claimUID "a" already bound to pod "uid-p/one"'
        # A restarted container of the same name has the claim again, also after a reconnect.
        table.reset({"sb": "uid-p"}, [view("one", A, pod="p")])
        again = view("one-again", A, pod="p", name="one")
        assert isinstance(table.admit(again, now, can_defer=True), ContainerAdmission)


def test_a_container_with_unknown_cpus_may_use_all() -> None:
    table = ContainerTable()
    table.reset({}, [view("s")])
    state = FakeCPUState(machine(4), A)
    found = table.admit(view("own", A), snapshot(state), can_defer=False)
    assert isinstance(found, ContainerAdmission)
    assert [change.view.id for change in found.changes] == ["s"]
    state.hold(hold("b", "2-3"))
    table.entries["s"].view = view("s")
    assert isinstance(table.admit(view("two", hold("b", "2-3")), snapshot(state), can_defer=False), PinFault)


def test_an_owner_is_forgotten_with_its_claim() -> None:
    table, state = ContainerTable(), FakeCPUState(machine(4), A)
    assert isinstance(
        table.admit(view("one", A, pod="p"), snapshot(state), can_defer=True), ContainerAdmission
    )
    assert table.owners == {"a": "uid-p"}
    state.release("a")
    state.hold(hold("a", "2"))
    table.prune(snapshot(FakeCPUState(machine(4))))
    assert table.owners == {}


def test_an_owner_outlives_its_containers_but_not_its_sandboxes() -> None:
    table, state = ContainerTable(), FakeCPUState(machine(4), A)
    table.add_sandbox("sb1", "uid-p")
    table.add_sandbox("sb2", "uid-p")
    table.admit(view("one", A, pod="p"), snapshot(state), can_defer=True)
    table.forget("one")
    table.forget_sandbox("sb1")
    assert table.owners == {"a": "uid-p"}
    table.forget_sandbox("sb2")
    assert table.owners == {}
    table.forget_sandbox("unknown")


def test_stale_responses_change_nothing() -> None:
    table, state = ContainerTable(), FakeCPUState(machine(4), A)
    table.reset({}, [view("s", cpus="0-3")])
    (old,) = table.list_changes(snapshot(state))
    table.reset({}, [view("s", cpus="0-3")])
    assert table.record_failure(old, "late") is None
    assert table.entries["s"].refused is None
    table.record_change(replace(old, view=view("gone")), confirmed=True)
    assert table.record_failure(replace(old, view=view("gone")), "late") is None


# -- everything at once


@dataclass
class Real:
    """Actual state of a container."""

    view: ContainerView
    cpus: CpuSet
    created: bool = False


@dataclass
class Making:
    view: ContainerView
    desired: DesiredCpuset
    failing: bool = field(default=False)


class Runtime(RuleBasedStateMachine):
    """Random events of a runtime."""

    @initialize(count_=st.integers(3, 8), can_defer=st.booleans(), include_shared=st.booleans())
    def begin(self, count_: int, can_defer: bool, include_shared: bool) -> None:
        self.whole = machine(count_)
        self.state = FakeCPUState(self.whole)
        self.table = ContainerTable()
        self.can_defer = can_defer
        self.pin = PinSettings(include_shared=include_shared)
        self.real: dict[str, Real] = {}
        self.numbers = count(1)
        #: Containers for which a change was swallowed since they were last asked about for sure.
        self.cheated: set[str] = set()

    def snapshot(self) -> PinSnapshot:
        return take_snapshot(self.state, self.state.topology, self.pin)

    def carry_out(self, changes: Any, fail: bool = False) -> None:
        """Apply the changes of a response; failures are not reported."""
        for change in changes:
            self.table.record_change(change, confirmed=False)
            real = self.real.get(change.view.id)
            if real is None or not real.created:
                continue
            if fail:
                self.cheated.add(change.view.id)
            else:
                self.cheated.discard(change.view.id)
                real.cpus = change.desired.cpus

    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        free = list(self.state.shared)
        if len(free) < 2:
            return
        chosen = data.draw(st.sets(st.sampled_from(free), min_size=1, max_size=len(free) - 1))
        self.state.hold(hold(f"u{next(self.numbers)}", str(CpuSet(chosen))))

    @rule(data=st.data())
    @precondition(lambda self: bool(self.state.allocations))
    def release(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.state.allocations)))
        if not any(uid in real.view.claims for real in self.real.values()):
            self.state.release(uid)

    @rule(data=st.data(), fail=st.booleans(), done=st.booleans())
    def create(self, data: st.DataObject, fail: bool, done: bool) -> None:
        held = sorted(self.state.allocations)
        claims = st.sets(st.sampled_from(held), min_size=data.draw(st.integers(0, 1)), max_size=2)
        uids = data.draw(claims) if held else ()
        id = f"c{next(self.numbers)}"
        asked = view(id, *(self.state.allocations[uid] for uid in uids), pod=data.draw(st.sampled_from("pq")))
        found = self.table.admit(asked, self.snapshot(), can_defer=self.can_defer)
        if isinstance(found, PinFault):
            assert id not in self.table.entries
            return
        assert found.desired.cpus
        self.carry_out(found.changes, fail)
        swallowed = {change.view.id for change in found.changes} if fail else set()
        self.real[id] = Real(asked, found.desired.cpus)
        for other, real in self.real.items():
            crowded = real.cpus & found.desired.exclusive
            if other == id or not crowded:
                continue
            same = real.view.claims.keys() & asked.claims.keys()
            assert same or other in swallowed or (self.can_defer and not real.created), (id, other)
        if done:
            self.finish(id)

    def finish(self, id: str) -> None:
        real = self.real[id]
        real.created = True
        self.table.update_container(replace(real.view, cpus=str(real.cpus)))

    @rule(data=st.data())
    @precondition(lambda self: any(not real.created for real in self.real.values()))
    def created(self, data: st.DataObject) -> None:
        self.finish(
            data.draw(st.sampled_from(sorted(id for id, real in self.real.items() if not real.created)))
        )

    @rule(data=st.data())
    @precondition(lambda self: bool(self.real))
    def stop(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.real)))
        del self.real[id]
        self.cheated.discard(id)
        assert self.table.forget(id)
        self.carry_out(self.table.list_changes(self.snapshot()))

    @rule(failing=st.booleans())
    def push(self, failing: bool) -> None:
        """Apply an update sent by the plugin; failures are reported."""
        changes: list[ContainerChange] = self.table.list_changes(self.snapshot(), include_unconfirmed=True)
        for position, change in enumerate(changes):
            if failing and position % 2:
                self.table.record_failure(change, "failed")
            else:
                self.real[change.view.id].cpus = change.desired.cpus
                self.cheated.discard(change.view.id)
                self.table.record_change(change, confirmed=True)
        assert failing or not self.table.list_changes(self.snapshot(), include_unconfirmed=True)

    @rule()
    def reconnect(self) -> None:
        """Send the full, actual state again."""
        self.table.reset(
            {}, [replace(real.view, cpus=str(real.cpus)) for real in self.real.values() if real.created]
        )
        self.real = {id: real for id, real in self.real.items() if real.created}
        self.cheated.clear()
        self.carry_out(self.table.list_changes(self.snapshot()))

    @rule(data=st.data())
    def hotplug(self, data: st.DataObject) -> None:
        off = data.draw(st.sets(st.sampled_from(list(self.whole.all)), max_size=len(self.whole.all) - 1))
        self.state.change(switch_off(self.whole, CpuSet(off)))

    @invariant()
    def every_container_has_cpus(self) -> None:
        for change in self.table.list_changes(self.snapshot(), include_unconfirmed=True):
            assert change.desired.cpus
            assert change.desired.cpus <= self.state.topology.all

    @invariant()
    def after_a_round_that_works_exclusive_cpus_are_exclusive(self) -> None:
        """Check the result of a push now, for all created containers that can be updated."""
        after = {id: real.cpus for id, real in self.real.items() if real.created}
        after |= {
            change.view.id: change.desired.cpus
            for change in self.table.list_changes(self.snapshot(), include_unconfirmed=True)
        }
        decisions = self.table.decisions(self.snapshot())
        settled = {id: decisions[id].desired for id in after if decisions[id].desired is not None}
        for id, desired in settled.items():
            assert desired is not None
            assert after[id] == desired.cpus or id in self.cheated
            for other, second in settled.items():
                assert second is not None
                if id != other and desired.exclusive & second.cpus:
                    assert self.real[id].view.claims.keys() & self.real[other].view.claims.keys()


Runtime.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
TestRuntime = pytest.mark.filterwarnings("default")(Runtime.TestCase)
