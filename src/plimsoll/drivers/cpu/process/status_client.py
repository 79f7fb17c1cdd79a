"""Client of a running CPU driver's pages, for `plimsoll driver cpu status`, `explain` and `gatherinfo`.

The driver serves its debug page to the local machine only.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.common.addresses import read_bind_address
from plimsoll.errors import InputError

_SECONDS = 5.0
_MAX_RESPONSE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class HealthResponse:
    """Health of a driver with the text of its page."""

    well: bool
    text: str


def query_health(address: str) -> HealthResponse:
    """Query `/healthz?verbose`; raises InputError if the driver cannot be reached."""
    status, text = _get(address, "/healthz?verbose")
    return HealthResponse(status == 200, text)


def query_driver(address: str) -> dict[str, Any]:
    """Query the debug page; raises InputError if it is not that of a CPU driver."""
    status, text = _get(address, "/debug/driver")
    try:
        tree = json.loads(text) if status == 200 else None
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        raise InputError(f"{address}: not a CPU driver: {status}: {text.strip()[:200]}")
    return tree


def select_claims(tree: Mapping[str, Any], uid: str = "") -> list[dict[str, Any]]:
    """Return the claims of a driver, or the one with this UID; raises InputError if there is none."""
    claims = tree.get("claims")
    found = claims if isinstance(claims, list) else []
    wanted = [claim for claim in found if isinstance(claim, dict) and uid in ("", claim.get("uid"))]
    if uid and not wanted:
        raise InputError(f"{uid}: no such claim is prepared")
    return wanted


def explain_claims(claims: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Describe why claims have their CPUs, as lines."""
    for claim in claims:
        name = f"{claim.get('namespace', '')}/{claim.get('name', '')}"
        yield f"{name} ({claim.get('uid', '')}): CPUs {claim.get('cpus', '') or 'none'}"
        lines = claim.get("explain")
        yield from (f"  {line}" for line in (lines if isinstance(lines, list) else []))


def show_status(tree: Mapping[str, Any]) -> Iterator[str]:
    """Describe the state of a driver, as lines."""
    for name in ("node", "mode", "groupBy", "runtime", "online", "offline", "reserved", "shared"):
        if tree.get(name):
            yield f"{name:<9} {tree[name]}"
    devices = tree.get("devices")
    for name, device in (devices if isinstance(devices, dict) else {}).items():
        if isinstance(device, dict):
            yield f"device    {name}: CPUs {device.get('cpus')}, allocated {device.get('held') or 'none'}"
    for claim in select_claims(tree):
        disputed = f"; disputed: {claim['disputed']}" if claim.get("disputed") else ""
        name = f"{claim.get('namespace')}/{claim.get('name')}"
        yield f"claim     {name}: CPUs {claim.get('cpus') or 'none'}{disputed}"
    for name in ("faults", "findings"):
        found = tree.get(name)
        for item in found if isinstance(found, list) else []:
            text = f"{item.get('severity')}: {item.get('what')}" if isinstance(item, dict) else str(item)
            yield f"{name:<9} {text}"


def _get(address: str, path: str) -> tuple[int, str]:
    scheme = "https" if address.startswith("https://") else "http"
    host, port = read_bind_address(address.removeprefix("https://"))
    shown = f"[{host}]" if host and ":" in host else host
    url = f"{scheme}://{shown or '127.0.0.1'}:{port}{path}"
    # The driver is on this machine, and its certificate usually self-signed.
    tls = ssl._create_unverified_context() if scheme == "https" else None
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    )
    try:
        with opener.open(url, timeout=_SECONDS) as answer:
            return int(answer.status), answer.read(_MAX_RESPONSE_BYTES).decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_MAX_RESPONSE_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"no driver responds at {url}: {getattr(reason, 'strerror', None) or reason}; "
            "set its address with --address"
        ) from None
