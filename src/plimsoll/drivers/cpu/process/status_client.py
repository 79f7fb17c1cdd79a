"""Asking a running CPU driver how it is, and what it knows.

Owns the questions of `plimsoll driver cpu status`, `explain` and `gatherinfo` to the driver's pages; they are
answered on the same machine only.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.drivers.cpu.process.run import read_listen
from plimsoll.errors import InputError

_SECONDS = 5.0
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says, and whether the driver is well."""

    well: bool
    text: str


def ask_health(address: str) -> Answer:
    """`/healthz` with a line for each check; InputError if nobody answers."""
    status, text = _get(address, "/healthz?verbose")
    return Answer(status == 200, text)


def ask_driver(address: str) -> dict[str, Any]:
    """All that a driver says of itself; InputError if it says nothing."""
    status, text = _get(address, "/debug/driver")
    try:
        tree = json.loads(text) if status == 200 else None
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        raise InputError(f"{address}: this is no CPU driver: {status}: {text.strip()[:200]}")
    return tree


def select_claims(tree: Mapping[str, Any], uid: str = "") -> list[dict[str, Any]]:
    """The claims that a driver holds CPUs for, or one of them; InputError if there is none of this UID."""
    claims = tree.get("claims")
    found = claims if isinstance(claims, list) else []
    wanted = [claim for claim in found if isinstance(claim, dict) and uid in ("", claim.get("uid"))]
    if uid and not wanted:
        raise InputError(f"{uid}: the driver has prepared no such claim")
    return wanted


def explain_claims(claims: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Why claims hold the CPUs they hold, in lines."""
    for claim in claims:
        name = f"{claim.get('namespace', '')}/{claim.get('name', '')}"
        yield f"{name} ({claim.get('uid', '')}): CPUs {claim.get('cpus', '') or 'none'}"
        lines = claim.get("explain")
        yield from (f"  {line}" for line in (lines if isinstance(lines, list) else []))


def show_status(tree: Mapping[str, Any]) -> Iterator[str]:
    """How a driver stands, in lines."""
    for name in ("node", "mode", "groupBy", "runtime", "online", "offline", "reserved", "shared"):
        if tree.get(name):
            yield f"{name:<9} {tree[name]}"
    devices = tree.get("devices")
    for name, device in (devices if isinstance(devices, dict) else {}).items():
        if isinstance(device, dict):
            yield f"device    {name}: CPUs {device.get('cpus')}, held {device.get('held') or 'none'}"
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
    host, port = read_listen(address)
    shown = f"[{host}]" if host and ":" in host else host
    url = f"http://{shown or '127.0.0.1'}:{port}{path}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_SECONDS) as answer:
            return int(answer.status), answer.read(_MOST_BYTES).decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"no driver answers at {url}: {getattr(reason, 'strerror', None) or reason}; "
            "say where it does with --address"
        ) from None
