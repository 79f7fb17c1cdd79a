"""Hardware of one node: the devices that drivers have set up for claims.

It outlives the processes and refuses no conflict: two claims may hold one device, which the checker
reports. What does not fit physically is refused, as a device refuses a partition for which it has no room.
Nothing here imports the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.node.amounts import Amounts, add_amounts, amounts_of

Tree = dict[str, Any]


class Hold(NamedTuple):
    """Device, or share of one, that is set up for a claim."""

    driver: str
    pool: str
    device: str
    share: str = ""
    consumed: tuple[tuple[str, str], ...] = ()  #: capacity by name
    admin: bool = False


@dataclass
class Inventory:
    """Devices of one driver on one node; the case changes them while the driver runs."""

    driver: str
    pool: str
    devices: dict[str, Tree]
    counters: tuple[Tree, ...] = ()
    taints: dict[str, list[Tree]] = field(default_factory=dict)
    per_slice: int = 128
    #: Every device that was ever there.
    known: dict[str, Tree] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known |= self.devices

    def add(self, tree: Tree) -> None:
        self.devices[tree["name"]] = self.known[tree["name"]] = tree

    def remove(self, name: str) -> None:
        self.devices.pop(name, None)

    def published(self) -> list[Tree]:
        """Return the devices as they are published, with their taints."""
        found = []
        for name, tree in self.devices.items():
            taints = [*tree.get("taints", ()), *self.taints.get(name, ())]
            found.append({**tree, "taints": taints} if taints else tree)
        return found


@dataclass
class Hardware:
    """State of the devices of one node."""

    node: str
    inventories: dict[str, Inventory] = field(default_factory=dict)  #: by driver
    #: By driver and claim UID.
    holds: dict[tuple[str, str], dict[Hold, None]] = field(default_factory=dict)
    #: Called after every change.
    on_change: Callable[[], None] = lambda: None

    def set_up(self, uid: str, hold: Hold) -> str:
        """Set up a device for a claim, again if it is; return why it is impossible, or ""."""
        held = self.holds.get((hold.driver, uid), {})
        if hold in held:
            return ""
        problem = self._find_shortage(hold)
        if problem:
            return problem
        self.holds.setdefault((hold.driver, uid), {})[hold] = None
        self.on_change()
        return ""

    def tear_down(self, driver: str, uid: str) -> bool:
        """Free the devices of a claim; return whether there were any."""
        found = self.holds.pop((driver, uid), None)
        if found:
            self.on_change()
        return bool(found)

    def reset(self) -> None:
        """Forget everything, as devices do in a reboot."""
        self.holds.clear()
        self.on_change()

    def claims(self) -> dict[str, list[Hold]]:
        """Return what is set up, by claim UID."""
        found: dict[str, list[Hold]] = {}
        for (_, uid), holds in self.holds.items():
            found.setdefault(uid, []).extend(holds)
        return found

    def all_holds(self) -> Iterator[tuple[str, Hold]]:
        for (_, uid), holds in self.holds.items():
            for hold in holds:
                yield uid, hold

    def _find_shortage(self, wanted: Hold) -> str:
        inventory = self.inventories[wanted.driver]
        tree = inventory.known[wanted.device]
        if wanted.admin:
            return ""
        others = [hold for _, hold in self.all_holds() if hold.driver == wanted.driver and not hold.admin]
        if tree.get("allowMultipleAllocations"):
            used = used_capacity([*others, wanted], wanted.pool, wanted.device)
            for name, limit in capacity_of(tree).items():
                if used[name] > limit:
                    return f"{wanted.device}: not enough {name}"
        exceeded = exceeded_counters(inventory, [*others, wanted])
        return f"{wanted.device}: {exceeded[0]}" if exceeded else ""


def capacity_of(tree: Tree) -> Amounts:
    return amounts_of({name: entry["value"] for name, entry in (tree.get("capacity") or {}).items()})


def used_capacity(holds: list[Hold], pool: str, device: str) -> Amounts:
    """Return the capacity of a device that is in use."""
    total: Amounts = defaultdict(int)
    for hold in holds:
        if (hold.pool, hold.device) == (pool, device) and not hold.admin:
            add_amounts(total, amounts_of(dict(hold.consumed)))
    return total


def exceeded_counters(inventory: Inventory, holds: list[Hold]) -> list[str]:
    """Return the counters of a pool that the devices in use exceed."""
    used: dict[tuple[str, str], int] = defaultdict(int)
    # A device that two claims hold is in use once.
    for device in dict.fromkeys(hold.device for hold in holds if not hold.admin):
        for part in inventory.known[device].get("consumesCounters") or ():
            for name, amount in amounts_of(_values(part["counters"])).items():
                used[part["counterSet"], name] += amount
    limits = {
        (entry["name"], name): amount
        for entry in inventory.counters
        for name, amount in amounts_of(_values(entry["counters"])).items()
    }
    return [f"counter {'/'.join(key)} is exceeded" for key in used if used[key] > limits.get(key, 0)]


def _values(counters: Mapping[str, Tree]) -> dict[str, str]:
    return {name: entry["value"] for name, entry in counters.items()}
