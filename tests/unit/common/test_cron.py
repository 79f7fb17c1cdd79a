"""Reading of cron schedules."""

from __future__ import annotations

import pytest

from plimsoll.common.cron import CronFields, CronViolation, parse_cron


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/5 1-3,7 * JAN-MAR mon",
        "0 0 1,15 * ?",
        "59 23 31 12 6",
        "1-10/3 * * * *",
        "5/15 * * * *",
        "@hourly",
        "@every 1h30m",
        "@every 1.5s",
        "  0   0 * * *  ",
        "0, 0 * * *",
        "+5 * * * *",
    ],
)
def test_schedules(text: str) -> None:
    assert isinstance(parse_cron(text), CronFields)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "5-1 * * * *",
        "*/0 * * * *",
        "*/x * * * *",
        "1-2-3 * * * *",
        "1/2/3 * * * *",
        "MON * * * *",
        "-5 * * * *",
        "@never",
        "@every",
        "@every 5",
        "@every x",
        "1" * 5000 + " * * * *",
    ],
)
def test_invalid_schedules(text: str) -> None:
    assert isinstance(parse_cron(text), CronViolation)


def test_values_of_fields() -> None:
    parsed = parse_cron("+5,50/5 */12 1-3 feb,APR-may *")
    assert isinstance(parsed, CronFields)
    assert [sorted(values) for values in parsed.values[:4]] == [[5, 50, 55], [0, 12], [1, 2, 3], [2, 4, 5]]
    assert parsed.any_day


def test_a_step_restricts_the_days() -> None:
    parsed = parse_cron("0 0 */2 * FRI")
    assert isinstance(parsed, CronFields)
    assert not parsed.any_day
