"""A container combined from its spec, CDI files and hooks.

The order is: the spec with what device plugins inject, then CDI edits, then hooks; later values win. Hooks
see what CDI files have added, as NRI plugins do in other runtimes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from plimsoll.node.containers import ContainerInfo, ContainerSpec, RuntimeFault, SandboxSpec
from plimsoll.node.hooks import AdjustedContainer, DeviceEdit, MountEdit, RuntimeHooks
from plimsoll.node.resources import LinuxResources
from plimsoll.protocols.cdi import CdiCache, CdiFault, Edits

CREATE_ERROR = "CreateContainerError"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedContainer:
    """Fully resolved container, before it is created."""

    spec: ContainerSpec  #: with the final environment, command and CDI names
    resources: LinuxResources
    oom_score_adj: int
    mounts: tuple[MountEdit, ...] = ()
    devices: tuple[DeviceEdit, ...] = ()
    gids: tuple[int, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: Requests that this runtime cannot fulfill.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpecRefusal:
    """Reason why a container cannot be created; `hooks_called`: hooks agreed and must be notified."""

    fault: RuntimeFault
    hooks_called: bool = False


async def resolve_container(
    pod: SandboxSpec,
    spec: ContainerSpec,
    resources: LinuxResources,
    cdi: CdiCache | None,
    hooks: RuntimeHooks,
) -> ResolvedContainer | SpecRefusal:
    """Resolve a container: apply CDI files and hooks."""
    edits = await _edits(cdi, spec.cdi, spec.edits)
    if isinstance(edits, RuntimeFault):
        return SpecRefusal(edits)
    seen = replace(spec, env={**spec.env, **edits.variables})
    adjusted = await hooks.create(pod, seen, resources)
    if isinstance(adjusted, RuntimeFault):
        return SpecRefusal(adjusted)
    names = tuple(dict.fromkeys((*spec.cdi, *adjusted.cdi)))
    if names != spec.cdi:
        edits = await _edits(cdi, names, spec.edits)
        if isinstance(edits, RuntimeFault):
            return SpecRefusal(edits, hooks_called=True)
    return combine(replace(spec, cdi=names), edits, adjusted)


def combine(spec: ContainerSpec, edits: Edits, adjusted: AdjustedContainer) -> ResolvedContainer:
    """Combine a container with edits and adjustments."""
    score = spec.plan.oom_score_adj if adjusted.oom_score_adj is None else adjusted.oom_score_adj
    env = {**spec.env, **edits.variables}
    for name in adjusted.unset:
        env.pop(name, None)
    notes = []
    if edits.hooks:
        notes.append(f"{len(edits.hooks)} CDI hooks are not run: this runtime is not an OCI runtime")
    if edits.intel_rdt is not None:
        notes.append("CDI intelRdt is not applied")
    if edits.net_devices:
        notes.append("CDI netDevices are not moved: containers use the host network")
    return ResolvedContainer(
        spec=replace(
            spec,
            env={**env, **adjusted.env},
            command=adjusted.command or spec.command,
        ),
        resources=adjusted.resources,
        oom_score_adj=score,
        mounts=(*mounts_of(edits), *adjusted.mounts),
        devices=(*devices_of(edits), *adjusted.devices),
        gids=tuple(dict.fromkeys(gid for gid in edits.additional_gids if gid)),
        annotations={**spec.annotations, **adjusted.annotations},
        notes=tuple(notes),
    )


def mounts_of(edits: Edits) -> tuple[MountEdit, ...]:
    return tuple(MountEdit(m.host_path, m.container_path, m.type, m.options) for m in edits.mounts)


def devices_of(edits: Edits) -> tuple[DeviceEdit, ...]:
    return tuple(
        DeviceEdit(n.path, n.host_path, n.type, n.major, n.minor, n.file_mode, n.uid, n.gid)
        for n in edits.device_nodes
    )


async def cancel_creation(hooks: RuntimeHooks, pod: SandboxSpec, state: ContainerInfo) -> None:
    """Notify hooks that an agreed container is not created."""
    await hooks.stopped(pod, state)
    await hooks.removed(pod, state)


async def _edits(cdi: CdiCache | None, names: Sequence[str], first: Edits) -> Edits | RuntimeFault:
    """Return the edits of a container: its own, then those of CDI files."""
    if not names:
        return first
    if cdi is None:
        return _unresolved(
            [CdiFault("unresolvable", name, "this node has no CDI directories") for name in names]
        )
    found = await asyncio.to_thread(cdi.edits, names)
    return first.plus(found) if isinstance(found, Edits) else _unresolved(found)


def _unresolved(faults: Sequence[CdiFault]) -> RuntimeFault:
    names = ", ".join(fault.where for fault in faults)
    why = "; ".join(dict.fromkeys(fault.message for fault in faults))
    return RuntimeFault(CREATE_ERROR, f"CDI device injection failed: unresolvable CDI devices {names}: {why}")
