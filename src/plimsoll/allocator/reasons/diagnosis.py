"""Diagnosis of a search without a solution.

`diagnose` evaluates every rule for each request alone, and for the request at which the search got furthest
with the devices of the earlier requests taken. Slower than the search, and run only on demand.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from plimsoll.allocator.devices.capacity import SHORT, UNDEFINED, CapacityRefusal, Consumption, capacity_value
from plimsoll.allocator.devices.node_devices import CounterPool, NodeDevices, bit_numbers
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.reasons.constraints import find_group_shortages, value_texts
from plimsoll.allocator.reasons.refusal import (
    BudgetShortage,
    CapacityShortage,
    ConstraintConflict,
    CounterShortage,
    GroupConflict,
    NodeOperationsRefusal,
    PluginConflict,
    Refusal,
    RefusalRule,
    Removal,
    RemovalDetail,
    RequestRefusal,
    SearchDeadEnd,
    SelectorRefusal,
    TaintRefusal,
    UnusablePool,
)
from plimsoll.allocator.request_matching import RequestPlan, RequestSet
from plimsoll.allocator.search.search_state import NO_VALUES, Pick, SearchState
from plimsoll.api.device_taints import find_untolerated_taint
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import expressions_of


def diagnose(
    order: RequestSet,
    devices: NodeDevices,
    usage: DeviceUsage,
    search_state: SearchState,
    deepest: tuple[int, int, tuple[Pick, ...]],
) -> Refusal:
    """Diagnose why the requests cannot be served, with a new search state and the furthest position."""
    reader = _Diagnoser(order, devices, usage, search_state)
    alone = [[reader.read(plan) for plan in step.plans] for step in order.steps]
    together = all(any(request.served for request in requests) for requests in alone)
    dead_end = _find_sticking_point(order, devices, search_state, reader, deepest) if together else None
    return Refusal(
        devices.node.metadata.name,
        requests=tuple(request for requests in alone for request in requests),
        together=together,
        groups=tuple(find_group_shortages(order, devices.shareable)),
        dead_end=dead_end,
        pools=tuple(
            UnusablePool(pool.id, pool.status.value, pool.reason)
            for pool in devices.pools
            if pool.status is not PoolStatus.COMPLETE
        ),
    )


def _find_sticking_point(
    order: RequestSet,
    devices: NodeDevices,
    search_state: SearchState,
    reader: _Diagnoser,
    deepest: tuple[int, int, tuple[Pick, ...]],
) -> SearchDeadEnd | None:
    """Find the request that fails once the earlier ones have their devices."""
    position, alternative, picks = deepest
    failed: RequestPlan | None = None
    if picks:
        for plan, device in picks:
            search_state.take(plan, device)
        failed = order.steps[position].plans[alternative]
    else:
        # The bounds failed before the search: assign the first fitting devices to each request.
        for step in order.steps:
            failed = None if any(reader.serve(plan) for plan in step.plans) else step.plans[0]
            if failed is not None:
                break
    if failed is None:
        return None
    held = tuple(
        (order.claims[plan.claim].metadata.full_name, plan.name, devices.entries[device].id)
        for plan, device in search_state.picks
    )
    return SearchDeadEnd(held, reader.read(failed))


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


#: Order in which the rules are evaluated.
_ORDER = {rule: number for number, rule in enumerate(RefusalRule)}


class _Diagnoser:
    """Evaluation of every rule for every device, in the current search state."""

    def __init__(
        self, order: RequestSet, devices: NodeDevices, usage: DeviceUsage, search_state: SearchState
    ) -> None:
        self._order = order
        self._devices = devices
        self._usage = usage
        self._search_state = search_state
        self._overdrawn: dict[tuple[int, int], frozenset[int]] = {}  # by pool and number of picks
        self._counters = {
            pool.first + index: name
            for pool in devices.counter_pools
            for index, name in enumerate(pool.names)
        }

    def read(self, plan: RequestPlan) -> RequestRefusal:
        """Return the devices left for a plan, and those removed by each rule."""
        selected = self._selected(plan)
        removals = list(self._unselected(plan, ~selected & (1 << len(self._devices.entries)) - 1))
        found: dict[RefusalRule, list[tuple[tuple[int, ...], int, RemovalDetail]]] = {}
        left = 0
        for number in bit_numbers(selected):
            reason = self._reason(plan, number)
            if reason is None:
                left |= 1 << number
            else:
                rule, distance, detail = reason
                found.setdefault(rule, []).append((distance, number, detail))
        for rule, entries in found.items():
            _, number, detail = min(entries, key=lambda entry: entry[:2])
            removals.append(Removal(rule, len(entries), self._devices.entries[number].id, detail))
        removals.sort(key=lambda removal: _ORDER[removal.rule])
        largest = self._largest_group(plan, left)
        short = largest is not None and largest < plan.count <= left.bit_count()
        return RequestRefusal(
            claim=self._order.claims[plan.claim].metadata.full_name,
            request=plan.name,
            wanted=plan.count,
            takes_all=plan.all,
            devices=len(self._devices.entries),
            removals=tuple(removals),
            left=left.bit_count(),
            largest_group=largest,
            conflict=self._pair(plan, left) if short else None,
        )

    def serve(self, plan: RequestPlan) -> bool:
        """Assign the first fitting devices to a plan; return whether they suffice."""
        missing = max(plan.count, 1)
        for number in bit_numbers(self._selected(plan)):
            if (
                missing
                and self._reason(plan, number) is None
                and self._search_state.take(plan, number) is not None
            ):
                missing -= 1
        return not missing

    def _reason(
        self, plan: RequestPlan, number: int
    ) -> tuple[RefusalRule, tuple[int, ...], RemovalDetail] | None:
        """Return the first rule that excludes a selected device, its distance from passing, and details."""
        flag = 1 << number
        entry = self._devices.entries[number]
        if number in plan.failures:
            return RefusalRule.FAILED, (), None
        if plan.consumptions:
            shortage = self._capacity(plan, number)
            if shortage is not None:
                distance = shortage.wanted.nano - shortage.had.nano
                return RefusalRule.CAPACITY, (int(shortage.rule == UNDEFINED), distance), shortage
        if not plan.admin and self._usage.taken & flag:
            if self._usage.withheld & flag:
                return RefusalRule.WITHHELD, (), PluginConflict(self._usage.plugin_resource(number))
            return RefusalRule.TAKEN, (), None
        if self._search_state.unavailable(plan) & flag:
            return RefusalRule.PICKED, (), None
        if self._devices.unsupported & flag:
            enabled = self._devices.features.optional_node_operations
            skipped = entry.view.slice.spec.skip_node_operations
            return RefusalRule.NODE_OPERATIONS, (), NodeOperationsRefusal(skipped, enabled)
        if plan.tainted & flag:
            taint = find_untolerated_taint(entry.device.taints, plan.tolerations)
            assert taint is not None
            return RefusalRule.TAINT, (), TaintRefusal(taint)
        if not self._search_state.groups_fit(number):
            return RefusalRule.GROUPS, (), self._group_conflict(number)
        if self._search_state.needs_counters(number) or (self._usage.blocked & flag):
            short = self._counter(number)
            if short is not None:
                return RefusalRule.COUNTER, (short.wanted - short.had,), short
        for constraint in plan.constraints:
            if plan.tables[constraint].failed & flag:
                return RefusalRule.FAILED, (), None
            if not self._search_state.compatible_devices(plan, constraint) & flag:
                return RefusalRule.CONSTRAINT, (), self._conflict(plan, constraint, number)
        lack = self._budget(plan, number)
        if lack is not None:
            return RefusalRule.BUDGET, (lack.wanted - lack.had,), lack
        return None

    def _selected(self, plan: RequestPlan) -> int:
        """Return the devices that all selectors accept, and those on which one failed."""
        failed = sum(1 << number for number in plan.failures)
        return plan.selection.mask | failed

    def _unselected(self, plan: RequestPlan, rest: int) -> Iterator[Removal]:
        """Yield the removals of devices that are not selected; one that passed more selectors is closer."""
        entries, features = self._devices.entries, self._devices.features
        bound: list[int] = []
        if not features.binding_conditions:
            bound = [number for number in bit_numbers(rest) if entries[number].device.binding_conditions]
        if bound:
            yield Removal(RefusalRule.BINDING, len(bound), entries[bound[0]].id, None)
        rest &= ~sum(1 << number for number in bound)
        of_class = plan.device_class.spec.selectors
        class_texts = expressions_of(of_class)
        texts = [(RefusalRule.CLASS_SELECTOR, index, text) for index, text in enumerate(class_texts)]
        texts += [(RefusalRule.REQUEST_SELECTOR, index, text) for index, text in enumerate(plan.expressions)]
        found: dict[RefusalRule, Removal] = {}
        for (rule, index, text), survivors in zip(texts, plan.selection.survivors, strict=False):
            dropped = rest & ~survivors
            rest &= survivors
            if dropped:
                count = dropped.bit_count() + (found[rule].count if rule in found else 0)
                detail = SelectorRefusal(index, text)
                found[rule] = Removal(rule, count, entries[_lowest(dropped)].id, detail)
        yield from found.values()
        if rest:
            yield Removal(RefusalRule.NODE, rest.bit_count(), entries[_lowest(rest)].id, None)

    def _capacity(self, plan: RequestPlan, number: int) -> CapacityShortage | None:
        entry = self._devices.entries[number]
        wanted = plan.consumptions[entry.capacity]
        if isinstance(wanted, CapacityRefusal):
            return CapacityShortage(wanted.rule, wanted.name, wanted.wanted, wanted.had)
        assert isinstance(wanted, Consumption)
        share = self._search_state.shares.get(number, ())
        taken = share[1:] or (0,) * len(wanted.nano)
        worst: CapacityShortage | None = None
        for (name, amount), free, mine in zip(
            wanted.amounts.items(), self._usage.free(number), taken, strict=True
        ):
            if amount.nano > free - mine:
                had = Quantity(free - mine, capacity_value(entry.device.capacity[name]).format, None)
                if worst is None or amount.nano - had.nano > worst.wanted.nano - worst.had.nano:
                    worst = CapacityShortage(SHORT, name, amount, had)
        return worst

    def _counter(self, number: int) -> CounterShortage | None:
        """Return the counter with the largest shortage, including counters overdrawn by others."""
        entry = self._devices.entries[number]
        wanted = dict(entry.draw)
        worst: CounterShortage | None = None
        for pool in self._devices.counter_pools:
            if pool.pool != entry.id.pool_id:
                continue
            for counter in sorted(wanted.keys() | self._overdrawn_counters(pool)):
                had = self._usage.available[counter] - self._search_state.drawn[counter]
                amount = wanted.get(counter, 0)
                if amount > had and (worst is None or amount - had > worst.wanted - worst.had):
                    worst = CounterShortage(*self._counters[counter], amount, had)
        if worst is None and self._usage.blocked >> number & 1:
            return CounterShortage("", "", 0, 0)  # the gate for counters is off
        return worst

    def _overdrawn_counters(self, pool: CounterPool) -> frozenset[int]:
        """Return the counters of a pool of which more is in use than there is."""
        key = pool.first, len(self._search_state.picks)
        if key not in self._overdrawn:
            usage, drawn = self._usage, self._search_state.drawn
            counters = range(pool.first, pool.first + len(pool.names))
            self._overdrawn[key] = frozenset(each for each in counters if drawn[each] > usage.available[each])
        return self._overdrawn[key]

    def _group_conflict(self, number: int) -> GroupConflict:
        """Return the first counter set in which a device is not compatible with those in use."""
        states = self._search_state.groups
        index, mask = next(
            (index, mask) for index, mask in self._devices.entries[number].groups if not states[index] & mask
        )
        known = self._devices.group_sets[index]
        return GroupConflict(known.name, known.names(mask), known.names(states[index]), bool(states[index]))

    def _conflict(self, plan: RequestPlan, constraint: int, number: int) -> ConstraintConflict:
        asked = self._order.constraints[constraint]
        table = plan.tables[constraint]
        mine = table.sets[number]
        if mine is None:
            return ConstraintConflict(asked.attribute, asked.distinct, (), None)
        for other_plan, other in self._search_state.picks:
            if constraint not in other_plan.constraints:
                continue
            theirs = other_plan.tables[constraint].sets[other]
            if theirs is None:
                continue
            if bool(mine & theirs) == asked.distinct:
                id = self._devices.entries[other].id
                mine_text, other_text = value_texts(table, mine), value_texts(table, theirs)
                return ConstraintConflict(asked.attribute, asked.distinct, mine_text, id, other_text)
        return ConstraintConflict(asked.attribute, asked.distinct, value_texts(table, mine), None)

    def _pair(self, plan: RequestPlan, left: int) -> tuple[DeviceId, ConstraintConflict] | None:
        """Return two of the devices left that a constraint excludes together."""
        numbers = bit_numbers(left)
        for constraint in plan.constraints:
            asked, table = self._order.constraints[constraint], plan.tables[constraint]
            for one, two in itertools.combinations(numbers, 2):
                mine, theirs = table.sets[two] or 0, table.sets[one] or 0
                if bool(mine & theirs) == asked.distinct:
                    other = self._devices.entries[one].id
                    texts = value_texts(table, mine), value_texts(table, theirs)
                    conflict = ConstraintConflict(asked.attribute, asked.distinct, texts[0], other, texts[1])
                    return self._devices.entries[two].id, conflict
        return None

    def _budget(self, plan: RequestPlan, number: int) -> BudgetShortage | None:
        remaining_budget = self._search_state.remaining_budget
        if remaining_budget is None:
            return None
        for (line, resource), charge, had in zip(
            remaining_budget.bounds,
            remaining_budget.charges(plan, number),
            remaining_budget.left,
            strict=True,
        ):
            if charge and charge > had:
                return BudgetShortage(line, resource, charge, had)
        return None

    def _largest_group(self, plan: RequestPlan, left: int) -> int | None:
        """Return the maximum number of devices left that satisfy the constraints together."""
        largest: int | None = None
        for constraint in plan.constraints:
            table, state = plan.tables[constraint], self._search_state.constraints[constraint]
            if self._order.constraints[constraint].distinct:
                count = sum(1 for having in table.by_bit if having & left)
            else:
                count = max(((having & left).bit_count() for having in table.by_bit), default=0)
            if state == NO_VALUES and table.opaque & left:
                count = max(count, 1)
            largest = count if largest is None else min(largest, count)
        return largest
