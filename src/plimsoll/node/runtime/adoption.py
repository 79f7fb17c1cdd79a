"""Adoption of the pods and containers that an earlier agent has left.

Reads the state directories when a runtime starts. Guarantees that no content raises, and that what cannot be
read is quarantined and reported, and its processes are killed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.node.layout import Layout
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.container_process import ContainerProcess
from plimsoll.node.runtime.state_dir import (
    ContainerRecord,
    PodRecord,
    load,
    quarantine_file,
    remove_tree,
    subdirectories,
)


@dataclass
class AdoptedState:
    """Pods by UID; containers, oldest first, whose current state is not known yet."""

    pods: dict[str, PodRecord] = field(default_factory=dict)
    containers: list[ContainerProcess] = field(default_factory=list)
    findings: list[NodeFinding] = field(default_factory=list)


async def read_state(layout: Layout, timeout: float) -> AdoptedState:
    """Read everything that is left. `timeout`: seconds to wait for killed processes."""
    found = AdoptedState()
    for directory in list(subdirectories(layout.pods)):
        await _pod(directory, layout, timeout, found)
    found.containers.sort(key=lambda container: container.record.created_at)
    return found


async def _pod(directory: Path, layout: Layout, timeout: float, found: AdoptedState) -> None:
    record = load(directory / "sandbox.json", PodRecord)
    if isinstance(record, PodRecord) and record.spec.uid != directory.name:
        record = NodeFinding(FindingSeverity.ERROR, f"{directory}/sandbox.json belongs to another pod")
    if isinstance(record, PodRecord):
        found.pods[record.spec.uid] = record
    elif isinstance(record, NodeFinding):
        quarantine_file(directory / "sandbox.json", layout.quarantine)
        text = f"pod {directory.name} is lost; its files are removed: {record.what}"
        found.findings.append(NodeFinding(FindingSeverity.ERROR, text, path=record.path))
    for name in subdirectories(directory / "containers"):
        for attempt in subdirectories(name):
            if isinstance(record, PodRecord):
                await _container(attempt, record, layout, timeout, found)
            else:
                await _clear(attempt, timeout)
    if not isinstance(record, PodRecord):
        await asyncio.to_thread(remove_tree, directory)


async def _container(
    directory: Path, pod: PodRecord, layout: Layout, timeout: float, found: AdoptedState
) -> None:
    record = load(directory / "state.json", ContainerRecord)
    if isinstance(record, ContainerRecord):
        spec = record.spec
        place = (spec.pod, spec.name, str(spec.attempt))
        if place == (pod.spec.uid, directory.parent.name, directory.name):
            found.containers.append(ContainerProcess(directory, record))
            return
        record = NodeFinding(FindingSeverity.ERROR, f"{directory}/state.json belongs to another container")
    if isinstance(record, NodeFinding):
        quarantine_file(directory / "state.json", layout.quarantine)
        text = (
            f"container {directory.parent.name} of pod {pod.spec.uid} is lost; it was killed: {record.what}"
        )
        found.findings.append(NodeFinding(FindingSeverity.ERROR, text, path=record.path))
    await _clear(directory, timeout)


async def _clear(directory: Path, timeout: float) -> None:
    """Kill and remove an unknown container."""
    for pid, start in await asyncio.to_thread(shims.find_shims, directory / "spec.json"):
        shims.send(pid, start, signal.SIGKILL)
        shims.collect(pid)
    deadline = time.monotonic() + timeout
    while shims.is_locked(directory / "lock") and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(remove_tree, directory)
