"""Retry rules: which calls may be repeated, and after how long.

A read may always be repeated. A write is repeated only if it is idempotent (`harmless`), or if the server
cannot have processed it: it was never sent, or it was rejected with 429, or with 503 and Retry-After.
Retry-After is honored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any

from plimsoll.errors import ApiError, UnreachableError

#: Codes of a gateway or an overloaded server; the same call may succeed soon.
_TRANSIENT = frozenset({500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff from `first` to `most`, each reduced at random by up to half."""

    first: float = 0.1
    most: float = 10.0

    def delay(self, attempt: int, rng: Random) -> float:
        """Return the seconds to wait after this many failures (counted from 1)."""
        doubled = self.most if attempt > 32 else min(self.most, self.first * 2 ** (attempt - 1))
        return doubled * (0.5 + rng.random() / 2)


def may_repeat(error: ApiError, *, harmless: bool) -> bool:
    """Return whether a failed call may be repeated."""
    # DIFF: client-go repeats writes after any 5xx that carries Retry-After, and no read after one that does
    # not. test_retriable_errors
    if isinstance(error, UnreachableError):
        return harmless or not error.sent
    if error.code == 429:
        return not _is_budget(error.details)
    if error.code == 503 and retry_after(error.headers, None) is not None:
        return True
    return harmless and error.code in _TRANSIENT


def is_harmless(method: str, tree: Any, query: Mapping[str, str], content_type: str = "") -> bool:
    """Return whether a call is idempotent: repeating it changes nothing or is rejected."""
    if method in ("GET", "HEAD", "OPTIONS") or query.get("dryRun") == "All":
        return True
    if content_type.startswith("application/apply-patch"):
        return True
    if not isinstance(tree, dict):
        return False
    if method == "DELETE":
        if tree.get("dryRun") == ["All"]:
            return True
        preconditions = tree.get("preconditions")
        return isinstance(preconditions, dict) and bool(preconditions.get("uid"))
    if method in ("PUT", "PATCH"):
        metadata = tree.get("metadata")
        return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))
    return False


def retry_after(headers: Mapping[str, str], now: datetime | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def _is_budget(details: Mapping[str, Any]) -> bool:
    """Return whether a 429 is the rejection of an eviction by a PodDisruptionBudget, which is final."""
    causes = details.get("causes")
    if not isinstance(causes, list):
        return False
    return any(isinstance(cause, dict) and cause.get("reason") == "DisruptionBudget" for cause in causes)
