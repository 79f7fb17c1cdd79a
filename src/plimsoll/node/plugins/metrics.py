"""DRA metrics of the kubelet: durations of driver operations and calls.

`dra_operations_duration_seconds` (claims of one pod, all drivers) and `dra_grpc_operations_duration_seconds`
(one call).
"""

from __future__ import annotations

import grpc
from prometheus_client import CollectorRegistry, Histogram

#: 15 exponential buckets from 0.1 to 40 seconds.
BUCKETS = tuple(0.1 * 400 ** (place / 14) for place in range(15))


class DraMetrics:
    """Both histograms, in a new registry if none is given."""

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
