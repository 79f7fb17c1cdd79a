"""Checkpoint of the allocations, which survives restarts of the driver.

Defines and validates the content; `RecordFile` writes it atomically with a checksum and quarantines damaged
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import RecordFile
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.cdi import read_cpus, validate_uid
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation, CpuAssignment
from plimsoll.protocols.dra import ClaimRef

KIND = "CpuHoldings"
VERSION = 1


def open_checkpoint(settings: CpuSettings) -> RecordFile:
    return RecordFile(
        settings.checkpoint_path,
        KIND,
        settings.plugin_dir / "quarantine",
        VERSION,
        check=lambda body: decode_allocations(body),
    )


def decode_allocations(body: Any) -> dict[str, ClaimAllocation]:
    """Decode allocations by UID; raises ValueError if malformed."""
    claims = _list(_dict(body, "body"), "claims")
    allocations: dict[str, ClaimAllocation] = {}
    for tree in claims:
        allocation = _decode_allocation(_dict(tree, "a claim"))
        if allocation.ref.uid in allocations:
            raise ValueError(f"duplicate claim {allocation.ref.uid}")
        allocations[allocation.ref.uid] = allocation
    return allocations


class AllocationEncoder:
    """Encoder that keeps the encoded form of claims: every save has all claims, of which one has changed."""

    def __init__(self) -> None:
        self._encoded: dict[str, tuple[ClaimAllocation, msgspec.Raw]] = {}

    def encode(self, allocations: Mapping[str, ClaimAllocation]) -> dict[str, Any]:
        """Encode allocations in order of their UIDs; default values are omitted."""
        known, self._encoded = self._encoded, {}
        for uid in sorted(allocations):
            allocation, entry = allocations[uid], known.get(uid)
            if entry is None or entry[0] is not allocation:
                raw = msgspec.json.encode(_encode_allocation(allocation), order="deterministic")
                entry = allocation, msgspec.Raw(raw)
            self._encoded[uid] = entry
        return {"claims": [raw for _, raw in self._encoded.values()]}


def _encode_allocation(allocation: ClaimAllocation) -> dict[str, Any]:
    ref = allocation.ref
    tree: dict[str, Any] = {"uid": ref.uid, "namespace": ref.namespace, "name": ref.name}
    tree["grants"] = [_encode_assignment(assignment) for assignment in allocation.assignments]
    if allocation.adopted:
        tree["adopted"] = True
    if allocation.disputed:
        tree["disputed"] = allocation.disputed
    if allocation.contested:
        tree["contested"] = str(allocation.contested)
    if allocation.include_shared is not None:
        tree["mix"] = allocation.include_shared
    if allocation.per_request:
        tree["apart"] = True
    return tree


def _encode_assignment(assignment: CpuAssignment) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "request": assignment.request,
        "pool": assignment.pool,
        "device": assignment.device,
    }
    tree |= {"cpus": str(assignment.cpus), "how": assignment.source.value}
    if assignment.share_id is not None:
        tree["shareID"] = assignment.share_id
    if assignment.options is not None:
        chosen = assignment.options
        tree["options"] = {
            "algorithm": chosen.algorithm.value,
            "sorting": chosen.sorting.value,
            "groupSize": chosen.group_size,
            "alignL3": chosen.align_l3,
            "fullCores": chosen.full_cores,
            "quirks": chosen.quirks,
            **({"alignBySocket": True} if chosen.align_by_socket else {}),
        }
    return tree


def _decode_allocation(tree: dict[str, Any]) -> ClaimAllocation:
    ref = ClaimRef(_text(tree, "namespace"), _text(tree, "name"), _text(tree, "uid"))
    if problem := validate_uid(ref.uid):
        raise ValueError(problem)
    include_shared = tree.get("mix")
    return ClaimAllocation(
        ref,
        tuple(_decode_assignment(_dict(assignment, "a grant")) for assignment in _list(tree, "grants")),
        adopted=_flag(tree, "adopted"),
        disputed=_text(tree, "disputed", ""),
        include_shared=None if include_shared is None else _flag(tree, "mix"),
        contested=_cpus(tree, "contested") if "contested" in tree else EMPTY,
        per_request=_flag(tree, "apart"),
    )


def _decode_assignment(tree: dict[str, Any]) -> CpuAssignment:
    share = tree.get("shareID")
    return CpuAssignment(
        _text(tree, "request"),
        _text(tree, "pool"),
        _text(tree, "device"),
        _cpus(tree, "cpus"),
        share_id=None if share is None else _text(tree, "shareID"),
        source=AssignmentSource(_text(tree, "how")),
        options=_decode_options(_dict(tree["options"], "options")) if "options" in tree else None,
    )


def _decode_options(tree: dict[str, Any]) -> AssignOptions:
    size = tree.get("groupSize")
    if type(size) is not int or size < 1:
        raise ValueError("groupSize is not a number of CPUs")
    return AssignOptions(
        Algorithm(_text(tree, "algorithm")),
        Sorting(_text(tree, "sorting")),
        size,
        _flag(tree, "alignL3"),
        _flag(tree, "fullCores"),
        _flag(tree, "quirks"),
        _flag(tree, "alignBySocket") if "alignBySocket" in tree else False,
    )


def _dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _list(tree: dict[str, Any], key: str) -> list[Any]:
    value = tree.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return value


def _text(tree: dict[str, Any], key: str, default: str | None = None) -> str:
    value = tree.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a string")
    return value


def _flag(tree: dict[str, Any], key: str) -> bool:
    value = tree.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is neither true nor false")
    return value


def _cpus(tree: dict[str, Any], key: str) -> CpuSet:
    cpus = read_cpus(_text(tree, key))
    if isinstance(cpus, str):
        raise ValueError(cpus)
    return cpus
