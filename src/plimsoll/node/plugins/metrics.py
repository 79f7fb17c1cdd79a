"""DRA metrics of the kubelet: durations of driver operations and calls, and skipped calls.

`dra_operations_duration_seconds` (claims of one pod, all drivers), `dra_grpc_operations_duration_seconds`
(one call), and the calls that were not necessary (`skipNodeOperations`).
"""

from __future__ import annotations

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram

from plimsoll.node.claim_info import PREPARE, UNPREPARE

#: 15 exponential buckets from 0.1 to 40 seconds.
BUCKETS = tuple(0.1 * 400 ** (place / 14) for place in range(15))


class DraMetrics:
    """The metrics, in a new registry if none is given."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._operations = Histogram(
            "dra_operations_duration_seconds",
            "Duration of preparing or unpreparing all ResourceClaims of a pod, in seconds.",
            ("operation_name", "is_error"),
            registry=registry,
            buckets=BUCKETS,
        )
        self._calls = Histogram(
            "dra_grpc_operations_duration_seconds",
            "Duration of a call to a DRA driver, in seconds.",
            ("driver_name", "method_name", "grpc_status_code"),
            registry=registry,
            buckets=BUCKETS,
        )

        self._skips = {
            method: Counter(
                f"dra_{name}_skips",
                f"Number of {method} calls that were skipped because of skipNodeOperations.",
                ("driver_name",),
                registry=registry,
            )
            for method, name in ((PREPARE, "node_prepare"), (UNPREPARE, "node_unprepare"))
        }

    def skip(self, method: str, driver: str) -> None:
        """Count a call that a driver does not need."""
        self._skips[method].labels(driver).inc()

    def operation(self, name: str, seconds: float, failed: bool) -> None:
        """Record an operation for a pod: PrepareResources or UnprepareResources."""
        self._operations.labels(name, "true" if failed else "false").observe(seconds)

    def call(self, driver: str, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """Record a call to a driver; `method` is the full name on the wire."""
        self._calls.labels(driver, method, code_name(code)).observe(seconds)


def code_name(code: grpc.StatusCode) -> str:
    """Format a status code as Kubernetes does: DeadlineExceeded."""
    if code is grpc.StatusCode.OK:
        return "OK"
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "".join(part.capitalize() for part in code.name.split("_"))
