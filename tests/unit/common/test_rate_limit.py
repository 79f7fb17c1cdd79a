"""Token buckets: no period has more calls than the limit allows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common.rate_limit import TokenBucket


@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
)
def test_no_period_has_more_calls_than_the_limit(rate: int, burst: int, steps: list[int]) -> None:
    """In 64ths of a second, which floats hold exactly."""
    now, served = 0, []
    bucket = TokenBucket(float(rate), burst, clock=lambda: now / 64)
    left = burst * 64  # in 64ths of a token
    for step in steps:
        now += step
        left = min(burst * 64, left + step * rate)
        expected = left >= 64
        left -= 64 if expected else 0
        assert bucket.try_take() is expected
        if expected:
            served.append(now)
    for i, start in enumerate(served):
        for j in range(i, len(served)):
            assert (j - i + 1) * 64 <= burst * 64 + (served[j] - start) * rate


def test_a_clock_stepping_back_grants_no_tokens() -> None:
    times = iter([10.0, 10.0, 5.0, 10.5, 4.0, 11.0])
    bucket = TokenBucket(1.0, 1, clock=lambda: next(times))
    assert [bucket.try_take() for _ in range(5)] == [True, False, False, False, True]
