"""A real kube-apiserver accepts every kind of device of the CPU driver, with its capabilities detected.

One with the alpha gates, and one as it comes.
"""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.api.forms import Form
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.drivers.cpu.allocation import AssignOptions
from plimsoll.drivers.cpu.devices import ServerCapabilities, compute_layout, detect_capabilities, make_devices
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.wire_form import detect_form
from tests.build import NODE
from tests.cluster.kube_apiserver import run_apiserver
from tests.real.programs import ASSETS, minor_version, missing, skip_before
from tests.unit.drivers.cpu.devices.publish import slices_of
from tests.unit.drivers.cpu.machines import make_machine, switch_off

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

BASE = CpuSettings(NODE)
FULL = AssignOptions(full_cores=True)
SETTINGS = [
    *(replace(BASE, group_by=group, pcie_roots=roots) for group in GroupBy for roots in (False, True)),
    *(replace(BASE, group_by=group, assign=FULL) for group in GroupBy),
    replace(BASE, mode=DeviceMode.INDIVIDUAL),
    replace(BASE, mode=DeviceMode.INDIVIDUAL, pcie_roots=True),
]
MACHINES = {
    "one CPU": make_machine(cores=1),
    "one core": make_machine(cores=1, threads=2),
    "server": make_machine(sockets=2, numa=2, l3=2, cores=2, threads=2, roots=3),
    "hybrid": make_machine(cores=2, threads=2, efficient=3),
    "many roots": make_machine(cores=2, roots=60),
    "large": make_machine(sockets=2, cores=80),
}


async def take(client: Client, devices: list[dict[str, Any]], settings: CpuSettings) -> None:
    """Check that the server accepts all slices and keeps all fields."""
    for tree in slices_of(devices, settings):
        kept = await client.create(RESOURCE_SLICES, tree, dry_run=True)
        seen = copy.deepcopy(kept["spec"]["devices"])
        for device in seen:
            for taint in device.get("taints", []):
                taint.pop("timeAdded")
        assert seen == tree["spec"]["devices"]


def choose_settings(capabilities: ServerCapabilities) -> list[CpuSettings]:
    """Return the settings that the driver uses: without shared devices, groups are not published."""
    return [each for each in SETTINGS if capabilities.sharing or each.mode is DeviceMode.INDIVIDUAL]


async def publish_all(client: Client, capabilities: ServerCapabilities) -> None:
    for name, machine in MACHINES.items():
        for settings in choose_settings(capabilities):
            devices = make_devices(
                machine,
                compute_layout(machine, settings),
                settings,
                capabilities.form,
                capabilities=capabilities,
            )
            assert devices, name
            await take(client, devices, settings)
    for settings in choose_settings(capabilities):
        await take(client, _offline_allocated(MACHINES["server"], settings, capabilities), settings)


def _offline_allocated(
    machine: Topology, settings: CpuSettings, capabilities: ServerCapabilities
) -> list[dict[str, Any]]:
    """Return devices with every second CPU offline, and one with all."""
    first = compute_layout(machine, settings)
    off = next(iter(first.domains.values())).cpus | CpuSet(range(0, 24, 2))
    smaller = switch_off(machine, off)
    offline_allocated = {
        name: domain.cpus & off for name, domain in first.domains.items() if domain.cpus & off
    }
    now = compute_layout(smaller, settings, earlier=first, allocated=offline_allocated)
    return make_devices(
        smaller,
        now,
        settings,
        capabilities.form,
        offline_allocated=offline_allocated,
        capabilities=capabilities,
    )


async def look(config: ClientConfig, capabilities: ServerCapabilities) -> None:
    async with Client.connect(config) as client:
        # What the document says does not depend on gates; what is kept does.
        assert await detect_form(client) is (Form.V1_36 if minor_version() >= 36 else None)
        assert await detect_capabilities(client, BASE) == capabilities
        await publish_all(client, capabilities)
        assert (await client.list(RESOURCE_SLICES)).items == []


def test_a_server_with_the_alpha_gates(tmp_path: Path) -> None:
    skip_before(36, "which has the gates")
    with run_apiserver(ASSETS, tmp_path) as config:
        asyncio.run(look(config, ServerCapabilities(Form.V1_36)))


def test_a_server_with_default_gates(tmp_path: Path) -> None:
    with run_apiserver(ASSETS, tmp_path, gates="") as config:
        stores = minor_version() >= 36
        capabilities = ServerCapabilities(None, policy=stores, taints=stores, lists=False, sharing=stores)
        asyncio.run(look(config, capabilities))
