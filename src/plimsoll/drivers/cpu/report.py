"""What somebody who looks into a problem of a node wants to have in one file. Section 2 of the description.

Owns `gather_info` (pure), `write_report` and `find_driver`. The keys are those of the Go driver's report
(layout v1), so that readers of one can read the other; what only this driver knows is under `plimsoll`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.yaml import dump_document
from plimsoll.drivers.cpu.config_file import dump_settings
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.settings import Mapping as MappingChoice
from plimsoll.drivers.cpu.topology import Cpu, Topology
from plimsoll.drivers.cpu.topology.overlay import say
from plimsoll.errors import InputError

LAYOUT = "v1"
_PREFIX = "dracpu-gatherinfo-"
#: Settings that the Go driver has, too.
_GO_KEYS = (
    "kubeconfig",
    "bindAddress",
    "hostnameOverride",
    "reservedCPUs",
    "cpuDeviceMode",
    "groupBy",
    "exposePCIeRoots",
    "sysfsOverlay",
    "kubeletRootDir",
)


def gather_info(
    topology: Topology,
    settings: CpuSettings | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    driver: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The report as a plain tree.

    `config` are further keys of the driver's configuration, in its own words; `driver` is what a running
    driver says of itself.
    """
    own: dict[str, Any] = {
        "offline": str(topology.offline),
        "skipped": [{"cpuID": entry.cpu, "reason": entry.why} for entry in topology.skipped],
        "remarks": list(topology.remarks),
        "sockets": _say_groups(topology.sockets),
        "numaNodes": _say_groups(topology.numa),
        "l3Caches": _say_groups(topology.l3),
    }
    if settings is not None:
        own["settings"] = dump_settings(settings)
    if driver is not None:
        own["driver"] = dict(driver)
    return {
        "toolVersion": {"plimsoll": _own_version()},
        "layoutVersion": LAYOUT,
        "cpuDetails": {
            "topology": {
                "numCPUs": len(topology.cpus),
                "numCores": len(topology.cores),
                "numUncoreCache": len(topology.l3),
                "numSockets": len(topology.sockets),
                "numNUMANodes": len(topology.numa),
                "smtEnabled": topology.smt,
            },
            "cpus": [_say_cpu(topology, cpu) for cpu in topology.cpus],
        },
        "driverConfig": _say_config(settings, config or {}),
        "plimsoll": own,
    }


def _say_cpu(topology: Topology, cpu: Cpu) -> dict[str, Any]:
    """A CPU in the Go driver's keys, and beneath them what it does not know."""
    mates = topology.cores[cpu.core]
    others = [mate for mate in mates if mate != cpu.id]
    said: dict[str, Any] = {
        "cpuID": cpu.id,
        "coreID": cpu.core_id,
        "socketID": cpu.socket,
        "clusterID": cpu.cluster,
        "numaNodeID": cpu.numa,
        "numaNodeCPUSet": str(topology.numa[cpu.numa]),
        "sibling": others[0] if len(others) == 1 else -1,
        "coreType": str(cpu.kind),
        "uncoreCacheID": cpu.l3_id,
        "siblings": str(mates),
        "dieID": cpu.die,
    }
    if cpu.l3 != cpu.l3_id:
        said["uncoreCacheNumber"] = cpu.l3
    if cpu.pcie_roots:
        said["pcieRoots"] = list(cpu.pcie_roots)
    return said


def _say_config(settings: CpuSettings | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The effective configuration in the Go driver's keys; as there, what is empty is left out."""
    said = dict(config)
    if settings is not None:
        dumped = dump_settings(settings)
        said |= {key: dumped[key] for key in _GO_KEYS if key in dumped}
        said["publishNodeAllocatableResourceMapping"] = settings.mapping is not MappingChoice.OFF
    return {key: value for key, value in said.items() if value not in ("", False, None)}


def _say_groups(groups: Mapping[int, CpuSet]) -> list[dict[str, Any]]:
    return [{"id": group, "cpus": str(cpus)} for group, cpus in groups.items()]


def _own_version() -> str:
    try:
        return metadata.version("plimsoll")
    except metadata.PackageNotFoundError:
        return ""


def render_report(report: Mapping[str, Any]) -> str:
    """As YAML that starts with its own mark, so that reports of several nodes can be joined."""
    return "---\n" + dump_document(dict(report)).decode()


def write_report(
    report: Mapping[str, Any], folder: Path | None = None, *, now: datetime, pid: int | None = None
) -> Path:
    """Write a report to a new file that only its owner can read; InputError if that cannot be.

    Without a folder it is a new file among the temporary ones.
    """
    data = render_report(report).encode()
    name = f"{_PREFIX}{now:%Y%m%d-%H%M%S}-{os.getpid() if pid is None else pid}.yaml"
    try:
        if folder is None:
            file, temporary = tempfile.mkstemp(prefix=_PREFIX, suffix=".yaml")
            path = Path(temporary)
        else:
            path = folder / name
            if path.exists():
                raise InputError(f"output file already exists: {path}")
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"failed to create output file in {folder or 'the temporary folder'}: {say(error)}"
        ) from None
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InputError(f"failed to write YAML: {path}: {say(error)}") from None
    return path


@dataclass(frozen=True, slots=True)
class RunningDriver:
    """A CPU driver that runs on this machine: `arguments` are those after its name and subcommand."""

    pid: int
    arguments: tuple[str, ...]
    folder: Path

    def path(self, name: str) -> Path:
        """A file that the driver names, where it is seen from here (its root may be another one)."""
        if name.startswith("/"):
            return self.folder / "root" / name.lstrip("/")
        return self.folder / "cwd" / name


def find_driver(proc: Path = Path("/proc")) -> RunningDriver | None:
    """The CPU driver that runs on this machine, ours or the Go one; the lowest process id of several."""
    try:
        pids = sorted(int(entry) for entry in os.listdir(proc) if entry.isascii() and entry.isdigit())
    except OSError:
        return None
    for pid in pids:
        if pid == os.getpid():
            continue
        try:
            words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        arguments = driver_arguments(words[:-1] if words[-1] == "" else words)
        if arguments is not None:
            return RunningDriver(pid, arguments, proc / str(pid))
    return None


def driver_arguments(words: list[str]) -> tuple[str, ...] | None:
    """The arguments of a CPU driver by a command line; None if it is no driver, or a driver's subcommand."""
    names = [os.path.basename(word) for word in words]
    if names[:1] == ["dracpu"]:
        return None if words[1:2] in (["gatherinfo"], ["introspect"]) else tuple(words[1:])
    start = names.index("plimsoll") if "plimsoll" in names[:4] else -1
    if start < 0 or not (start == 0 or names[0].startswith("python")):
        return None
    command = words[start + 1 :]
    if command[:2] != ["driver", "cpu"] or (command[2:] and not command[2].startswith("-")):
        return None
    return tuple(command[2:])
