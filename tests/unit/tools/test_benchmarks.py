"""`plimsoll bench`: real measurements, and the naive filter agrees with the vectorized one."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from plimsoll.errors import InputError
from plimsoll.scheduler.cycle import run_filters
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.benchmarks import (
    NAIVE,
    SCENARIOS,
    BenchmarkCluster,
    BenchmarkReport,
    measure,
    pass_naively,
)
from plimsoll.tools.colors import PLAIN
from tests.outputs import check_output


def ticking() -> float:
    """Return a clock that advances by one second per call."""
    return float(next(_TICKS))


_TICKS = count()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_naive_filter_agrees_with_the_vectorized_one(scenario: str) -> None:
    cluster = BenchmarkCluster(scenario, 5)
    for number in range(22):
        pod = cluster.new_pod(f"p{number}")
        task = cluster.task(pod)
        candidates = run_filters(task, cluster.snapshot, cluster.settings, lambda: "x")
        assert not isinstance(candidates, NodeReason)
        candidates.filter_devices()
        assert (
            pass_naively(task, cluster.snapshot, cluster.settings)
            == np.flatnonzero(candidates.feasible).tolist()
        )
        cluster.schedule(pod)


def test_the_report() -> None:
    results = tuple(measure(scenario, 10, 20, ticking) for scenario in SCENARIOS)
    for result in results:
        assert (result.pods, result.mean, result.p50, result.p99, result.naive) == (20, 1e6, 1e6, 1e6, 1e6)
        assert (result.rate, result.ratio) == (1, 1.0)
    report = BenchmarkReport(results)
    check_output("bench/bench.txt", "\n".join(report.lines(PLAIN)) + "\n")
    assert report.as_json()[0] == {
        "scenario": "requests",
        "nodes": 10,
        "pods": 20,
        "podsPerSecond": 1,
        "meanMicroseconds": 1_000_000,
        "p50Microseconds": 1_000_000,
        "p99Microseconds": 1_000_000,
        "naivePassMicroseconds": 1_000_000,
        "naivePassRatio": 1.0,
    }


def test_invalid_arguments() -> None:
    with pytest.raises(InputError, match="100 pods do not fit on 4 nodes; the maximum is 7"):
        measure("requests", 4, 100)
    with pytest.raises(InputError, match="unknown scenario x; valid values: requests"):
        measure("x", 4, 1)
    assert NAIVE > 0
