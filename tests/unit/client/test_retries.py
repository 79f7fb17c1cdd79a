"""Retries of calls and their backoff."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.retries import Backoff, is_harmless, may_repeat, retry_after
from plimsoll.errors import ApiError, UnreachableError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = {"retry-after": "3"}


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (UnreachableError("refused", sent=False), True, True),
        (UnreachableError("broke", sent=True), True, False),
        (ApiError(429, "TooManyRequests", ""), True, True),
        (ApiError(429, "TooManyRequests", "", headers=LATER), True, True),
        (
            ApiError(429, "TooManyRequests", "", {"causes": [{"reason": "DisruptionBudget"}]}),
            False,
            False,
        ),
        (ApiError(503, "ServiceUnavailable", ""), True, False),
        (ApiError(503, "ServiceUnavailable", "", headers=LATER), True, True),
        (ApiError(500, "InternalError", ""), True, False),
        (ApiError(502, "BadGateway", ""), True, False),
        (ApiError(504, "Timeout", "", headers=LATER), True, False),
        (ApiError(501, "NotImplemented", ""), False, False),
        (ApiError(400, "BadRequest", ""), False, False),
        (ApiError(401, "Unauthorized", ""), False, False),
        (ApiError(404, "NotFound", ""), False, False),
        (ApiError(409, "Conflict", ""), False, False),
        (ApiError(410, "Expired", ""), False, False),
    ],
    ids=repr,
)
def test_retriable_errors(error: ApiError, read: bool, write: bool) -> None:
    assert may_repeat(error, harmless=True) == read
    assert may_repeat(error, harmless=False) == write


@pytest.mark.parametrize(
    ("method", "tree", "query", "content_type", "harmless"),
    [
        ("GET", None, {}, "", True),
        ("POST", {"metadata": {"name": "a"}}, {}, "", False),
        ("POST", {"metadata": {"name": "a"}}, {"dryRun": "All"}, "", True),
        ("PUT", {"metadata": {"name": "a"}}, {}, "", False),
        ("PUT", {"metadata": {"name": "a", "resourceVersion": "1"}}, {}, "", True),
        ("PATCH", {"metadata": {"resourceVersion": "1"}}, {}, "application/merge-patch+json", True),
        ("PATCH", {"data": {}}, {}, "application/merge-patch+json", False),
        ("PATCH", [{"op": "add"}], {}, "application/json-patch+json", False),
        ("PATCH", {"data": {}}, {}, "application/apply-patch+yaml", True),
        ("DELETE", {}, {}, "", False),
        ("DELETE", {"preconditions": {"uid": "u"}}, {}, "", True),
        ("DELETE", {"preconditions": {"resourceVersion": "1"}}, {}, "", False),
        ("DELETE", {"dryRun": ["All"]}, {}, "", True),
        ("DELETE", None, {}, "", False),
    ],
)
def test_idempotent_requests(
    method: str, tree: Any, query: dict[str, str], content_type: str, harmless: bool
) -> None:
    assert is_harmless(method, tree, query, content_type) == harmless


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 00:00:30", 30.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("99999999999999999999", 999999999.0),
    ],
)
def test_retry_after_delays(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}, NOW) == seconds


@given(st.integers(1, 2000), st.integers())
def test_backoff_doubles_up_to_its_limit(attempt: int, seed: int) -> None:
    backoff = Backoff(first=0.5, most=30.0)
    wait = backoff.delay(attempt, Random(seed))
    full = 0.5
    for _ in range(min(attempt - 1, 100)):
        full = min(30.0, full * 2)
    assert full / 2 <= wait <= full


@given(st.text(max_size=40))
def test_any_retry_after_text_is_accepted(text: str) -> None:
    found = retry_after({"retry-after": text}, NOW)
    assert found is None or found >= 0
