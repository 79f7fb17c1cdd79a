"""The record of holdings: what a driver knows after a restart, whatever happened to containers meanwhile.

Owns the body of the file and what makes one valid. The file as such (replaced as a whole, checksummed, put
aside when damaged) is `RecordFile`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import RecordFile
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.cdi import check_uid, read_cpus
from plimsoll.drivers.cpu.state.holdings import Grant, Holding, How
from plimsoll.protocols.dra import ClaimRef

KIND = "CpuHoldings"
VERSION = 1


def record_file(settings: CpuSettings) -> RecordFile:
    return RecordFile(
        settings.record, KIND, settings.folder / "quarantine", VERSION, check=lambda body: read_body(body)
    )


def make_body(holdings: Mapping[str, Holding]) -> dict[str, Any]:
    """Holdings as the record has them. What says nothing is left out."""
    return {"claims": [_holding_tree(holdings[uid]) for uid in sorted(holdings)]}


def read_body(body: Any) -> dict[str, Holding]:
    """Holdings by UID; ValueError if the body is not one of ours."""
    claims = _list(_dict(body, "body"), "claims")
    holdings: dict[str, Holding] = {}
    for tree in claims:
        holding = _read_holding(_dict(tree, "a claim"))
        if holding.ref.uid in holdings:
            raise ValueError(f"claim {holding.ref.uid} is there twice")
        holdings[holding.ref.uid] = holding
    return holdings


def _holding_tree(holding: Holding) -> dict[str, Any]:
    ref = holding.ref
    tree: dict[str, Any] = {"uid": ref.uid, "namespace": ref.namespace, "name": ref.name}
    tree["grants"] = [_grant_tree(grant) for grant in holding.grants]
    if holding.adopted:
        tree["adopted"] = True
    if holding.disputed:
        tree["disputed"] = holding.disputed
    if holding.contested:
        tree["contested"] = str(holding.contested)
    if holding.mix is not None:
        tree["mix"] = holding.mix
    if holding.apart:
        tree["apart"] = True
    return tree


def _grant_tree(grant: Grant) -> dict[str, Any]:
    tree: dict[str, Any] = {"request": grant.request, "pool": grant.pool, "device": grant.device}
    tree |= {"cpus": str(grant.cpus), "how": grant.how.value}
    if grant.share_id is not None:
        tree["shareID"] = grant.share_id
    if grant.options is not None:
        chosen = grant.options
        tree["options"] = {
            "algorithm": chosen.algorithm.value,
            "sorting": chosen.sorting.value,
            "groupSize": chosen.group_size,
            "alignL3": chosen.align_l3,
            "fullCores": chosen.full_cores,
            "quirks": chosen.quirks,
        }
    return tree


def _read_holding(tree: dict[str, Any]) -> Holding:
    ref = ClaimRef(_text(tree, "namespace"), _text(tree, "name"), _text(tree, "uid"))
    if problem := check_uid(ref.uid):
        raise ValueError(problem)
    mix = tree.get("mix")
    return Holding(
        ref,
        tuple(_read_grant(_dict(grant, "a grant")) for grant in _list(tree, "grants")),
        adopted=_flag(tree, "adopted"),
        disputed=_text(tree, "disputed", ""),
        mix=None if mix is None else _flag(tree, "mix"),
        contested=_cpus(tree, "contested") if "contested" in tree else EMPTY,
        apart=_flag(tree, "apart"),
    )


def _read_grant(tree: dict[str, Any]) -> Grant:
    share = tree.get("shareID")
    return Grant(
        _text(tree, "request"),
        _text(tree, "pool"),
        _text(tree, "device"),
        _cpus(tree, "cpus"),
        share_id=None if share is None else _text(tree, "shareID"),
        how=How(_text(tree, "how")),
        options=_read_options(_dict(tree["options"], "options")) if "options" in tree else None,
    )


def _read_options(tree: dict[str, Any]) -> AssignOptions:
    size = tree.get("groupSize")
    if type(size) is not int or size < 1:
        raise ValueError("groupSize is no number of CPUs")
    return AssignOptions(
        Algorithm(_text(tree, "algorithm")),
        Sorting(_text(tree, "sorting")),
        size,
        _flag(tree, "alignL3"),
        _flag(tree, "fullCores"),
        _flag(tree, "quirks"),
    )


def _dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def _list(tree: dict[str, Any], key: str) -> list[Any]:
    value = tree.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key} is no list")
    return value


def _text(tree: dict[str, Any], key: str, default: str | None = None) -> str:
    value = tree.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text")
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
