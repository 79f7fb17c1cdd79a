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

from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.node.layout import Layout
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.container_process import Life
from plimsoll.node.runtime.state_dir import (
    ContainerRecord,
    PodRecord,
    folders_in,
    load,
    put_aside,
    remove_tree,
)


@dataclass
class Found:
    """Pods by UID; containers, oldest first, whose current state is not known yet."""

    pods: dict[str, PodRecord] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


async def look_around(layout: Layout, patience: float) -> Found:
    """Read everything that is left. `patience`: seconds to wait for killed processes."""
    found = Found()
    for folder in list(folders_in(layout.pods)):
        await _pod(folder, layout, patience, found)
    found.lives.sort(key=lambda life: life.record.created_at)
    return found


async def _pod(folder: Path, layout: Layout, patience: float, found: Found) -> None:
    record = load(folder / "sandbox.json", PodRecord)
    if isinstance(record, PodRecord) and record.spec.uid != folder.name:
        record = Finding(Severity.ERROR, f"{folder}/sandbox.json belongs to another pod")
    if isinstance(record, PodRecord):
        found.pods[record.spec.uid] = record
    elif isinstance(record, Finding):
        put_aside(folder / "sandbox.json", layout.quarantine)
        text = f"pod {folder.name} is lost; its files are removed: {record.what}"
        found.findings.append(Finding(Severity.ERROR, text, path=record.path))
    for name in folders_in(folder / "containers"):
        for attempt in folders_in(name):
            if isinstance(record, PodRecord):
                await _container(attempt, record, layout, patience, found)
            else:
                await _clear(attempt, patience)
    if not isinstance(record, PodRecord):
        await asyncio.to_thread(remove_tree, folder)


async def _container(folder: Path, pod: PodRecord, layout: Layout, patience: float, found: Found) -> None:
    record = load(folder / "state.json", ContainerRecord)
    if isinstance(record, ContainerRecord):
        spec = record.spec
        place = (spec.pod, spec.name, str(spec.attempt))
        if place == (pod.spec.uid, folder.parent.name, folder.name):
            found.lives.append(Life(folder, record))
            return
        record = Finding(Severity.ERROR, f"{folder}/state.json belongs to another container")
    if isinstance(record, Finding):
        put_aside(folder / "state.json", layout.quarantine)
        text = f"container {folder.parent.name} of pod {pod.spec.uid} is lost; it was killed: {record.what}"
        found.findings.append(Finding(Severity.ERROR, text, path=record.path))
    await _clear(folder, patience)


async def _clear(folder: Path, patience: float) -> None:
    """Kill and remove an unknown container."""
    for pid, start in await asyncio.to_thread(shims.find_shims, folder / "spec.json"):
        shims.send(pid, start, signal.SIGKILL)
        shims.collect(pid)
    deadline = time.monotonic() + patience
    while shims.is_locked(folder / "lock") and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(remove_tree, folder)
