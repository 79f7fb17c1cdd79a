"""Bound by supply: minimum consumption of the remaining requests against free counters and capacities.

Covers many devices at once: thirty small partitions and five full cards cannot come from eight cards if their
units do not add up, whichever devices are tried. Safe, because every request counts with the minimum over its
candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.allocator.devices.capacity import Consumption
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.request_matching import RequestPlan, RequestStep
from plimsoll.allocator.search.search_state import SearchState


class SupplyBound:
    """Demands by position, computed on demand."""

    __slots__ = ("_cheapest", "_counter_needs", "_counters", "_devices", "_sharing", "_steps", "_usage")

    def __init__(self, steps: Sequence[RequestStep], devices: NodeDevices, usage: DeviceUsage) -> None:
        self._steps = steps
        self._devices = devices
        self._usage = usage
        #: Counter name -> the numbers of the counters of that name, over all sets.
        self._counters: dict[str, list[int]] = {}
        for pool in devices.counter_pools:
            for index, (_, name) in enumerate(pool.names):
                self._counters.setdefault(name, []).append(pool.first + index)
        self._counter_needs: dict[int, Mapping[str, int]] = {}
        #: Counters, and masks of devices by what they consume of these, ascending.
        self._cheapest: list[tuple[Sequence[int], list[tuple[int, int]]]] | None = None
        self._sharing: dict[int, tuple[int, Mapping[str, int]]] = {}

    def lacks(self, position: int, search_state: SearchState) -> bool:
        """Return whether the steps from a position on need more than is left."""
        if self._counters and self._lacks_counters(position, search_state):
            return True
        return bool(self._devices.shareable) and self._lacks_capacity(position, search_state)

    def exceeds_supply(self, mask: int, missing: int, position: int, search_state: SearchState) -> bool:
        """Return whether even the devices of a mask that consume least exceed the counters.

        `missing` devices are needed for a plan; the plans from the position on need theirs as well.
        """
        if not mask & self._devices.shareable:
            for plan in self._certain(position):
                if not plan.admin and not plan.candidates & self._devices.shareable:
                    mask |= plan.candidates & ~search_state.picked
                    missing += plan.count
        if not mask & self._devices.counting:
            return False
        if self._cheapest is None:
            self._cheapest = self._rank_by_draw()
        available, drawn = self._usage.available, search_state.drawn
        for numbers, ranked in self._cheapest:
            left = sum([max(available[number] - drawn[number], 0) for number in numbers])
            count = missing
            for amount, devices in ranked:
                chosen = min(count, (devices & mask).bit_count())
                left -= chosen * amount
                count -= chosen
                if left < 0:
                    return True
                if not count:
                    break
        return False

    def _rank_by_draw(self) -> list[tuple[Sequence[int], list[tuple[int, int]]]]:
        """Return the masks of devices by consumption, ascending, for the counters of each name and for all
        together.
        """
        names = {number: name for name, numbers in self._counters.items() for number in numbers}
        amounts: dict[str, dict[int, int]] = {name: {} for name in [*self._counters, ""]}
        drawing = dict.fromkeys(amounts, 0)
        for number, entry in enumerate(self._devices.entries):
            if entry.shareable:
                continue  # further shares of a device draw nothing
            totals = {"": sum(amount for _, amount in entry.draw)} if entry.draw else {}
            for counter, amount in entry.draw:
                totals[names[counter]] = totals.get(names[counter], 0) + amount
            for name, amount in totals.items():
                amounts[name][amount] = amounts[name].get(amount, 0) | 1 << number
                drawing[name] |= 1 << number
        groups = {**self._counters, "": [number for numbers in self._counters.values() for number in numbers]}
        return [
            (groups[name], sorted([(0, self._devices.all & ~drawing[name]), *by_amount.items()]))
            for name, by_amount in amounts.items()
        ]

    def _lacks_counters(self, position: int, search_state: SearchState) -> bool:
        needs = self._counter_needs.get(position)
        if needs is None:
            needs = self._counter_needs[position] = self._sum_counters(position)
        available, drawn = self._usage.available, search_state.drawn
        return any(
            need > sum(max(available[number] - drawn[number], 0) for number in self._counters[name])
            for name, need in needs.items()
        )

    def _sum_counters(self, position: int) -> dict[str, int]:
        """Sum the minimum consumption of the steps from a position on, by counter name."""
        needs: dict[str, int] = {}
        names = {number: name for name, numbers in self._counters.items() for number in numbers}
        for plan in self._certain(position):
            # Further shares of a device draw nothing.
            if plan.candidates & self._devices.shareable or not plan.candidates:
                continue
            least: dict[str, int] | None = None
            for device in bit_numbers(plan.candidates):
                draws: dict[str, int] = {}
                for number, amount in self._devices.entries[device].draw:
                    draws[names[number]] = draws.get(names[number], 0) + amount
                least = draws if least is None else _least(least, draws)
            for name, amount in (least or {}).items():
                needs[name] = needs.get(name, 0) + amount * plan.count
        return needs

    def _lacks_capacity(self, position: int, search_state: SearchState) -> bool:
        known = self._sharing.get(position)
        if known is None:
            known = self._sharing[position] = self._sum_capacity(position)
        union, needs = known
        if not needs:
            return False
        left: dict[str, int] = {}
        for device in bit_numbers(union):
            names = self._devices.entries[device].device.capacity
            share = search_state.shares.get(device)
            taken = share[1:] if share is not None else (0,) * len(names)
            for name, free, used in zip(names, self._usage.free(device), taken, strict=True):
                left[name] = left.get(name, 0) + max(free - used, 0)
        return any(need > left.get(name, 0) for name, need in needs.items())

    def _sum_capacity(self, position: int) -> tuple[int, dict[str, int]]:
        """Return the devices that the steps from a position on may share, and their minimum consumption."""
        union, needs = 0, dict[str, int]()
        for plan in self._certain(position):
            if not plan.candidates or plan.candidates & ~self._devices.shareable:
                continue
            union |= plan.candidates
            least: dict[str, int] | None = None
            for shape in {self._devices.entries[device].capacity for device in bit_numbers(plan.candidates)}:
                wanted = plan.consumptions[shape]
                assert isinstance(wanted, Consumption)
                takes = dict(zip(wanted.amounts, wanted.nano, strict=True))
                least = takes if least is None else _least(least, takes)
            for name, amount in (least or {}).items():
                needs[name] = needs.get(name, 0) + amount * plan.count
        return union, needs

    def _certain(self, position: int) -> list[RequestPlan]:
        """Return the plans that must be served, excluding prioritized lists."""
        return [step.plans[0] for step in self._steps[position:] if not step.optional]


def _least(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: min(amount, b[name]) for name, amount in a.items() if name in b}
