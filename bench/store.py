"""Benchmark of the store.

    python -m bench.store [--objects 100000] [--directory DIRECTORY]

Prints durable writes a second for 1, 32 and 256 writers at once (each waits for its write before the next),
with and without waiting for the disk, the fan-out of events to 1,000 feeds, a page of a list now and as of an
older revision, how long a store of many objects takes to open, and what the writes cost while old rows are
being deleted. Rates are by the wall clock unless they say CPU; the disk's flush time is printed with them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.apiserver.storage.log import Durability

PADDING = "x" * 2090


def make_pod(number: int) -> dict[str, Any]:
    """Return a pod of about 2.3 kB of JSON."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": f"ns-{number % 50}",
            "annotations": {"a": PADDING},
        },
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
    }


def pod_key(number: int) -> ObjectKey:
    return ObjectKey("pods", f"ns-{number % 50}", f"pod-{number}")


async def time_writes(store: Store, writers: int, each: int) -> tuple[float, float, float]:
    """Return writes per second, writes per CPU second, and the 99th percentile in milliseconds."""
    delays: list[float] = []

    async def write(writer: int) -> None:
        for number in range(each):
            start = time.perf_counter()
            stored = store.create(pod_key(writer * each + number), make_pod(writer * each + number))
            await store.wait_durable(stored.revision)
            delays.append(time.perf_counter() - start)

    start, busy = time.perf_counter(), time.process_time()
    await asyncio.gather(*(write(writer) for writer in range(writers)))
    count = writers * each
    taken, used = time.perf_counter() - start, time.process_time() - busy
    delays.sort()
    return count / taken, count / used, delays[len(delays) * 99 // 100] * 1000


async def time_fan_out(store: Store, feeds: int, events: int, burst: int) -> tuple[float, float]:
    """Return events delivered per second, and per CPU second."""

    async def follow() -> None:
        feed = store.watch("pods", store.revision)
        left = events
        while left:
            for event in await feed.next():
                event.frame()
                left -= 1

    followers = [asyncio.create_task(follow()) for _ in range(feeds)]
    await asyncio.sleep(0)
    start, busy = time.perf_counter(), time.process_time()
    base = 10_000_000 + store.revision
    for number in range(0, events, burst):
        for one in range(number, number + burst):
            stored = store.create(pod_key(base + one), make_pod(base + one))
        await store.wait_durable(stored.revision)
    await asyncio.gather(*followers)
    taken, used = time.perf_counter() - start, time.process_time() - busy
    return feeds * events / taken, feeds * events / used


def time_flush(directory: Path) -> float:
    """Return the median time of flushing 8 kB, in milliseconds."""
    file = os.open(directory / "flush", os.O_RDWR | os.O_CREAT)
    times = []
    for number in range(200):
        os.pwrite(file, bytes(8192), number * 8192)
        start = time.perf_counter()
        os.fdatasync(file)
        times.append(time.perf_counter() - start)
    os.close(file)
    return sorted(times)[100] * 1000


async def fill(store: Store, objects: int) -> None:
    for number in range(objects):
        stored = store.create(pod_key(number), make_pod(number))
        if number % 500 == 499:
            await store.wait_durable(stored.revision)
    await store.wait_durable(store.revision)


async def churn(store: Store, objects: int, rounds: int) -> float:
    """Return updates per second if every update makes an older row obsolete."""
    start = time.perf_counter()
    for _ in range(rounds):
        for number in range(objects):
            key = pod_key(number)
            stored = store.get(key)
            assert stored is not None
            stored = store.update(key, make_pod(number), stored.revision)
            if number % 250 == 249:
                await store.wait_durable(stored.revision)
    await store.wait_durable(store.revision)
    return objects * rounds / (time.perf_counter() - start)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    start, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - busy


async def with_store(
    path: Path,
    work: Callable[[Store], Awaitable[Any]],
    durability: Durability = "full",
    events: int = 100_000,
) -> Any:
    store = Store.open(path, durability=durability, history_events=events)
    try:
        return await work(store)
    finally:
        await store.close()


def show_writes(directory: Path) -> None:
    print(f"flush of 8 kB: {time_flush(directory):.2f} ms")
    print("writes of 2.3 kB        writes/s   x 1 writer   per CPU-s   99th centile")
    for durability in ("full", "normal"):
        one = 0.0
        for writers, each in ((1, 2000), (32, 600), (256, 120)):
            path = directory / f"{durability}-{writers}"
            rate, cpu, slow = asyncio.run(
                with_store(path, partial(time_writes, writers=writers, each=each), durability)
            )
            one = one or rate
            print(f"  {durability:6} {writers:4} writers {rate:12,.0f} {rate / one:11.1f}", end="")
            print(f" {cpu:12,.0f} {slow:10.1f} ms")


def show_feeds(directory: Path) -> None:
    print("1,000 feeds             events/s   per CPU-s")
    for burst in (1, 10, 100):
        events = max(20, burst * 3)
        follow = partial(time_fan_out, feeds=1000, events=events, burst=burst)
        rate, cpu = asyncio.run(with_store(directory / f"feeds-{burst}", follow))
        print(f"  {burst:3} at a time {rate:16,.0f} {cpu:11,.0f}")


def show_reload(directory: Path, objects: int) -> None:
    path = directory / "many"
    wall, _ = timed(lambda: asyncio.run(with_store(path, lambda store: fill(store, objects))))
    size = path.stat().st_size
    print(f"{objects:,} objects: written in {wall:.1f} s, {size / objects:,.0f} bytes each in the file")
    opened: list[Store] = []
    wall, cpu = timed(lambda: opened.append(Store.open(path)))
    print(f"  opened in {wall:.2f} s ({cpu:.2f} s CPU): ", end="")
    print(f"{objects / wall:,.0f} objects/s, {size / wall / 1e6:,.0f} MB/s")
    asyncio.run(opened.pop().close())
    asyncio.run(with_store(path, lambda store: show_lists(store, objects)))


async def show_lists(store: Store, objects: int) -> None:
    store.list("pods", limit=1)
    past = store.revision
    for number in range(1000):
        key = pod_key(number % objects)
        stored = store.get(key)
        assert stored is not None
        store.update(key, make_pod(number % objects), stored.revision)
    await store.wait_durable(store.revision)
    for text, at in (("now", None), ("1,000 events ago", past)):
        page = partial(store.list, "pods", limit=500, at=at)
        wall, _ = timed(page)
        print(f"  a page of 500, {text}: {wall * 1000:.2f} ms, the next one {timed(page)[0] * 1000:.2f} ms")
    wall, _ = timed(lambda: store.list("pods"))
    print(f"  the whole list: {wall * 1000:.1f} ms")


def show_churn(directory: Path) -> None:
    for text, bounds in (("kept", 10_000_000), ("deleted", 1000)):
        path = directory / f"churn-{bounds}"
        rate = asyncio.run(with_store(path, churn_all, events=bounds))
        print(f"updates with old rows {text}: {rate:,.0f}/s, file of {path.stat().st_size / 1e6:.1f} MB")


async def churn_all(store: Store) -> float:
    await fill(store, 2000)
    return await churn(store, 2000, 15)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the store.")
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        show_writes(directory)
        show_feeds(directory)
        show_churn(directory)
        show_reload(directory, arguments.objects)


if __name__ == "__main__":
    main()
