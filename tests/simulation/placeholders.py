"""Invariants of stock servers: a placeholder for every charge and none without, and no node past its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.chaos.scheduler_faults.small_cluster import DRIVERS, slices
from tests.real.placeholder_checker import NodeStates, amount_of
from tests.simulation.workload import CORES_CHARGE, LANE

Tree = dict[str, Any]


class PlaceholderStates:
    """Admitted pods of all nodes, summed after every write."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._states = NodeStates(_classes(), _capacities(), set())
        self._reported = 0

    def on_change(self, deleted: bool, tree: Tree) -> None:
        if tree["kind"] == "Node" and "allocatable" not in tree.get("status", {}):
            return  # its kubelet has not reported yet
        # A kubelet gives away what a pod had when its containers have ended, before it reports that.
        ending = "deletionTimestamp" in tree["metadata"] and tree["kind"] == "Pod"
        self._states.apply(deleted or ending, tree)
        for excess in self._states.excesses[self._reported :]:
            self._report(str(excess))
        self._reported = len(self._states.excesses)

    def find_faults(self) -> list[str]:
        """Return what is wrong when nothing changes any more."""
        return self._states.find_faults(LANE, placeholders=True)


def _classes() -> dict[str, Tree]:
    rules: Tree = {"nodeAllocatableResourceMappings": {}}
    return {
        name: {"driver": f"{name}.example.com", **(CORES_CHARGE if name == "cores" else rules)}
        for name in DRIVERS
    }


def _capacities() -> dict[tuple[str, str, str], dict[str, int]]:
    """Return the capacity of each device by driver, pool and name."""
    return {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"]): {
            name: amount_of(entry["value"]) for name, entry in device.get("capacity", {}).items()
        }
        for each in slices()
        for device in each["spec"].get("devices", ())
    }
