"""The messages a plugin answers with, made in one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.protocols.messages import nri


def cpu_resources(cpus: str = "", mems: str = "") -> nri.LinuxResources:
    """CPUs and memory nodes to run on; an empty text changes nothing."""
    return nri.LinuxResources(cpu=nri.LinuxCPU(cpus=cpus, mems=mems))


def adjustment(
    *,
    resources: nri.LinuxResources | None = None,
    env: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    cdi: Iterable[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> nri.ContainerAdjustment:
    """What is to be different about a container that is being made; `unset` are variables to take away."""
    adjust = nri.ContainerAdjustment(annotations=dict(annotations or {}))
    adjust.env.extend(nri.KeyValue(key=f"-{key}") for key in unset)
    adjust.env.extend(nri.KeyValue(key=key, value=value) for key, value in (env or {}).items())
    adjust.CDI_devices.extend(nri.CDIDevice(name=name) for name in cdi)
    if resources is not None:
        adjust.linux.resources.CopyFrom(resources)
    return adjust


def creation(
    adjust: nri.ContainerAdjustment | None = None, updates: Iterable[nri.ContainerUpdate] = ()
) -> nri.CreateContainerResponse:
    """An answer to CreateContainer."""
    return nri.CreateContainerResponse(adjust=adjust, update=list(updates))


def pin(cpus: str, mems: str = "") -> nri.CreateContainerResponse:
    """An answer to CreateContainer: run on these CPUs."""
    return creation(adjustment(resources=cpu_resources(cpus, mems)))


def update(
    container: str, resources: nri.LinuxResources, *, ignore_failure: bool = False
) -> nri.ContainerUpdate:
    """A change of a container that exists."""
    return nri.ContainerUpdate(
        container_id=container,
        linux=nri.LinuxContainerUpdate(resources=resources),
        ignore_failure=ignore_failure,
    )
