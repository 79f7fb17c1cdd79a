"""Builders for the responses of a plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.protocols.messages import nri


def adjustment(
    *,
    resources: nri.LinuxResources | None = None,
    env: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    cdi: Iterable[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> nri.ContainerAdjustment:
    """Build the adjustment of a container being created; `unset` are environment variables to remove."""
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
    """Build a response to CreateContainer."""
    return nri.CreateContainerResponse(adjust=adjust, update=list(updates))


def update(
    container: str, resources: nri.LinuxResources, *, ignore_failure: bool = False
) -> nri.ContainerUpdate:
    """Build an update of an existing container."""
    return nri.ContainerUpdate(
        container_id=container,
        linux=nri.LinuxContainerUpdate(resources=resources),
        ignore_failure=ignore_failure,
    )
