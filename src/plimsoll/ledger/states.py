"""What a node knows about the claims in use on it.

Owns the state of a claim: which pods use it, and what is charged for it as a whole. A pool is charged when
its first consumer comes and released when the last one goes (points P22 and P23 of the accounting semantics);
between the two only what is drawn changes. States are values: a change makes a new one, so that copies of a
ledger can share them. Document 000, "Inter-Pod Sharing" and "Pod Consuming from a Shared CPU Pool".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.pools import Pool
from plimsoll.ledger.units import unit_of


@dataclass(frozen=True, slots=True)
class Part:
    """One consumer's part in what is charged for a claim: what it says the whole is, and what it draws."""

    whole: Quantity
    drawn: Quantity


@dataclass(frozen=True, slots=True)
class Holding:
    """An amount of one resource charged for a claim as a whole, while it has consumers.

    All consumers name the same whole, because an allocation does not change; should they differ, the greatest
    counts, whoever came first.
    """

    policy: str
    parts: Mapping[str, Part]
    devices: tuple[DeviceId, ...] = ()

    @property
    def pool(self) -> Pool:
        return Pool(
            max(part.whole for part in self.parts.values()),
            sum((part.drawn for part in self.parts.values()), ZERO),
        )

    def units(self, resource: str) -> int:
        return unit_of(resource, max(part.whole for part in self.parts.values()))


@dataclass(frozen=True, slots=True)
class ClaimState:
    """A claim in use on a node: its consumers, and what is charged for it as a whole."""

    namespace: str
    name: str
    uid: str = ""
    consumers: frozenset[str] = frozenset()  #: UIDs of pods
    holdings: Mapping[str, Holding] = field(default_factory=dict)

    @property
    def allocated(self) -> dict[str, Quantity]:
        """What the claim has of each resource it is charged for as a whole."""
        return {name: holding.pool.allocated for name, holding in self.holdings.items()}

    @property
    def consumed(self) -> dict[str, Quantity]:
        """What its consumers draw from that."""
        return {name: holding.pool.consumed for name, holding in self.holdings.items()}

    def joined(self, pod: str) -> ClaimState:
        return ClaimState(self.namespace, self.name, self.uid, self.consumers | {pod}, self.holdings)

    def left(self, pod: str) -> ClaimState:
        return replace(self, consumers=self.consumers - {pod})

    def holding(self, resource: str, pod: str, part: Part, blank: Holding) -> ClaimState:
        """The state with a pod's part in a holding; `blank` says what a new holding is like."""
        before = self.holdings.get(resource, blank)
        after = replace(before, parts={**before.parts, pod: part})
        return replace(self, holdings={**self.holdings, resource: after})

    def released(self, resource: str, pod: str) -> ClaimState:
        """The state without a pod's part in a holding; the last part takes the holding along."""
        before = self.holdings[resource]
        parts = {uid: part for uid, part in before.parts.items() if uid != pod}
        others = {name: holding for name, holding in self.holdings.items() if name != resource}
        if parts:
            others[resource] = replace(before, parts=parts)
        return replace(self, holdings=others)
