"""State of the claims in use on a node.

Tracks the pods that use a claim and its claim-level charges. A pool is charged when its first consumer is
added and released with the last one; in between only the draws change (docs/spec/accounting.md, "Accounting
policies"). States are immutable, so copies of a ledger can share them. KEP-5517, "Inter-Pod Sharing" and "Pod
Consuming from a Shared CPU Pool".
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.pools import ClaimPool
from plimsoll.ledger.units import to_unit


class ConsumerShare(Struct, frozen=True):
    """One consumer's share in a claim-level charge: the claim's total as it recorded it, and its draw."""

    total: Quantity
    drawn: Quantity


class ClaimLevelCharge(Struct, frozen=True):
    """Amount of one resource charged for a claim, independent of its number of consumers.

    All consumers record the same total, because an allocation is immutable; if they differ, the maximum
    counts.
    """

    policy: str
    parts: Mapping[str, ConsumerShare]
    devices: tuple[DeviceId, ...] = ()

    @property
    def pool(self) -> ClaimPool:
        return ClaimPool(
            max(part.total for part in self.parts.values()),
            sum((part.drawn for part in self.parts.values()), ZERO),
        )

    def units(self, resource: str) -> int:
        return to_unit(resource, max(part.total for part in self.parts.values()))


class ClaimState(Struct, frozen=True):
    """A claim in use on a node: its consumers and claim-level charges."""

    namespace: str
    name: str
    uid: str = ""
    consumers: frozenset[str] = frozenset()  #: UIDs of pods
    claim_level_charges: Mapping[str, ClaimLevelCharge] = field(default_factory=dict)

    @property
    def allocated(self) -> dict[str, Quantity]:
        """Total of each resource charged at claim level."""
        return {name: charge.pool.allocated for name, charge in self.claim_level_charges.items()}

    @property
    def consumed(self) -> dict[str, Quantity]:
        """Amounts drawn by the consumers."""
        return {name: charge.pool.consumed for name, charge in self.claim_level_charges.items()}

    def with_consumer(self, pod: str) -> ClaimState:
        return replace(self, consumers=self.consumers | {pod})

    def without_consumer(self, pod: str) -> ClaimState:
        return replace(self, consumers=self.consumers - {pod})

    def with_share(self, resource: str, pod: str, part: ConsumerShare, blank: ClaimLevelCharge) -> ClaimState:
        """Return the state with a pod's share; `blank` is the charge without shares."""
        before = self.claim_level_charges.get(resource, blank)
        after = replace(before, parts={**before.parts, pod: part})
        return replace(self, claim_level_charges={**self.claim_level_charges, resource: after})

    def without_share(self, resource: str, pod: str) -> ClaimState:
        """Return the state without a pod's share; the last share removes the charge."""
        before = self.claim_level_charges[resource]
        parts = {uid: part for uid, part in before.parts.items() if uid != pod}
        charges = {name: charge for name, charge in self.claim_level_charges.items() if name != resource}
        if parts:
            charges[resource] = replace(before, parts=parts)
        return replace(self, claim_level_charges=charges)
