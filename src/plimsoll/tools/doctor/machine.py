"""Machine: CPUs, memory, huge pages, swap, process IDs, compared with the configured machine file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from plimsoll.errors import InputError
from plimsoll.node.machine.file import read_machine_file
from plimsoll.node.machine.machine import Machine, format_cpus, read_machine
from plimsoll.node.process.settings import NodeSettings
from plimsoll.tools.doctor.facts import MachineFacts, NodeFacts
from plimsoll.tools.doctor.files import read_file, size_text
from plimsoll.tools.doctor.findings import DoctorFinding, Level, error, note, ok, warning

#: The kubelet's hard threshold for memory: below it pods are evicted.
_LEAST_MEMORY = 100 << 20
_PIDS_SHARE = 0.9


def gather(settings: NodeSettings, root: Path = Path("/")) -> MachineFacts:
    real, real_error = None, ""
    try:
        real = read_machine(root, storage=settings.root)
    except (InputError, OSError, ValueError) as problem:
        real_error = str(problem)
    declared, declared_error = settings.machine, ""
    if settings.machine_file is not None and declared is None:
        try:
            declared = read_machine_file(settings.machine_file)
        except (InputError, OSError, ValueError) as problem:
            declared_error = str(problem)
    info = read_file(root / "proc/meminfo", 65536)[0].decode(errors="replace")
    available = re.search(r"^MemAvailable:\s+([0-9]{1,15})", info, re.MULTILINE)
    try:
        processes = sum(1 for name in os.listdir(root / "proc") if name.isdigit())
    except OSError:
        processes = None
    return MachineFacts(
        real=real,
        real_error=real_error,
        declared=declared,
        declared_error=declared_error,
        memory_available=int(available[1]) * 1024 if available is not None else None,
        processes=processes,
    )


def judge(facts: NodeFacts) -> Iterator[DoctorFinding]:
    found = facts.machine
    if found.declared_error:
        fix = "mend the file: no agent starts with it"
        yield error("machine.file", "machine file", found.declared_error, fix)
    if found.real is None:
        if found.real_error:
            fix = "give the machine by --machine"
            yield error("machine.unknown", "machine", found.real_error, fix)
        return
    real = found.real
    yield ok("machine.cpus", "cpus", f"{len(real.cpus)} online: {format_cpus(real.cpus)}")
    yield from _judge_memory(real, found.memory_available)
    pages = {size: amount for size, amount in real.huge_pages.items() if amount}
    text_found = (
        ", ".join(f"{size_text(amount)} in pages of {size}" for size, amount in pages.items()) or "none"
    )
    yield ok("machine.hugepages", "huge pages", text_found)
    if real.swap:
        fix = "pods' memory is not limited by what they swap: swapoff, unless this is wanted"
        yield note("machine.swap", "swap", f"{size_text(real.swap)} are on", fix)
    else:
        yield ok("machine.swap", "swap", "off")
    if real.pids and found.processes is not None:
        text = f"{found.processes} processes, {real.pids} process ids"
        if found.processes > _PIDS_SHARE * real.pids:
            yield warning("machine.pids", "process ids", text, "raise kernel.pid_max, or end some")
        else:
            yield ok("machine.pids", "process ids", text)
    if found.declared is not None:
        yield from _compare(found.declared, real, facts.runtime)


def _judge_memory(real: Machine, available: int | None) -> Iterator[DoctorFinding]:
    text = size_text(real.memory)
    if available is None:
        yield ok("machine.memory", "memory", text)
        return
    text += f", {size_text(available)} available"
    if available < _LEAST_MEMORY:
        yield warning("machine.memory", "memory", text, "free some: pods are evicted below 100Mi")
    else:
        yield ok("machine.memory", "memory", text)


def _compare(declared: Machine, real: Machine, runtime: str) -> Iterator[DoctorFinding]:
    """Compare a machine file with the real machine; simulated nodes may declare anything."""
    level = Level.WARNING if runtime == "process" else Level.INFO
    short = False
    for name in ("cpu", "memory", "ephemeral-storage"):
        wanted, has = declared.capacity.get(name), real.capacity.get(name)
        if wanted is not None and has is not None and wanted > has:
            short = True
            text = f"the machine file says {wanted.canonical()}, the machine has {has.canonical()}"
            yield DoctorFinding(
                "machine.promise", level, name, text, "pods are promised what is not there: say less"
            )
    gone = sorted(set(declared.cpus) - set(real.cpus))
    if gone and runtime == "process":
        text = f"the machine file has cpus {format_cpus(gone)}, online are {format_cpus(real.cpus)}"
        yield warning("machine.promise", "cpus", text, "bring them online, or take them out of the file")
    elif not short:
        yield ok("machine.promise", "machine file", "promises no more than there is")
