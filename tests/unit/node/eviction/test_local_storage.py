"""Limits of local storage: decisions with upstream's messages, and the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.node.containers import ContainerStorage
from plimsoll.node.eviction.local_storage import (
    CONTAINER_LIMIT,
    EMPTY_DIR_LIMIT,
    POD_LIMIT,
    LocalStorageEviction,
    find_exceeded_limit,
    has_storage_limits,
    volumes_with_limits,
)
from plimsoll.node.eviction.manager import PodEviction
from tests import build

MI = 1 << 20


def app(name: str, limit: str = "") -> dict[str, Any]:
    return build.container(name, limits={"ephemeral-storage": limit} if limit else {})


def empty_dir(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "emptyDir": fields}


def files(amount: int, logs: int = 0, *, apart: bool = False) -> ContainerStorage:
    return ContainerStorage(files=amount, logs=logs, on_image_disk=apart)


def test_an_empty_dir_over_its_size_limit() -> None:
    pod = build.pod("p", volumes=[empty_dir("a", sizeLimit="1Mi"), empty_dir("b", sizeLimit="0")])
    assert find_exceeded_limit(pod, {"a": MI, "b": 5 * MI}, {}) is None
    found = find_exceeded_limit(pod, {"a": MI + 1}, {})
    assert found is not None
    assert (found.signal, found.reason, found.phase) == (EMPTY_DIR_LIMIT, "Evicted", "Failed")
    assert found.message == 'Usage of EmptyDir volume "a" exceeds the limit "1Mi". '
    assert (found.grace, found.condition) == (1.0, None)


def test_a_pod_over_the_total_limit_of_its_containers() -> None:
    volumes = [empty_dir("disk"), empty_dir("memory", medium="Memory"), {"name": "m", "configMap": {}}]
    pod = build.pod("p", app("a", "2Mi"), app("b", "1Mi"), volumes=volumes)
    used = {"disk": MI, "memory": 50 * MI, "m": MI}
    assert find_exceeded_limit(pod, used, {"a": files(MI)}) is None
    found = find_exceeded_limit(pod, used, {"a": files(MI, 4096)})
    assert found is not None
    assert found.signal == POD_LIMIT
    assert found.message == "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. "


def test_a_container_over_its_limit() -> None:
    pod = build.pod("p", app("a", "2Mi"), app("b", "10Mi"), app("c"))
    assert find_exceeded_limit(pod, {}, {"a": files(MI, MI), "c": files(8 * MI)}) is None
    found = find_exceeded_limit(pod, {}, {"a": files(MI, MI + 1)})
    assert found is not None
    assert found.signal == CONTAINER_LIMIT
    assert found.message == 'Container a exceeded its local ephemeral storage limit "2Mi". '
    # Files on a disk for images count in the total of the pod only.
    assert find_exceeded_limit(pod, {}, {"a": files(8 * MI, MI, apart=True)}) is None


def test_critical_pods_are_not_evicted() -> None:
    volumes = [empty_dir("a", sizeLimit="1Mi")]
    pod = build.pod("p", namespace="kube-system", priority=2_000_001_000, volumes=volumes)
    assert find_exceeded_limit(pod, {"a": 2 * MI}, {}) is None


def test_only_what_counts_in_a_limit_is_measured() -> None:
    volumes = [
        empty_dir("limited", medium="Memory", sizeLimit="1Mi"),
        empty_dir("disk"),
        {"name": "s", "secret": {}},
    ]
    without = build.pod("p", app("a"), volumes=volumes)
    assert volumes_with_limits(without) == {"limited"}
    assert not has_storage_limits(without)
    limited = build.pod("p", app("a", "1Mi"), volumes=volumes)
    assert volumes_with_limits(limited) == {"limited", "disk"}
    assert has_storage_limits(limited)


def naive(limits: dict[str, int], volumes: list[tuple[int, int]], used: dict[str, int]) -> str:
    """Return the signal of the limit that is exceeded first, or ""."""
    if any(limit and amount > limit for limit, amount in volumes):
        return EMPTY_DIR_LIMIT
    total = sum(used.values()) + sum(amount for _, amount in volumes)
    if any(limits.values()) and total > sum(limits.values()):
        return POD_LIMIT
    return CONTAINER_LIMIT if any(limits[name] and used[name] > limits[name] for name in limits) else ""


sizes = st.integers(0, 5)
amounts = st.tuples(sizes, sizes)


@given(
    st.lists(st.tuples(sizes, sizes), min_size=1, max_size=3), st.lists(st.tuples(sizes, sizes), max_size=3)
)
def test_decisions_match_a_naive_twin(containers: list[tuple[int, int]], dirs: list[tuple[int, int]]) -> None:
    limits = {f"c{place}": limit for place, (limit, _) in enumerate(containers)}
    used = {f"c{place}": amount for place, (_, amount) in enumerate(containers)}
    volumes = [
        empty_dir(f"v{n}", **({"sizeLimit": str(limit)} if limit else {}))
        for n, (limit, _) in enumerate(dirs)
    ]
    apps = [app(name, str(limit) if limit else "") for name, limit in limits.items()]
    found = find_exceeded_limit(
        build.pod("p", *apps, volumes=volumes),
        {f"v{n}": amount for n, (_, amount) in enumerate(dirs)},
        {name: files(amount // 2, amount - amount // 2) for name, amount in used.items()},
    )
    assert (found.signal if found else "") == naive(limits, dirs, used)


class Node:
    """Pods with measurements, and what was measured and evicted."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = list(pods)
        self.used: dict[str, int] = {}
        self.containers: dict[str, ContainerStorage] = {}
        self.measured: list[str] = []
        self.evicted: list[str] = []
        self.broken = False

    async def measure_volumes(self, pod: Pod, names: Collection[str]) -> dict[str, int]:
        if self.broken:
            raise OSError("no disk")
        return {name: self.used.get(name, 0) for name in names}

    async def measure_containers(self, uid: str) -> dict[str, ContainerStorage]:
        self.measured.append(uid)
        return self.containers

    async def evict(self, pod: Pod, eviction: PodEviction) -> None:
        self.evicted.append(f"{pod.metadata.name}: {eviction.message}")

    def loop(self) -> LocalStorageEviction:
        return LocalStorageEviction(
            lambda: list(self.pods), self.measure_volumes, self.measure_containers, self.evict, interval=0.001
        )


def test_every_pod_over_a_limit_is_evicted() -> None:
    one = build.pod("one", app("c", "1Mi"), uid="u1")
    two = build.pod("two", volumes=[empty_dir("a", sizeLimit="1Mi")], uid="u2")
    node = Node(one, two, build.pod("free", uid="u3"))
    loop = node.loop()
    asyncio.run(loop.step())
    assert node.evicted == []
    assert node.measured == ["u1"], "containers of other pods have no limits"
    node.used, node.containers = {"a": 2 * MI}, {"c": files(2 * MI)}
    asyncio.run(loop.step())
    assert node.evicted == [
        "one: Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
        'two: Usage of EmptyDir volume "a" exceeds the limit "1Mi". ',
    ]


async def test_a_failed_measurement_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(build.pod("two", volumes=[empty_dir("a", sizeLimit="1Mi")], uid="u2"))
    node.broken, node.used = True, {"a": 2 * MI}
    task = asyncio.create_task(node.loop().run())
    while not caplog.records:
        await asyncio.sleep(0)
    node.broken = False
    while not node.evicted:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "checking limits of local storage failed" in caplog.text
