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
from plimsoll.ledger.pools import ClaimPool
from plimsoll.ledger.units import to_unit


@dataclass(frozen=True, slots=True)
class ConsumerShare:
    """One consumer's part in what is charged for a claim: what it says the whole is, and what it draws."""

    whole: Quantity
    drawn: Quantity


@dataclass(frozen=True, slots=True)
class ClaimLevelCharge:
    """An amount of one resource charged for a claim as a whole, while it has consumers.

    All consumers name the same whole, because an allocation does not change; should they differ, the greatest
    counts, whoever came first.
    """

    policy: str
    parts: Mapping[str, ConsumerShare]
    devices: tuple[DeviceId, ...] = ()

    @property
    def pool(self) -> ClaimPool:
        return ClaimPool(
            max(part.whole for part in self.parts.values()),
            sum((part.drawn for part in self.parts.values()), ZERO),
        )

    def units(self, resource: str) -> int:
        return to_unit(resource, max(part.whole for part in self.parts.values()))


@dataclass(frozen=True, slots=True)
class ClaimState:
    """A claim in use on a node: its consumers, and what is charged for it as a whole."""

    namespace: str
    name: str
    uid: str = ""
    consumers: frozenset[str] = frozenset()  #: UIDs of pods
    claim_level_charges: Mapping[str, ClaimLevelCharge] = field(default_factory=dict)

    @property
    def allocated(self) -> dict[str, Quantity]:
        """What the claim has of each resource it is charged for as a whole."""
        return {name: with_share.pool.allocated for name, with_share in self.claim_level_charges.items()}

    @property
    def consumed(self) -> dict[str, Quantity]:
        """What its consumers draw from that."""
        return {name: with_share.pool.consumed for name, with_share in self.claim_level_charges.items()}

    def with_consumer(self, pod: str) -> ClaimState:
        return ClaimState(
            self.namespace, self.name, self.uid, self.consumers | {pod}, self.claim_level_charges
        )

    def without_consumer(self, pod: str) -> ClaimState:
        return replace(self, consumers=self.consumers - {pod})

    def with_share(self, resource: str, pod: str, part: ConsumerShare, blank: ClaimLevelCharge) -> ClaimState:
        """The state with a pod's part in a holding; `blank` says what a new holding is like."""
        before = self.claim_level_charges.get(resource, blank)
        after = replace(before, parts={**before.parts, pod: part})
        return replace(self, claim_level_charges={**self.claim_level_charges, resource: after})

    def without_share(self, resource: str, pod: str) -> ClaimState:
        """The state without a pod's part in a holding; the last part takes the holding along."""
        before = self.claim_level_charges[resource]
        parts = {uid: part for uid, part in before.parts.items() if uid != pod}
        others = {
            name: with_share for name, with_share in self.claim_level_charges.items() if name != resource
        }
        if parts:
            others[resource] = replace(before, parts=parts)
        return replace(self, claim_level_charges=others)
