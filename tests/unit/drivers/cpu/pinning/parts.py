"""A small book, containers and settings for tests of pinning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.checkpoint import Finding
from plimsoll.drivers.cpu.pinning.plan import ContainerView, Scene
from plimsoll.drivers.cpu.settings import CpuSettings, PinSettings
from plimsoll.drivers.cpu.state.holdings import Grant, Holding, union
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def hold(uid: str, text: str, *, namespace: str = "default", **more: Any) -> Holding:
    """A claim of one request, or of several: `a=0-1;b=2`."""
    grants = []
    for part in text.split(";"):
        request, _, value = part.rpartition("=")
        grants.append(Grant(request or "cpus", "node-a", "cpudevnuma000", cpus(value)))
    return Holding(ClaimRef(namespace, f"name-{uid}", uid), tuple(grants), **more)


def env(*holdings: Holding) -> list[str]:
    return ["PATH=/bin", *(f"DRA_CPUSET_{holding.ref.uid}={holding.granted}" for holding in holdings)]


def view(id: str, *holdings: Holding, pod: str = "", **more: Any) -> ContainerView:
    told = {holding.ref.uid: holding.granted for holding in holdings}
    return ContainerView(
        **{
            "id": id,
            "pod_uid": f"uid-{pod or id}",
            "namespace": "default",
            "pod": pod or id,
            "name": id,
            "claims": told,
            **more,
        }
    )


class Book:
    """What pinning asks of a book; `hold` and `release` change it."""

    def __init__(self, topology: Topology, *holdings: Holding, reserved: str = "") -> None:
        self.topology = topology
        self.reserved = cpus(reserved)
        self.revision = 1
        self.witnessed: list[tuple[ContainerView, ...]] = []
        self.answers: tuple[Finding, ...] = ()
        self._holdings = {holding.ref.uid: holding for holding in holdings}

    @property
    def holdings(self) -> Mapping[str, Holding]:
        return self._holdings

    @property
    def shared(self) -> CpuSet:
        return self.topology.all - self.reserved - union(h.cpus for h in self._holdings.values())

    def witness(self, containers: Iterable[ContainerView]) -> tuple[Finding, ...]:
        self.witnessed.append(tuple(containers))
        return self.answers

    def hold(self, holding: Holding) -> Holding:
        self._holdings = {**self._holdings, holding.ref.uid: holding}
        self.revision += 1
        return holding

    def release(self, uid: str) -> None:
        self._holdings = {other: h for other, h in self._holdings.items() if other != uid}
        self.revision += 1

    def change(self, topology: Topology) -> None:
        self.topology = topology
        self.revision += 1


def machine(count: int = 4) -> Topology:
    return make_machine(cores=count)


def scene(book: Book, **pin: Any) -> Scene:
    return Scene(book.holdings, book.shared, book.topology, PinSettings(**pin))


def settings(folder: Path, **pin: Any) -> CpuSettings:
    return CpuSettings(
        node="node-a",
        pin=PinSettings(**pin),
        host_root=folder / "host",
        kubelet_root=folder / "kubelet",
        cdi=folder / "cdi",
        nri=folder / "nri" / "nri.sock",
    )


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.002)
