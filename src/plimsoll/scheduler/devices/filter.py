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
from plimsoll.scheduler.devices.exact import MAX_SCORE, NewId, NodeFit, is_usable_on, try_node
from plimsoll.scheduler.devices.search_cache import NEVER, NodeState, SearchCache
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import DeviceOrder, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class DynamicResourcesFilter(Filter):
    """Claims: devices and what they charge."""

    rule = Rule.DEVICES

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        new_id: NewId = lambda: "",
        settings: SchedulerProfile | None = None,
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._new_id = new_id
        self._settings = settings or SchedulerProfile.default()
        # Who searches for longer may find what others gave up.
        key = pod_info.resource_signature + b" %d %s" % (
            self._settings.search_steps,
            self._settings.device_order.value.encode(),
        )
        self._results = snapshot.index(SearchCache).results_for(key)

    def candidates(self) -> Mask:
        """The places where a search may still succeed."""
        mask = self._results.refused_at < self.snapshot.node_generations
        if self._settings.searches_all_nodes(len(self.snapshot)):
            return np.ones_like(mask)
        for claim in self.pod_info.claims:
            if claim.status.allocation is not None:
                mask &= self._usable(claim)
        return mask

    def ranks(self) -> Column:
        """The best rank that alternatives can have, place by place."""
        current = self._results.ranked_at >= self.snapshot.node_generations
        return np.where(current, self._results.ranks, MAX_SCORE)

    def search(self, row: int) -> NodeFit | tuple[NodeReason, ...]:
        """Ask about one place exactly, and remember the answer."""
        found = self.search_uncached(row)
        if isinstance(found, NodeFit):
            self._results.ranks[row] = found.rank
            self._results.ranked_at[row] = self.snapshot.node_generations[row]
        else:
            stamp = int(self.snapshot.node_generations[row]) if self._is_cacheable(found) else NEVER
            self._results.refuse(row, stamp, found)
        return found

    def _is_cacheable(self, reasons: tuple[NodeReason, ...]) -> bool:
        """Whether a refusal holds until something is given back.

        Where devices are chosen before the books are asked, it may be otherwise as soon as a dear device is
        taken: the next one may cost less.
        """
        if self._settings.device_order is DeviceOrder.JOINT:
            return True
        return not any(isinstance(reason.cause, Reason) for reason in reasons)

    def search_uncached(self, row: int) -> NodeFit | tuple[NodeReason, ...]:
        """Ask about one place exactly; only what holds for every node in the same state is remembered."""
        state = self._state(row) if self._results.states else None
        known = self._results.states.get(state) if state is not None else None
        found = known or try_node(self.pod_info, row, self.snapshot, self._new_id, self._settings)
        if not isinstance(found, NodeFit):
            state = state or self._state(row)
            if state is not None:
                self._results.remember(state, found)
        return found

    def short_of_devices(self) -> Mask:
        """The places that are known to have too few devices, whatever their books say."""
        told = [
            any(r.message is ReasonMessage.CANNOT_ALLOCATE for r in each) for each in self._results.reasons
        ]
        current = self._results.refused_at >= self.snapshot.node_generations
        return current & np.array([*told, False], dtype=np.bool_)[self._results.kinds]

    def filter(self) -> Mask:
        mask = self.candidates() & self.snapshot.alive
        for row in np.flatnonzero(mask).tolist():
            mask[row] = isinstance(self.search(row), NodeFit)
        return mask

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        found = try_node(self.pod_info, row, self.snapshot, self._new_id, self._settings, explain=True)
        return () if isinstance(found, NodeFit) else found

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        self._ask(removed)
        counts = np.bincount(self._results.kinds[removed], minlength=len(self._results.reasons)).tolist()
        groups: dict[str, tuple[NodeReason, int]] = {}
        for reasons, count in zip(self._results.reasons, counts, strict=True):
            for reason in reasons if count else ():
                text = render(reason)
                groups[text] = (reason, groups.get(text, (reason, 0))[1] + count)
        return list(groups.values())

    def resolvable_nodes(self, removed: Mask) -> Mask:
        self._ask(removed)
        helps = [all(reason.resolvable for reason in reasons) for reasons in self._results.reasons]
        return removed & np.array([*helps, False], dtype=np.bool_)[self._results.kinds]

    def _state(self, row: int) -> NodeState | None:
        """What an answer depends on beside the shape of the pod; None where that is more than can be said.

        Nodes with the same devices, of which the same is taken, and with the same room fail alike.
        """
        if len(self.pod_info.unallocated_claims) < len(self.pod_info.claims):
            return None
        devices = self.snapshot.inventory.devices_for(self.snapshot.node(row))
        likeness = None if isinstance(devices, Fault) else devices.likeness
        if likeness is None or isinstance(devices, Fault):
            return None
        room: object = None
        if self.snapshot.options.count_claims and charges_node(self.snapshot, row):
            ledger = self.snapshot.ledger(row)
            room = (tuple(ledger.allocatable.items()), tuple(sorted(ledger.requested.items())))
        return (likeness, Usage(devices, self.snapshot.state).likeness, room)

    def _ask(self, removed: Mask) -> None:
        """See to it that there is an answer for each of these places."""
        unknown = removed & (self._results.refused_at < self.snapshot.node_generations)
        for row in np.flatnonzero(unknown).tolist():
            self.search(row)

    def _usable(self, claim: ResourceClaim) -> Mask:
        mask = np.zeros(self.snapshot.size, dtype=np.bool_)
        allocation = claim.status.allocation
        name = None if allocation is None else _only_node(allocation.node_selector)
        rows = self.snapshot.rows() if name is None else [self.snapshot.row_of(name)]
        for row in rows:
            if row is not None:
                mask[row] = is_usable_on(claim, self.snapshot.node(row))
        return mask


def _only_node(selector: NodeSelector | None) -> str | None:
    """The name of the only node a selector can match, where that is plain to see."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    for requirement in selector.node_selector_terms[0].match_fields:
        if requirement.key == NAME_FIELD and requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.values[0]
    return None
