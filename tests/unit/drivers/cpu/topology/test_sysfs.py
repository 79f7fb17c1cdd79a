"""Topologies read from folders that stand in for sysfs, and from this machine's own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings

from plimsoll.drivers.cpu.topology import Topology, read_topology
from tests.unit.drivers.cpu.machines import machines, write_sysfs


@given(machines())
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(topology: Topology) -> None:
    with tempfile.TemporaryDirectory(prefix="p-") as folder:
        write_sysfs(topology, Path(folder))
        assert read_topology(Path(folder), pcie=True) == topology
