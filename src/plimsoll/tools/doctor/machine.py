"""Machine: CPUs, memory and swap, compared with the configured machine file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plimsoll.errors import InputError
from plimsoll.node.machine.file import read_machine_file
from plimsoll.node.machine.machine import Machine, format_cpus, read_machine
from plimsoll.node.process.settings import NodeSettings
from plimsoll.tools.doctor.facts import MachineFacts, NodeFacts
from plimsoll.tools.doctor.files import size_text
from plimsoll.tools.doctor.findings import error, finding, note, ok, warning
from plimsoll.tools.findings import Finding, Severity


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
    return MachineFacts(real=real, real_error=real_error, declared=declared, declared_error=declared_error)


def check(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.machine
    if found.declared_error:
        fix = "correct the file: no agent can start with it"
        yield error("machine.file", "machine file", found.declared_error, fix)
    if found.real is None:
        if found.real_error:
            fix = "pass a machine file with --machine"
            yield error("machine.unknown", "machine", found.real_error, fix)
        return
    real = found.real
    yield ok("machine.cpus", "cpus", f"{len(real.cpus)} online: {format_cpus(real.cpus)}")
    yield ok("machine.memory", "memory", size_text(real.memory))
    if real.swap:
        fix = "memory limits do not cover swap: disable it with swapoff, unless intended"
        yield note("machine.swap", "swap", f"{size_text(real.swap)} enabled", fix)
    else:
        yield ok("machine.swap", "swap", "off")
    if found.declared is not None:
        yield from _compare(found.declared, real, facts.runtime)


def _compare(declared: Machine, real: Machine, runtime: str) -> Iterator[Finding]:
    """Compare a machine file with the real machine; a simulated node may declare any machine."""
    severity = Severity.WARNING if runtime == "process" else Severity.INFO
    short = False
    for name in ("cpu", "memory", "ephemeral-storage"):
        wanted, has = declared.capacity.get(name), real.capacity.get(name)
        if wanted is not None and has is not None and wanted > has:
            short = True
            text = f"the machine file declares {wanted.canonical()}, the machine has {has.canonical()}"
            yield finding(
                "machine.promise",
                severity,
                name,
                text,
                "reduce the declared amount: pods would get resources that do not exist",
            )
    gone = sorted(set(declared.cpus) - set(real.cpus))
    if gone and runtime == "process":
        text = f"the machine file declares cpus {format_cpus(gone)}, online are {format_cpus(real.cpus)}"
        yield warning("machine.promise", "cpus", text, "bring them online, or remove them from the file")
    elif not short:
        yield ok("machine.promise", "machine file", "declares no more than the machine has")
