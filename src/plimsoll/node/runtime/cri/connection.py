"""Connection to a container runtime: waits until it responds, and checks how it uses cgroups."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from plimsoll.errors import ConfigError, RuntimeCallError
from plimsoll.node.runtime.cri.client import CriClient
from plimsoll.node.runtime.cri.settings import CriSettings
from plimsoll.protocols.messages import cri

_log = logging.getLogger("plimsoll.node.runtime.cri")

_CONNECT_RETRY_SECONDS = 0.2


async def connect(client: CriClient, settings: CriSettings) -> Any:
    """Return the version of the runtime, which may just be starting."""
    problem, deadline = "", asyncio.get_running_loop().time() + settings.timing.connect
    while True:
        try:
            return await client.call("Version", cri.VersionRequest(version="v1"), timeout=5.0)
        except RuntimeCallError as error:
            problem = error.message
        if asyncio.get_running_loop().time() >= deadline:
            raise ConfigError(
                f"--cri-endpoint: {settings.endpoint}: the container runtime does not respond: "
                f"{problem}; start it, or correct the endpoint"
            )
        await asyncio.sleep(_CONNECT_RETRY_SECONDS)


async def check_cgroup_driver(client: CriClient, endpoint: str, ours: str) -> None:
    """Refuse a runtime whose cgroup driver is not the agent's: it would not find the cgroups of pods."""
    try:
        response = await client.call("RuntimeConfig", cri.RuntimeConfigRequest())
    except RuntimeCallError as error:
        _log.info("the cgroup driver of the runtime is unknown: %s", error)
        return
    theirs = "systemd" if response.linux.cgroup_driver == cri.SYSTEMD else "cgroupfs"
    if theirs != ours:
        raise ConfigError(
            f"{endpoint}: the runtime uses the {theirs} cgroup driver, the agent {ours}: "
            f"set --cgroup-driver {theirs}, or change SystemdCgroup (containerd) or cgroup_manager (CRI-O)"
        )
