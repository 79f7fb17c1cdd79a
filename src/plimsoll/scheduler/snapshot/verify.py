"""Consistency check of a snapshot.

`verify` recomputes ledgers, columns, allocated devices and assumed volumes and lists differences, which are
bugs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from plimsoll.allocator import AllocationState
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.columns import NodeColumns
from plimsoll.ledger.node_ledger import Discrepancy
from plimsoll.scheduler.snapshot.assumed_volumes import AssumedVolumes
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def verify(snapshot: Snapshot) -> list[Discrepancy]:
    """Return the differences between a snapshot and its objects."""
    found = [*_verify_ledgers(snapshot), *_verify_devices(snapshot), *_verify_volumes(snapshot)]
    fresh = NodeColumns(size=snapshot.size)
    for row in snapshot.rows():
        fresh.refresh(row, snapshot.ledger(row))
    for name in sorted(fresh.names | snapshot.columns.names):
        for what, recorded, computed in (
            ("allocatable", snapshot.columns.allocatable(name), fresh.allocatable(name)),
            ("free", snapshot.columns.free(name), fresh.free(name)),
        ):
            for row in np.flatnonzero(recorded != computed).tolist():
                where = f"{what} {name} at row {row}"
                found.append(Discrepancy(where, int(recorded[row]), int(computed[row])))
    return found


def _verify_ledgers(snapshot: Snapshot) -> Iterator[Discrepancy]:
    seen: set[str] = set()
    for row in snapshot.rows():
        ledger = snapshot.ledger(row)
        for each in ledger.verify():
            yield Discrepancy(f"node {ledger.name}: {each.where}", each.recorded, each.computed)
        for key, entry in ledger.entries.items():
            seen.add(key)
            recorded = snapshot.find_pod(key)
            if recorded is None or recorded[0] != row or recorded[1] is not entry.pod:
                yield Discrepancy(f"pod {key} on node {ledger.name}", recorded, entry.pod.metadata.name)
            assumed = key in snapshot.assumed or key in snapshot.assumed_placeholders
            if entry.assumed != assumed:
                yield Discrepancy(f"pod {key}: assumed", entry.assumed, assumed)
    for key in snapshot.pod_keys() - seen:
        yield Discrepancy(f"pod {key}", snapshot.find_pod(key), None)


def _verify_devices(snapshot: Snapshot) -> Iterator[Discrepancy]:
    fresh = AllocationState(snapshot.features.consumable_capacity)
    known = {claim.metadata.uid for claim in snapshot.all(ResourceClaim)}
    for allocation in snapshot.allocations.without_claims(known).values():
        fresh.hold_all(allocation)
    for claim in snapshot.all(ResourceClaim):
        uid = claim.metadata.uid
        wanted = claim.status.allocation or snapshot.allocations.assumed(uid)
        if snapshot.allocations.of(uid) != wanted:
            yield Discrepancy(f"devices of claim {uid}", snapshot.allocations.of(uid), wanted)
        if wanted is not None:
            fresh.hold_all(wanted)
    if fresh != snapshot.state:
        yield Discrepancy("held devices", dict(snapshot.state), dict(fresh))


def _verify_volumes(snapshot: Snapshot) -> Iterator[Discrepancy]:
    fresh = AssumedVolumes()
    for key, placement in snapshot.unconfirmed.items():
        fresh.assume(key, placement.volumes, placement.node)
    recorded, computed = snapshot.assumed_volumes.entries(), fresh.entries()
    for name in sorted(recorded.keys() | computed.keys()):
        if recorded.get(name) != computed.get(name):
            yield Discrepancy(f"assumed {name}", recorded.get(name), computed.get(name))
