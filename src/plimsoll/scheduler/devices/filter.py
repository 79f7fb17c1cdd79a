"""The rule about claims, which asks the exact question as seldom as it can.

Owns `DevicesFilter`: `candidates` is what no memory speaks against, `attempt` asks and remembers. Unlike the
other rules it is asked node by node, best first (`choice`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll.allocator import Fault
from plimsoll.allocator.devices.usage import Usage
from plimsoll.api.core import NodeSelector
from plimsoll.api.node_selection import NAME_FIELD
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.verdict import Reason
from plimsoll.scheduler.devices.charging_nodes import charges_node
from plimsoll.scheduler.devices.exact import BEST, Fit, NewId, is_usable_on, try_place
from plimsoll.scheduler.devices.search_cache import NEVER, Memory, State
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.profile import DeviceOrder, Settings
from plimsoll.scheduler.reasons import NodeReason, Rule, Sentence, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class DevicesFilter(Filter):
    """Claims: devices and what they charge."""

    rule = Rule.DEVICES

    def __init__(
        self, task: Task, snapshot: Snapshot, new_id: NewId = lambda: "", settings: Settings | None = None
    ) -> None:
        super().__init__(task, snapshot)
        self._new_id = new_id
        self._settings = settings or Settings.default()
        # Who searches for longer may find what others gave up.
        key = task.shape + b" %d %s" % (
            self._settings.search_steps,
            self._settings.device_order.value.encode(),
        )
        self._shape = snapshot.index(Memory).shape(key)

    def candidates(self) -> Mask:
        """The places where a search may still succeed."""
        mask = self._shape.refused_at < self.snapshot.freed
        if self._settings.asks_all(len(self.snapshot)):
            return np.ones_like(mask)
        for claim in self.task.claims:
            if claim.status.allocation is not None:
                mask &= self._usable(claim)
        return mask

    def ranks(self) -> Column:
        """The best rank that alternatives can have, place by place."""
        current = self._shape.ranked_at >= self.snapshot.freed
        return np.where(current, self._shape.ranks, BEST)

    def attempt(self, place: int) -> Fit | tuple[NodeReason, ...]:
        """Ask about one place exactly, and remember the answer."""
        found = self.answer(place)
        if isinstance(found, Fit):
            self._shape.ranks[place] = found.rank
            self._shape.ranked_at[place] = self.snapshot.freed[place]
        else:
            stamp = int(self.snapshot.freed[place]) if self._lasts(found) else NEVER
            self._shape.refuse(place, stamp, found)
        return found

    def _lasts(self, reasons: tuple[NodeReason, ...]) -> bool:
        """Whether a refusal holds until something is given back.

        Where devices are chosen before the books are asked, it may be otherwise as soon as a dear device is
        taken: the next one may cost less.
        """
        if self._settings.device_order is DeviceOrder.JOINT:
            return True
        return not any(isinstance(reason.because, Reason) for reason in reasons)

    def answer(self, place: int) -> Fit | tuple[NodeReason, ...]:
        """Ask about one place exactly; only what holds for every node in the same state is remembered."""
        state = self._state(place) if self._shape.states else None
        known = self._shape.states.get(state) if state is not None else None
        found = known or try_place(self.task, place, self.snapshot, self._new_id, self._settings)
        if not isinstance(found, Fit):
            state = state or self._state(place)
            if state is not None:
                self._shape.remember(state, found)
        return found

    def short_of_devices(self) -> Mask:
        """The places that are known to have too few devices, whatever their books say."""
        told = [any(r.sentence is Sentence.CANNOT_ALLOCATE for r in each) for each in self._shape.reasons]
        current = self._shape.refused_at >= self.snapshot.freed
        return current & np.array([*told, False], dtype=np.bool_)[self._shape.kinds]

    def feasible(self) -> Mask:
        mask = self.candidates() & self.snapshot.alive
        for place in np.flatnonzero(mask).tolist():
            mask[place] = isinstance(self.attempt(place), Fit)
        return mask

    def why_not(self, place: int) -> tuple[NodeReason, ...]:
        found = try_place(self.task, place, self.snapshot, self._new_id, self._settings, explain=True)
        return () if isinstance(found, Fit) else found

    def tally(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        self._ask(removed)
        counts = np.bincount(self._shape.kinds[removed], minlength=len(self._shape.reasons)).tolist()
        groups: dict[str, tuple[NodeReason, int]] = {}
        for reasons, count in zip(self._shape.reasons, counts, strict=True):
            for reason in reasons if count else ():
                text = render(reason)
                groups[text] = (reason, groups.get(text, (reason, 0))[1] + count)
        return list(groups.values())

    def resolvable(self, removed: Mask) -> Mask:
        self._ask(removed)
        helps = [all(reason.resolvable for reason in reasons) for reasons in self._shape.reasons]
        return removed & np.array([*helps, False], dtype=np.bool_)[self._shape.kinds]

    def _state(self, place: int) -> State | None:
        """What an answer depends on beside the shape of the pod; None where that is more than can be said.

        Nodes with the same devices, of which the same is taken, and with the same room fail alike.
        """
        if len(self.task.waiting) < len(self.task.claims):
            return None
        devices = self.snapshot.inventory.devices_for(self.snapshot.node(place))
        likeness = None if isinstance(devices, Fault) else devices.likeness
        if likeness is None or isinstance(devices, Fault):
            return None
        room: object = None
        if self.snapshot.options.count_claims and charges_node(self.snapshot, place):
            ledger = self.snapshot.ledger(place)
            room = (tuple(ledger.allocatable.items()), tuple(sorted(ledger.requested.items())))
        return (likeness, Usage(devices, self.snapshot.state).likeness, room)

    def _ask(self, removed: Mask) -> None:
        """See to it that there is an answer for each of these places."""
        unknown = removed & (self._shape.refused_at < self.snapshot.freed)
        for place in np.flatnonzero(unknown).tolist():
            self.attempt(place)

    def _usable(self, claim: ResourceClaim) -> Mask:
        mask = np.zeros(self.snapshot.size, dtype=np.bool_)
        allocation = claim.status.allocation
        name = None if allocation is None else _only_node(allocation.node_selector)
        places = self.snapshot.places() if name is None else [self.snapshot.place_of(name)]
        for place in places:
            if place is not None:
                mask[place] = is_usable_on(claim, self.snapshot.node(place))
        return mask


def _only_node(selector: NodeSelector | None) -> str | None:
    """The name of the only node a selector can match, where that is plain to see."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    for requirement in selector.node_selector_terms[0].match_fields:
        if requirement.key == NAME_FIELD and requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.values[0]
    return None
