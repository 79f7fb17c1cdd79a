"""Published devices and annotations, built again only if what they depend on has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.devices import CpuLayout, ServerCapabilities, make_annotations, make_devices
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.topology.topology import Topology

Tree = dict[str, Any]


class CpuDeviceCache:
    """Cache of the published devices: every claim uses them."""

    def __init__(self, settings: CpuSettings) -> None:
        self._settings = settings
        self._layout: CpuLayout | None = None
        self._key: tuple[Mapping[str, CpuSet], CpuSet, ServerCapabilities] | None = None
        self._devices: list[Tree] = []
        self._described: tuple[Topology, CpuLayout] | None = None
        self._annotations: dict[str, str] = {}

    def list_devices(
        self,
        topology: Topology,
        layout: CpuLayout,
        capabilities: ServerCapabilities,
        *,
        offline_allocated: Mapping[str, CpuSet],
        uncounted: CpuSet,
    ) -> list[Tree]:
        """Return the devices: see `make_devices`."""
        key = (offline_allocated, uncounted, capabilities)
        if self._layout is not layout or self._key != key:
            self._devices = make_devices(
                topology,
                layout,
                self._settings,
                capabilities.form,
                offline_allocated=offline_allocated,
                uncounted=uncounted,
                capabilities=capabilities,
            )
            self._layout, self._key = layout, key
        return self._devices

    def get_annotations(self, topology: Topology, layout: CpuLayout) -> dict[str, str]:
        """Return the annotations that describe the machine."""
        known = self._described
        if known is None or known[0] is not topology or known[1] is not layout:
            self._described, self._annotations = (topology, layout), make_annotations(topology, layout)
        return self._annotations
