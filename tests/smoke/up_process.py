"""`plimsoll up` as a process, and a CPU claim and pods for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import (
    PODS,
)
from plimsoll.client.kubeconfig import find_config
from plimsoll.errors import ApiError
from plimsoll.node.cgroups.detect import detect
from plimsoll.node.cgroups.kernel import LinuxKernel
from tests.fork_server import ForkedProcess, start_forked
from tests.waiting import DEADLINE, until, wait_until

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-cpu"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "cpus",
                        "exactly": {
                            "deviceClassName": "dra.cpu",
                            "capacity": {"requests": {"dra.cpu/cpu": "1"}},
                        },
                    }
                ]
            }
        }
    },
}


class Up:
    """`plimsoll up` on one directory."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.data = directory / "data"
        self.log = directory / "up.log"
        self._options = ["--data", str(self.data), *options]
        if "--listen" not in options:
            self._options += ["--listen", "127.0.0.1:0"]
        if "--dashboard" not in options:
            self._options += ["--dashboard", "127.0.0.1:0"]
        self._process: ForkedProcess | None = None

    def start(self) -> None:
        self.log.write_text("")
        with self.log.open("ab") as log:
            self._process = start_forked(["up", *self._options], stdout=log, stderr=log)

        def read() -> str:
            assert self._process is not None
            assert self._process.poll() is None, self.text()
            return self.text()

        wait_until(read, lambda text: "Press Ctrl-C" in text)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(DEADLINE)
            raise AssertionError(f"it did not stop:\n{self.text()}") from None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process, and continue it afterward."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def run_scenario(self, scenario: Callable[[Client], Awaitable[None]]) -> None:
        async def run() -> None:
            async with Client.connect(find_config(self.data / "kubeconfig", environ={})) as client:
                await scenario(client)

        asyncio.run(run())


def pod(name: str, *, claim: bool = False) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "any", "command": ["sleep", "1000"]}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if claim:
        container["resources"] = {"claims": [{"name": "cpus"}]}
        spec["resourceClaims"] = [{"name": "cpus", "resourceClaimTemplateName": "one-cpu"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


async def running(client: Client, name: str) -> dict[str, Any]:
    async def look() -> Any:
        tree = await client.get(PODS, name, "default")
        return tree if tree["status"]["containerStatuses"][0]["state"].get("running") else None

    found: dict[str, Any] = await until(look, ignore=(ApiError, KeyError, IndexError))
    return found


def cannot_pin() -> str:
    """Return why processes cannot be pinned here, or an empty string."""
    if os.geteuid() != 0:
        return "needs root"
    if len(os.sched_getaffinity(0)) < 2:
        return "needs two CPUs"
    found = detect(Path("/sys/fs/cgroup"), LinuxKernel())
    if "cpuset" not in (found.v2 if found.version == 2 else found.v1):
        return "needs cgroups with cpuset that can be written"
    return ""
