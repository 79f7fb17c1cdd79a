"""Responses and resources that plugins send in tests."""

from __future__ import annotations

from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.edits import adjustment, creation


def cpu_resources(cpus: str = "", mems: str = "") -> nri.LinuxResources:
    """Build CPUs and memory nodes; an empty text changes nothing."""
    return nri.LinuxResources(cpu=nri.LinuxCPU(cpus=cpus, mems=mems))


def pin(cpus: str, mems: str = "") -> nri.CreateContainerResponse:
    """Build a response to CreateContainer that pins CPUs."""
    return creation(adjustment(resources=cpu_resources(cpus, mems)))
