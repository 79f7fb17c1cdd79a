"""Ledger of one node with everything it takes to charge pods."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import PlacementCheck, check_placement
from plimsoll.ledger.profile import AccountingProfile
from tests.build import claim, node


class LedgerFixture:
    """The ledger of one node with 16 CPUs and 64Gi, and the slices, claims and classes it charges by."""

    def __init__(
        self,
        *slices: ResourceSlice,
        claims: Sequence[ResourceClaim] = (),
        classes: Sequence[DeviceClass] = (),
        profile: AccountingProfile | None = None,
        gates: Gates | None = None,
        **allocatable: str,
    ) -> None:
        self.profile = profile or AccountingProfile.default()
        self.node = node(extended={"cpu": "16", "memory": "64Gi", **allocatable})
        self.ledger = NodeLedger(self.node, gates, self.profile)
        self.claims = {found.metadata.name: found for found in claims}
        index = DeviceIndex(slices, self.profile)
        self.charge_context = ChargeContext(
            index, self.node, {c.metadata.name: c for c in classes}, self.profile
        )

    def check_placement(self, pod: Pod, *new: str) -> PlacementCheck:
        """Check a pod; the claims named are allocated in the same cycle."""
        allocations = {}
        claims = dict(self.claims)
        for name in new:
            found = claims[name]
            assert found.status.allocation is not None
            allocations[name] = found.status.allocation
            claims[name] = claim(name, uid=found.metadata.uid, namespace=found.metadata.namespace)
        return check_placement(self.ledger, pod, claims, allocations, self.charge_context)

    def place(self, pod: Pod) -> tuple[ChargedClaim, ...]:
        """Check that a pod fits and add it."""
        judged = self.check_placement(pod)
        assert judged.verdict.fits, judged.verdict
        self.ledger.assume(pod, judged.charged_claims or ())
        self.ledger.add(pod, judged.charged_claims or ())
        return judged.charged_claims or ()

    @property
    def cpu(self) -> int:
        """Return the CPU requested of the node, in millicores."""
        return self.ledger.requested.get("cpu", 0)

    def cost(self, pod: Pod) -> int:
        """Return the CPU that a pod adds to the node's requests, in millicores."""
        before = self.cpu
        self.place(pod)
        after = self.cpu
        self.ledger.remove(pod)
        assert self.cpu == before
        return after - before
