"""Snapshots of objects made by `tests.build`."""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def snapshot_of(
    *objects: Any, gates: Gates | None = None, profile: AccountingProfile | None = None
) -> Snapshot:
    """Return a snapshot of these objects, set in this order."""
    made = Snapshot(gates, profile)
    for each in objects:
        made.set(each)
    return made


def pod_info_of(pod: Pod, snapshot: Snapshot) -> PodInfo:
    """Return the PodInfo of a pod whose claims are in the snapshot."""
    names = dict.fromkeys(resolve_claim_names(pod).values())
    found = (snapshot.claim(pod.metadata.namespace, each) for each in names)
    return PodInfo(pod, tuple(each for each in found if each is not None), snapshot.options)
