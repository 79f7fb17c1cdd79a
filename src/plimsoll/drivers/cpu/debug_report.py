"""Debug report of a node (`gatherinfo`; docs/spec/cpu-driver.md, "Configuration").

The keys are those of the Go driver's report (layout v1), so that tools can read both; additional information
is under `plimsoll`.
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
from plimsoll.drivers.cpu.topology.overlay import format_os_error
from plimsoll.errors import InputError

LAYOUT = "v1"
_PREFIX = "dracpu-gatherinfo-"
#: Settings that the Go driver also has.
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
    driver: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the report as a JSON tree; `driver` is the state reported by a running driver. Pure."""
    own: dict[str, Any] = {
        "offline": str(topology.offline),
        "skipped": [{"cpuID": entry.cpu, "reason": entry.why} for entry in topology.skipped],
        "remarks": list(topology.remarks),
        "sockets": _group_trees(topology.sockets),
        "numaNodes": _group_trees(topology.numa),
        "l3Caches": _group_trees(topology.l3),
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
            "cpus": [_cpu_tree(topology, cpu) for cpu in topology.cpus],
        },
        "driverConfig": _config_tree(settings),
        "plimsoll": own,
    }


def _cpu_tree(topology: Topology, cpu: Cpu) -> dict[str, Any]:
    """Describe a CPU with the Go driver's keys and additional ones."""
    mates = topology.cores[cpu.core]
    others = [mate for mate in mates if mate != cpu.id]
    tree: dict[str, Any] = {
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
        tree["uncoreCacheNumber"] = cpu.l3
    if cpu.pcie_roots:
        tree["pcieRoots"] = list(cpu.pcie_roots)
    return tree


def _config_tree(settings: CpuSettings | None) -> dict[str, Any]:
    """Return the effective configuration in the Go driver's keys; empty values are omitted, as there."""
    if settings is None:
        return {}
    dumped = dump_settings(settings)
    tree = {key: dumped[key] for key in _GO_KEYS if key in dumped}
    tree["publishNodeAllocatableResourceMapping"] = settings.mapping is not MappingChoice.OFF
    return {key: value for key, value in tree.items() if value not in ("", False, None)}


def _group_trees(groups: Mapping[int, CpuSet]) -> list[dict[str, Any]]:
    return [{"id": group, "cpus": str(cpus)} for group, cpus in groups.items()]


def _own_version() -> str:
    try:
        return metadata.version("plimsoll")
    except metadata.PackageNotFoundError:
        return ""


def render_report(report: Mapping[str, Any]) -> str:
    """Render the report as a YAML document with a leading `---`, so that reports can be concatenated."""
    return "---\n" + dump_document(dict(report)).decode()


def write_report(
    report: Mapping[str, Any],
    directory: Path | None = None,
    *,
    now: datetime | None = None,
    pid: int | None = None,
) -> Path:
    """Write a report to a new file readable by its owner only; raises InputError on failure.

    Without a directory it is a new temporary file.
    """
    data = render_report(report).encode()
    name = f"{_PREFIX}{now or datetime.now():%Y%m%d-%H%M%S}-{os.getpid() if pid is None else pid}.yaml"
    try:
        if directory is None:
            file, temporary = tempfile.mkstemp(prefix=_PREFIX, suffix=".yaml")
            path = Path(temporary)
        else:
            path = directory / name
            if path.exists():
                raise InputError(f"output file already exists: {path}")
            directory.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"failed to create output file in {directory or 'the temporary directory'}: "
            f"{format_os_error(error)}"
        ) from None
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InputError(f"failed to write YAML: {path}: {format_os_error(error)}") from None
    return path


@dataclass(frozen=True, slots=True)
class RunningDriver:
    """CPU driver process on this machine: `arguments` are those after its name and subcommand."""

    pid: int
    arguments: tuple[str, ...]
    proc_dir: Path

    def path(self, name: str) -> Path:
        """Return the path of a file named by the driver, as seen from this process."""
        if name.startswith("/"):
            return self.proc_dir / "root" / name.lstrip("/")
        return self.proc_dir / "cwd" / name


def find_driver(proc: Path = Path("/proc")) -> RunningDriver | None:
    """Find the CPU driver process on this machine, Plimsoll's or the Go driver; lowest process ID first."""
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
    """Return the arguments of a CPU driver's command line, or None for other commands."""
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
