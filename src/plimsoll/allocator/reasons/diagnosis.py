"""From a search that found nothing to the reasons.

Owns `diagnose`: every request is asked alone what each rule takes away, and the request at which the search
came furthest is asked with everything in place that the earlier requests had taken. Slower than the search,
and run only where somebody wants to know.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from plimsoll.allocator.devices.attributes import AttributeTable
from plimsoll.allocator.devices.capacity import SHORT, UNDEFINED, CapacityRefusal, Consumption, value_of
from plimsoll.allocator.devices.node_devices import NodeDevices, bits_of
from plimsoll.allocator.devices.pools import Standing
from plimsoll.allocator.devices.taints import untolerated
from plimsoll.allocator.devices.usage import Usage
from plimsoll.allocator.reasons.refusal import (
    BudgetShortage,
    CapacityShortage,
    ConstraintConflict,
    CounterShortage,
    Detail,
    GroupShortage,
    Refusal,
    Removal,
    RequestRefusal,
    Rule,
    SelectorRefusal,
    Stuck,
    TaintRefusal,
    UnusablePool,
)
from plimsoll.allocator.request_matching import Order, Plan
from plimsoll.allocator.search.usage import NOTHING, Pick, Tally
from plimsoll.api.identity import DeviceId, claim_name
from plimsoll.api.quantity import Quantity


def diagnose(
    order: Order,
    devices: NodeDevices,
    usage: Usage,
    tally: Tally,
    deepest: tuple[int, int, tuple[Pick, ...]],
) -> Refusal:
    """Why the order cannot be served; the tally is a fresh one, `deepest` is how far the search came."""
    reader = _Reader(order, devices, usage, tally)
    alone = [[reader.read(plan) for plan in step.plans] for step in order.steps]
    together = all(any(request.served for request in requests) for requests in alone)
    stuck = _find_sticking_point(order, devices, tally, reader, deepest) if together else None
    return Refusal(
        devices.node.metadata.name,
        requests=tuple(request for requests in alone for request in requests),
        together=together,
        groups=tuple(_find_group_shortages(order, devices, tally.tables)),
        stuck=stuck,
        pools=tuple(
            UnusablePool(pool.id, pool.standing.value, pool.reason)
            for pool in devices.pools
            if pool.standing is not Standing.COMPLETE
        ),
    )


def _find_sticking_point(
    order: Order,
    devices: NodeDevices,
    tally: Tally,
    reader: _Reader,
    deepest: tuple[int, int, tuple[Pick, ...]],
) -> Stuck | None:
    """The request that cannot be served once the earlier ones have their devices."""
    position, alternative, picks = deepest
    failed: Plan | None = None
    if picks:
        for plan, device in picks:
            tally.take(plan, device)
        failed = order.steps[position].plans[alternative]
    else:
        # The bounds told before the search took anything: give everybody the first that fits.
        for step in order.steps:
            failed = None if any(reader.serve(plan) for plan in step.plans) else step.plans[0]
            if failed is not None:
                break
    if failed is None:
        return None
    held = tuple(
        (claim_name(order.claims[plan.claim]), plan.name, devices.entries[device].id)
        for plan, device in tally.picks
    )
    return Stuck(held, reader.read(failed))


def _find_group_shortages(
    order: Order, devices: NodeDevices, tables: Sequence[AttributeTable]
) -> Iterator[GroupShortage]:
    """Constraints over several requests that too few devices can satisfy, whichever are chosen."""
    for number, constraint in enumerate(order.constraints):
        plans = [
            step.plans[0] for step in order.steps if not step.optional and number in step.plans[0].constraints
        ]
        union = 0
        for plan in plans:
            union |= plan.candidates
        table, wanted = tables[number], sum(plan.count for plan in plans)
        if len(plans) < 2 or table.opaque & union:
            continue
        if constraint.distinct:
            had = sum(1 for having in table.by_bit if having & union)
        elif union & devices.shareable or any(plan.admin for plan in plans):
            continue  # one device may serve several requests
        else:
            had = max(((having & union).bit_count() for having in table.by_bit), default=0)
        if had < wanted:
            claim = claim_name(order.claims[constraint.claim])
            names = tuple(plan.name for plan in plans)
            yield GroupShortage(claim, constraint.attribute, constraint.distinct, names, wanted, had)


class _Reader:
    """Asks every rule about every device, in the state that the tally is in."""

    def __init__(self, order: Order, devices: NodeDevices, usage: Usage, tally: Tally) -> None:
        self._order = order
        self._devices = devices
        self._usage = usage
        self._tally = tally
        self._counters = {
            pool.first + index: name
            for pool in devices.counter_pools
            for index, name in enumerate(pool.names)
        }

    def read(self, plan: Plan) -> RequestRefusal:
        """What is left for a plan, and what each rule took away."""
        found: dict[Rule, list[tuple[tuple[int, ...], int, Detail]]] = {}
        left = 0
        for number in range(len(self._devices.entries)):
            reason = self._reason(plan, number)
            if reason is None:
                left |= 1 << number
            else:
                rule, distance, detail = reason
                found.setdefault(rule, []).append((distance, number, detail))
        removals = []
        for rule in Rule:
            if rule in found:
                _, number, detail = min(found[rule], key=lambda entry: entry[:2])
                removals.append(Removal(rule, len(found[rule]), self._devices.entries[number].id, detail))
        largest = self._largest_group(plan, left)
        short = largest is not None and largest < plan.count <= left.bit_count()
        return RequestRefusal(
            claim=claim_name(self._order.claims[plan.claim]),
            request=plan.name,
            wanted=plan.count,
            takes_all=plan.all,
            devices=len(self._devices.entries),
            removals=tuple(removals),
            left=left.bit_count(),
            largest_group=largest,
            conflict=self._pair(plan, left) if short else None,
        )

    def serve(self, plan: Plan) -> bool:
        """Give a plan the first devices that fit; whether they suffice."""
        missing = max(plan.count, 1)
        for number in range(len(self._devices.entries)):
            if missing and self._reason(plan, number) is None and self._tally.take(plan, number) is not None:
                missing -= 1
        return not missing

    def _reason(self, plan: Plan, number: int) -> tuple[Rule, tuple[int, ...], Detail] | None:
        """The first rule that keeps a device from a plan, how far it is from passing, and the numbers."""
        flag = 1 << number
        entry = self._devices.entries[number]
        if number in plan.failures:
            return Rule.FAILED, (), None
        if not plan.selection.mask & flag:
            return self._unselected(plan, number)
        if plan.consumptions:
            shortage = self._capacity(plan, number)
            if shortage is not None:
                distance = shortage.wanted.nano - shortage.had.nano
                return Rule.CAPACITY, (int(shortage.rule == UNDEFINED), distance), shortage
        if not plan.admin and self._usage.taken & flag:
            return Rule.TAKEN, (), None
        if self._tally.in_use(plan) & flag:
            return Rule.PICKED, (), None
        if plan.tainted & flag:
            taint = untolerated(entry.device.taints, plan.tolerations)
            assert taint is not None
            return Rule.TAINT, (), TaintRefusal(taint)
        if self._tally.needs_counters(number) or (self._usage.blocked & flag):
            short = self._counter(number)
            if short is not None:
                return Rule.COUNTER, (short.wanted - short.had,), short
        for constraint in plan.constraints:
            if not self._tally.agreeing(constraint) & flag:
                return Rule.CONSTRAINT, (), self._conflict(constraint, number)
        lack = self._budget(plan, number)
        if lack is not None:
            return Rule.BUDGET, (lack.wanted - lack.had,), lack
        return None

    def _unselected(self, plan: Plan, number: int) -> tuple[Rule, tuple[int, ...], Detail]:
        flag = 1 << number
        entry = self._devices.entries[number]
        if entry.device.binding_conditions and not self._devices.features.binding_conditions:
            return Rule.BINDING, (), None
        of_class = len(plan.device_class.spec.selectors)
        for index, survivors in enumerate(plan.selection.survivors):
            if not survivors & flag:
                # A device that passed more selectors came closer.
                if index < of_class:
                    selector = plan.device_class.spec.selectors[index]
                    text = selector.cel.expression if selector.cel else ""
                    return Rule.CLASS_SELECTOR, (-index,), SelectorRefusal(index, text)
                index -= of_class
                return Rule.REQUEST_SELECTOR, (-index,), SelectorRefusal(index, plan.expressions[index])
        return Rule.NODE, (), None

    def _capacity(self, plan: Plan, number: int) -> CapacityShortage | None:
        entry = self._devices.entries[number]
        wanted = plan.consumptions[entry.capacity]
        if isinstance(wanted, CapacityRefusal):
            return CapacityShortage(wanted.rule, wanted.name, wanted.wanted, wanted.had)
        assert isinstance(wanted, Consumption)
        share = self._tally.shares.get(number, ())
        taken = share[1:] or (0,) * len(wanted.nano)
        worst: CapacityShortage | None = None
        for (name, amount), free, mine in zip(
            wanted.amounts.items(), self._usage.free(number), taken, strict=True
        ):
            if amount.nano > free - mine:
                had = Quantity(free - mine, value_of(entry.device.capacity[name]).format, None)
                if worst is None or amount.nano - had.nano > worst.wanted.nano - worst.had.nano:
                    worst = CapacityShortage(SHORT, name, amount, had)
        return worst

    def _counter(self, number: int) -> CounterShortage | None:
        """The counter that lacks most for a device; one that is overdrawn by others counts, too."""
        entry = self._devices.entries[number]
        wanted = dict(entry.draw)
        worst: CounterShortage | None = None
        for pool in self._devices.counter_pools:
            if pool.pool != entry.id.pool_id:
                continue
            for counter in range(pool.first, pool.first + len(pool.names)):
                had = self._usage.available[counter] - self._tally.drawn[counter]
                amount = wanted.get(counter, 0)
                if amount > had and (worst is None or amount - had > worst.wanted - worst.had):
                    worst = CounterShortage(*self._counters[counter], amount, had)
        if worst is None and self._usage.blocked >> number & 1:
            return CounterShortage("", "", 0, 0)  # the gate for counters is off
        return worst

    def _conflict(self, constraint: int, number: int) -> ConstraintConflict:
        asked = self._order.constraints[constraint]
        table = self._tally.tables[constraint]
        mine = table.sets[number]
        if mine is None:
            return ConstraintConflict(asked.attribute, asked.distinct, (), None)
        for plan, other in self._tally.picks:
            theirs = table.sets[other]
            if constraint not in plan.constraints or theirs is None:
                continue
            if bool(mine & theirs) == asked.distinct:
                id = self._devices.entries[other].id
                mine_text, other_text = _texts(table, mine), _texts(table, theirs)
                return ConstraintConflict(asked.attribute, asked.distinct, mine_text, id, other_text)
        return ConstraintConflict(asked.attribute, asked.distinct, _texts(table, mine), None)

    def _pair(self, plan: Plan, left: int) -> tuple[DeviceId, ConstraintConflict] | None:
        """Two of the devices left that a constraint does not let in together."""
        numbers = bits_of(left)
        for constraint in plan.constraints:
            asked, table = self._order.constraints[constraint], self._tally.tables[constraint]
            for one, two in itertools.combinations(numbers, 2):
                mine, theirs = table.sets[two] or 0, table.sets[one] or 0
                if bool(mine & theirs) == asked.distinct:
                    other = self._devices.entries[one].id
                    texts = _texts(table, mine), _texts(table, theirs)
                    conflict = ConstraintConflict(asked.attribute, asked.distinct, texts[0], other, texts[1])
                    return self._devices.entries[two].id, conflict
        return None

    def _budget(self, plan: Plan, number: int) -> BudgetShortage | None:
        purse = self._tally.purse
        if purse is None:
            return None
        for (line, resource), charge, had in zip(
            purse.bounds, purse.charges(plan, number), purse.left, strict=True
        ):
            if charge and charge > had:
                return BudgetShortage(line, resource, charge, had)
        return None

    def _largest_group(self, plan: Plan, left: int) -> int | None:
        """Of the devices left, how many at most satisfy the constraints of the plan together."""
        largest: int | None = None
        for constraint in plan.constraints:
            table, state = self._tally.tables[constraint], self._tally.constraints[constraint]
            if self._order.constraints[constraint].distinct:
                count = sum(1 for having in table.by_bit if having & left)
            else:
                count = max(((having & left).bit_count() for having in table.by_bit), default=0)
            if state == NOTHING and table.opaque & left:
                count = max(count, 1)
            largest = count if largest is None else min(largest, count)
        return largest


def _texts(table: AttributeTable, bits: int) -> tuple[str, ...]:
    return tuple(
        str(value).lower() if kind == "bool" else str(value)
        for bit, (kind, value) in enumerate(table.values)
        if bits >> bit & 1
    )
