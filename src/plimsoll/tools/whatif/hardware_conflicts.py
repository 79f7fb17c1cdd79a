"""`find_conflicts`: hardware that a device plugin and a driver advertise, and that may be given out twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from plimsoll.scheduler.filters.mixed_advertisers import claimed_driver, held_by_plugins, plugin_requests
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.whatif.outcome import Name, ScheduledPod


@dataclass(frozen=True, slots=True)
class HardwareConflict:
    """Hardware given to a pod that others on its node may have: a device plugin and a driver advertise it."""

    pod: Name
    node: str
    given: str  #: devices, or the resource of the device plugin
    held: str  #: resource, or driver, through which others have some

    @property
    def text(self) -> str:
        held = f"pods on {self.node} have {self.held}, and it is unknown which units these are"
        return f"{'/'.join(self.pod)} gets {self.given}, which may be in use: {held}"


def find_conflicts(placed: Iterable[ScheduledPod], snapshot: Snapshot) -> Iterator[HardwareConflict]:
    """Yield the scheduled pods with hardware that may be given out twice; `snapshot` is the result."""
    for each in placed:
        row = snapshot.row_of(each.node)
        if row is None or each.placement is None:
            continue
        held = held_by_plugins(snapshot, row)
        for (_, driver), resource in held.items():
            devices = ", ".join(name for name in each.devices if name.startswith(f"{driver}/"))
            if devices:
                yield HardwareConflict(each.pod, each.node, devices, resource)
        for resource in plugin_requests(each.placement.pod_info.requests):
            driver = claimed_driver(snapshot, row, resource)
            if driver:
                yield HardwareConflict(each.pod, each.node, resource, f"devices of {driver}")
