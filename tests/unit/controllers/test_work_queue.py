"""Work queue, compared with a naive one."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.controllers.work_queue import WorkQueue
from tests.unit.controllers.cluster import ManualClock

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc")),
        st.tuples(st.just("later"), st.sampled_from("abc"), st.sampled_from([1, 2, 5])),
        st.tuples(st.just("take")),
        st.tuples(st.just("done"), st.sampled_from("abc")),
        st.tuples(st.just("advance"), st.sampled_from([1, 2, 5])),
    )
)


@given(STEPS)
def test_the_queue_agrees_with_a_model_of_sets(steps: list[tuple[object, ...]]) -> None:
    """Model: keys queued, keys in work, and times of delayed keys."""
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    wanted: set[str] = set()
    held: set[str] = set()
    later: dict[str, float] = {}
    for step in steps:
        match step:
            case "add", str(key):
                queue.add(key)
                wanted.add(key)
            case "later", str(key), int(seconds):
                queue.add_after(key, seconds)
                later[key] = min(later.get(key, clock.now() + seconds), clock.now() + seconds)
            case ("take",):
                taken = queue.take()
                if taken is None:
                    assert not wanted - held
                else:
                    assert taken in wanted
                    assert taken not in held
                    wanted.discard(taken)
                    held.add(taken)
            case "done", str(key):
                if key in held:
                    queue.done(key)
                    held.discard(key)
            case "advance", int(seconds):
                clock.advance(seconds)
                queue.wake()
                due = {key for key, when in later.items() if when <= clock.now()}
                wanted |= due
                later = {key: when for key, when in later.items() if key not in due}
        assert len(queue) == len(wanted - held)
        assert queue.idle == (not held and not wanted)
        assert queue.next_due == min(later.values(), default=None)


def test_setting_the_clock_back_delays_no_key() -> None:
    class SetClock(ManualClock):
        def now(self) -> float:
            return super().now() - 3600

        def monotonic(self) -> float:
            return super().now()

    clock = SetClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 5)
    clock.advance(5)
    queue.wake()
    assert queue.take() == "a"


def test_keys_are_given_out_in_order() -> None:
    queue: WorkQueue[str] = WorkQueue(ManualClock())
    for key in "cabca":
        queue.add(key)
    assert [queue.take(), queue.take(), queue.take(), queue.take()] == ["c", "a", "b", None]


def test_failures_back_off() -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock, longest=1.0)
    delays = []
    for _ in range(10):
        delays.append(queue.retry("k"))
        clock.advance(2.0)
        queue.wake()
        assert queue.take() == "k"
        queue.done("k")
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 1.0
    queue.forget("k")
    assert queue.retry("k") == 0.005


def test_workers_wait_for_keys_and_for_time() -> None:
    async def scenario() -> list[str]:
        clock = ManualClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        timer = asyncio.create_task(queue.run_timer())
        got = []

        async def work() -> None:
            while True:
                key = await queue.next()
                got.append(key)
                queue.done(key)

        workers = [asyncio.create_task(work()) for _ in range(3)]

        async def settle() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        await settle()
        queue.add("now")
        queue.add_after("late", 10)
        queue.add_after("soon", 5)
        await settle()
        clock.advance(5)
        await settle()
        queue.add_after("sooner", 1)
        await settle()
        clock.advance(1)
        await settle()
        clock.advance(4)
        await settle()
        for task in (timer, *workers):
            task.cancel()
        await asyncio.gather(timer, *workers, return_exceptions=True)
        return got

    assert asyncio.run(scenario()) == ["now", "soon", "sooner", "late"]
