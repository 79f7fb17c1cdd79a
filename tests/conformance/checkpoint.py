"""Suite `checkpoint`: the kubelet's checkpoint of prepared claims, written and read.

For claims: the bytes of the file, and that reading them gives the claims again. For odd and damaged files:
whether a kubelet takes them, what it finds, and its words for what is wrong.
"""

from __future__ import annotations

from typing import Any

from plimsoll.node.claims.kubelet_checkpoint import (
    DecodedCheckpoint,
    KubeletClaim,
    KubeletDevice,
    decode,
)
from tests.unit.node.claims.kubelet_files import encode


def check(row: dict[str, Any]) -> str | None:
    raw = row["file"].encode()
    decoded = decode(raw)
    if "checksum" in row:
        mismatch = _differ("file", encode(claims_of(row["claims"])), raw)
        if mismatch:
            return mismatch
    return _compare(decoded, row)


def _compare(decoded: DecodedCheckpoint, row: dict[str, Any]) -> str | None:
    mismatch = _differ("valid", not decoded.error, row["valid"])
    mismatch = mismatch or _differ("error", decoded.error, row.get("error", ""))
    mismatch = mismatch or _differ("claims error", decoded.claims_error, row.get("claimsError", ""))
    return mismatch or _differ("claims", decoded.claims, claims_of(row.get("claims")))


def claims_of(trees: list[dict[str, Any]] | None) -> tuple[KubeletClaim, ...] | None:
    """Read the claims of a row."""
    if trees is None:
        return None
    return tuple(
        KubeletClaim(
            uid=tree["ClaimUID"],
            name=tree["ClaimName"],
            namespace=tree["Namespace"],
            pods=None if tree["PodUIDs"] is None else frozenset(tree["PodUIDs"]),
            drivers=_drivers_of(tree["DriverState"]),
        )
        for tree in trees
    )


def _drivers_of(states: dict[str, Any] | None) -> dict[str, tuple[KubeletDevice, ...] | None] | None:
    if states is None:
        return None
    return {
        driver: None if state["Devices"] is None else tuple(map(_device_of, state["Devices"]))
        for driver, state in states.items()
    }


def _device_of(tree: dict[str, Any]) -> KubeletDevice:
    requests, cdi = tree["RequestNames"], tree["CDIDeviceIDs"]
    return KubeletDevice(
        pool=tree["PoolName"],
        device=tree["DeviceName"],
        share_id=tree["ShareID"],
        requests=None if requests is None else tuple(requests),
        cdi=None if cdi is None else tuple(cdi),
    )


def _differ(what: str, got: object, wanted: object) -> str | None:
    return None if got == wanted else f"{what}: got {got!r}, wanted {wanted!r}"
