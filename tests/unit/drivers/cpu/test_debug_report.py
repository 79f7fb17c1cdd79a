"""Report of a node's CPUs."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.debug_report import (
    driver_arguments,
    find_driver,
    gather_info,
    render_report,
    write_report,
)
from plimsoll.drivers.cpu.settings import CpuSettings, Mapping
from plimsoll.drivers.cpu.topology import SkippedCpu, Topology
from plimsoll.errors import InputError
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import machines, make_machine

NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
#: What every CPU has in a report of layout v1.
KEYS = {
    "cpuID",
    "coreID",
    "socketID",
    "clusterID",
    "numaNodeID",
    "numaNodeCPUSet",
    "sibling",
    "coreType",
    "uncoreCacheID",
}


def load(text: str) -> Any:
    return yaml.safe_load(text)


def test_keys_are_those_of_layout_v1() -> None:
    topology = make_machine(sockets=2, cores=2, threads=2, offline=[7])
    report = gather_info(topology, CpuSettings("node-1", reserved=CpuSet([0, 4])))
    assert report["layoutVersion"] == "v1"
    assert report["cpuDetails"]["topology"] == {
        "numCPUs": 7,
        "numCores": 4,
        "numUncoreCache": 2,
        "numSockets": 2,
        "numNUMANodes": 2,
        "smtEnabled": True,
    }
    rows = report["cpuDetails"]["cpus"]
    assert all(set(row) >= KEYS for row in rows)
    assert {key: rows[5][key] for key in KEYS} == {
        "cpuID": 5,
        "coreID": 1,
        "socketID": 0,
        "clusterID": -1,
        "numaNodeID": 0,
        "numaNodeCPUSet": "0-1,4-5",
        "sibling": 1,
        "coreType": "standard",
        "uncoreCacheID": 0,
    }
    assert rows[3]["sibling"] == -1  # the other thread is off
    assert report["driverConfig"] == {
        "bindAddress": "127.0.0.1:8080",
        "hostnameOverride": "node-1",
        "reservedCPUs": "0,4",
        "cpuDeviceMode": "grouped",
        "groupBy": "numanode",
        "kubeletRootDir": "/var/lib/kubelet",
        "publishNodeAllocatableResourceMapping": True,
    }
    assert report["plimsoll"]["offline"] == "7"


def test_wide_smt_has_no_sibling_but_siblings() -> None:
    rows = gather_info(make_machine(cores=2, threads=4))["cpuDetails"]["cpus"]
    assert rows[0]["sibling"] == -1
    assert rows[0]["siblings"] == "0,2,4,6"


def test_anomalies_are_reported() -> None:
    topology = Topology(make_machine().cpus, skipped=(SkippedCpu(9, "why"),), remarks=("odd",))
    own = gather_info(topology, driver={"ready": True, "pool": "1-2", "root": "/x"})["plimsoll"]
    assert own["skipped"] == [{"cpuID": 9, "reason": "why"}]
    assert own["remarks"] == ["odd"]
    assert own["driver"] == {"ready": True, "pool": "1-2", "root": "/x"}


def test_caches_with_the_same_id_are_distinguished() -> None:
    report = gather_info(make_machine(sockets=2, cores=2, l3_ids="repeat"))
    rows = report["cpuDetails"]["cpus"]
    assert [row["uncoreCacheID"] for row in rows] == [0, 0, 0, 0]
    assert [row.get("uncoreCacheNumber") for row in rows] == [None, None, 65538, 65538]
    assert report["cpuDetails"]["topology"]["numUncoreCache"] == 2


def test_disabled_settings_are_left_out_of_the_config() -> None:
    report = gather_info(make_machine(), CpuSettings("n", reserved=2, mapping=Mapping.OFF, pcie_roots=True))
    assert "publishNodeAllocatableResourceMapping" not in report["driverConfig"]
    assert "reservedCPUs" not in report["driverConfig"]
    assert report["driverConfig"]["exposePCIeRoots"] is True
    assert report["plimsoll"]["settings"]["reservedCPUCount"] == 2
    assert report["plimsoll"]["settings"]["nodeAllocatableForm"] == "off"


@given(machines())
@settings(max_examples=examples(20), deadline=None)
def test_reports_survive_a_round_trip(topology: Topology) -> None:
    report = gather_info(topology, CpuSettings("n"))
    text = render_report(report)
    assert text.startswith("---\n")
    assert load(text) == report
    assert list(yaml.safe_load_all(text + text)) == [report, report]


def test_files(tmp_path: Path) -> None:
    report = gather_info(make_machine())
    path = write_report(report, tmp_path / "a" / "b", now=NOW, pid=42)
    assert path == tmp_path / "a" / "b" / "dracpu-gatherinfo-20260203-040506-42.yaml"
    assert load(path.read_text()) == report
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InputError, match=f"^output file already exists: {path}$"):
        write_report(report, tmp_path / "a" / "b", now=NOW, pid=42)
    with pytest.raises(InputError, match="failed to create output file"):
        write_report(report, path, now=NOW)


def test_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = write_report(gather_info(make_machine()), now=NOW)
    assert path.parent == tmp_path
    assert path.name.startswith("dracpu-gatherinfo-")


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("/usr/bin/dracpu --v=4 --config /etc/c.yaml", ("--v=4", "--config", "/etc/c.yaml")),
        ("dracpu gatherinfo --stdout", None),
        ("/usr/bin/python3 /usr/bin/plimsoll driver cpu --config c.yaml", ("--config", "c.yaml")),
        ("python -m plimsoll driver cpu", ()),
        ("plimsoll driver cpu gatherinfo", None),
        ("plimsoll driver fake", None),
        ("grep plimsoll driver cpu", None),
        ("vi dracpu", None),
        ("", None),
    ],
)
def test_command_lines(line: str, arguments: tuple[str, ...] | None) -> None:
    assert driver_arguments(line.split()) == arguments


def test_the_running_driver_is_found(tmp_path: Path) -> None:
    for pid, words in {1: "init", 30: "plimsoll driver cpu --config /etc/c.yaml", 31: "dracpu"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    (tmp_path / "7").mkdir()  # gone meanwhile
    (tmp_path / "sys").mkdir()
    found = find_driver(tmp_path)
    assert found is not None
    assert (found.pid, found.arguments) == (30, ("--config", "/etc/c.yaml"))
    assert found.path("/etc/c.yaml") == tmp_path / "30/root/etc/c.yaml"
    assert os.fspath(found.path("../c.yaml")) == str(tmp_path / "30/cwd/../c.yaml")
    assert find_driver(tmp_path / "none") is None
