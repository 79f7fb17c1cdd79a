"""CPUs set by a plugin, checked in the kernel."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.cgroups import Cgroups
from plimsoll.node.nri import NriServer
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import NriEvent, NriPlugin, edits
from tests.unit.node.runtime.runtime_harness import a_pod, kernel_cgroups, runtime_harness, shell, state
from tests.unit.protocols.nri.responses import cpu_resources, pin
from tests.waiting import until


def _allowed(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in status if line.startswith("Cpus_allowed_list"))


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    found = kernel_cgroups("nri")
    if found is None:
        pytest.skip("needs root and cgroups that can be written")
    try:
        yield found
    finally:
        assert found.tear_down()


async def test_a_process_runs_on_the_cpus_a_plugin_sets(cgroups: Cgroups) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    first, last = str(cpus[0]), str(cpus[-1])

    async def create(request: nri.CreateContainerRequest) -> Any:
        return pin(first)

    async with runtime_harness(cgroups) as harness, harness.runtime() as runtime:
        server = NriServer(harness.layout.nri, "process", "1", runtime.inventory, runtime.apply)
        runtime.hooks = server
        await server.start()
        plugin = NriPlugin("pin", "10", {NriEvent.CREATE_CONTAINER: create}, socket=server.socket)
        serving = asyncio.create_task(plugin.serve())
        try:
            await until(lambda: len(server.plugins()) == 1)
            assert await runtime.run_sandbox(a_pod()) is None
            assert await runtime.create(shell("sleep 60")) is None
            assert await runtime.start_container("c1") is None
            pid = state(runtime).pid
            assert _allowed(pid) == first
            assert await plugin.update_containers([edits.update("c1", cpu_resources(last))]) == ()
            assert _allowed(pid) == last
            nonsense = edits.update("c1", cpu_resources("9999"))
            assert await plugin.update_containers([nonsense]) == (nonsense,)
            assert _allowed(pid) == last
            await runtime.remove_sandbox("pod-1")
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await server.stop()
