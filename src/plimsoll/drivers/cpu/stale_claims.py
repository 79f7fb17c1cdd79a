"""Claims that nobody will ever release: they are gone from the cluster, and no container uses them.

A node that lost its memory, or another driver that released a claim meanwhile, leaves holdings behind that
outlive every restart, because they are on record. Owns when such a holding may be given up: only after it was
seen unused and unclaimed at every look for a while. Pure but for the calls it is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from plimsoll.drivers.cpu.settings import DRIVER_NAME
from plimsoll.drivers.cpu.state.holdings import Holding
from plimsoll.protocols.dra import ClaimRef

#: How long a claim must be gone and unused before its CPUs are given back.
PATIENCE_SECONDS = 300.0


@dataclass(slots=True)
class StaleClaims:
    """Which holdings are stale, from look to look."""

    patience: float = PATIENCE_SECONDS
    _since: dict[str, float] = field(default_factory=dict)

    @property
    def suspects(self) -> Mapping[str, float]:
        """Claims that seem to be gone, and since when."""
        return dict(self._since)

    async def look(
        self,
        holdings: Iterable[Holding],
        used: Collection[str],
        is_allocated: Callable[[ClaimRef], Awaitable[bool]],
        now: float,
    ) -> list[ClaimRef]:
        """The claims to give up now. `used` are claims that containers use, by UID.

        A claim whose name is not known cannot be asked after, and stays.
        """
        gone = [
            holding.ref
            for holding in holdings
            if holding.ref.name and holding.ref.uid not in used and not await is_allocated(holding.ref)
        ]
        self._since = {ref.uid: self._since.get(ref.uid, now) for ref in gone}
        return [ref for ref in gone if now - self._since[ref.uid] >= self.patience]


def holds_devices(claim: Mapping[str, object], uid: str) -> bool:
    """Whether a claim, as the API shows it, is the one with this UID and has devices of this driver."""
    node: object = claim.get("metadata")
    if not isinstance(node, Mapping) or node.get("uid") != uid:
        return False
    node = claim
    for key in ("status", "allocation", "devices", "results"):
        node = node.get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, list):
        return False
    return any(isinstance(result, Mapping) and result.get("driver") == DRIVER_NAME for result in node)
