"""Retry-After grows while many requests are rejected, and shrinks afterwards."""

from __future__ import annotations

from plimsoll.apiserver.flowcontrol.retry_after import RetryAfter


def test_a_single_rejection_asks_for_one_second() -> None:
    assert RetryAfter().note_rejection(1000.5) == 1


def test_it_doubles_at_most_once_in_its_own_time_up_to_32_seconds() -> None:
    retry, seen = RetryAfter(), []
    for second in range(100):
        for _ in range(200):
            seconds = retry.note_rejection(second + 0.5)
        seen.append(seconds)
    assert seen[:5] == [1, 2, 2, 4, 4]
    assert seen[-1] == 32
    assert sorted(seen) == seen


def test_it_shrinks_when_few_are_rejected() -> None:
    retry = RetryAfter()
    for second in range(10):
        for _ in range(100):
            retry.note_rejection(float(second))
    before = retry.seconds
    assert before > 1
    seen = [retry.note_rejection(1000.0 + 40 * step) for step in range(before + 2)]
    assert seen[0] == before - 1
    assert seen[-1] == 1
