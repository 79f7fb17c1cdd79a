"""Cgroup enforcer with fake cgroup directories and given pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.drivers.cpu.pinning.cgroups import CgroupEnforcer
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, settings
from tests.unit.drivers.cpu.pinning.stand_in import V1, V2
from tests.waiting import DEADLINE


def pod(
    name: str,
    containers: dict[str, Any],
    *,
    init: dict[str, Any] | None = None,
    claims: dict[str, str] | None = None,
    phase: str = "Running",
    states: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Pod:
    """Return a pod; containers are names with the claims they use, `claims` their names in the API."""

    def written(one: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": key,
                "resources": {
                    "claims": [dict(zip(("name", "request"), use.split("/"), strict=False)) for use in uses]
                },
            }
            for key, uses in one.items()
        ]

    def statuses(one: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": key,
                "containerID": f"containerd://{name}-{key}",
                "state": {(states or {}).get(key, "running"): {}},
            }
            for key in one
        ]

    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": annotations or {},
        },
        "spec": {
            "containers": written(containers),
            "initContainers": written(init or {}),
            "resourceClaims": [
                {"name": key, "resourceClaimName": value} for key, value in (claims or {}).items()
            ],
        },
        "status": {
            "phase": phase,
            "containerStatuses": statuses(containers),
            "initContainerStatuses": statuses(init or {}),
        },
    }
    return codec.decode(codec.encode(tree), Pod)


class Pods:
    """Pod source with given pods."""

    def __init__(self, *known: Pod) -> None:
        self.known = list(known)
        self.error = ""
        self.on_change: Callable[[], None] = lambda: None
        self.running = False

    def pods(self) -> Iterable[Pod]:
        return list(self.known)

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False


def run_enforcer(
    tmp_path: Path,
    scenario: Callable[[CgroupEnforcer, V1, Pods], Coroutine[Any, Any, None]],
    state: FakeCPUState,
    *known: Pod,
    files: Any = None,
    interval: float = 60.0,
    **pin: Any,
) -> None:
    stand_in = files or V1(tmp_path / "cg", ("cpuset", "cpu"))

    async def whole() -> None:
        pods = Pods(*known)
        enforcer = CgroupEnforcer(
            state,
            lambda: state.topology,
            settings(tmp_path, **pin),
            pods,
            stand_in.mount,
            files=stand_in,
            interval=interval,
        )
        try:
            async with asyncio.timeout(DEADLINE):
                await scenario(enforcer, stand_in, pods)
        finally:
            await enforcer.stop()

    asyncio.run(whole())


def place(files: V1 | V2, name: str, container: str) -> Path:
    return files.add(f"kubepods/pod{f'uid-{name}'}/{name}-{container}")
