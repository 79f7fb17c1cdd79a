"""DRA metrics of the kubelet: durations of driver operations and calls, and skipped calls.

`dra_operations_duration_seconds` (claims of one pod, all drivers), `dra_grpc_operations_duration_seconds`
(one call), and the calls that were not necessary (`skipNodeOperations`).
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from plimsoll.common.counters import Histogram, MetricCounter
from plimsoll.common.metrics import MetricFamily
from plimsoll.node.claim_info import PREPARE, UNPREPARE

#: 15 exponential buckets from 0.1 to 40 seconds.
BUCKETS = tuple(0.1 * 400 ** (place / 14) for place in range(15))


class DraMetrics:
    """The metrics of one node."""

    def __init__(self) -> None:
        self._operations = Histogram(
            "dra_operations_duration_seconds",
            "Duration of preparing or unpreparing all ResourceClaims of a pod, in seconds.",
            BUCKETS,
            ("operation_name", "is_error"),
        )
        self._calls = Histogram(
            "dra_grpc_operations_duration_seconds",
            "Duration of a call to a DRA driver, in seconds.",
            BUCKETS,
            ("driver_name", "method_name", "grpc_status_code"),
        )
        self._skips = {
            method: MetricCounter(
                f"dra_{name}_skips_total",
                f"Number of {method} calls that were skipped because of skipNodeOperations.",
                ("driver_name",),
            )
            for method, name in ((PREPARE, "node_prepare"), (UNPREPARE, "node_unprepare"))
        }

    def collect(self) -> Iterator[MetricFamily]:
        yield self._operations.family()
        yield self._calls.family()
        for counter in self._skips.values():
            yield counter.family()

    def skip(self, method: str, driver: str) -> None:
        """Count a call that a driver does not need."""
        self._skips[method].add(driver)

    def operation(self, name: str, seconds: float, failed: bool) -> None:
        """Record an operation for a pod: PrepareResources or UnprepareResources."""
        self._operations.at(name, "true" if failed else "false").observe(seconds)

    def call(self, driver: str, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """Record a call to a driver; `method` is the full name on the wire."""
        self._calls.at(driver, method, code_name(code)).observe(seconds)


def code_name(code: grpc.StatusCode) -> str:
    """Format a status code as Kubernetes does: DeadlineExceeded."""
    if code is grpc.StatusCode.OK:
        return "OK"
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "".join(part.capitalize() for part in code.name.split("_"))
