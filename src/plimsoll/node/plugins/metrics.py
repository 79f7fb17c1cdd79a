"""How long drivers take: the kubelet's metrics, by its names.

Owns `dra_operations_duration_seconds` (one pod's claims, all drivers) and
`dra_grpc_operations_duration_seconds` (one call).
"""

from __future__ import annotations

import grpc
from prometheus_client import CollectorRegistry, Histogram

#: 15 from 0.1 to 40 seconds, each the same multiple of the one before.
BUCKETS = tuple(0.1 * 400 ** (place / 14) for place in range(15))


class DraMetrics:
    """Both histograms, in a registry of one's own if none is given."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
        self._operations = Histogram(
            "dra_operations_duration_seconds",
            "Seconds it took to prepare or release all ResourceClaims of a pod.",
            ("operation_name", "is_error"),
            registry=registry,
            buckets=BUCKETS,
        )
        self._calls = Histogram(
            "dra_grpc_operations_duration_seconds",
            "Seconds a call to a DRA driver took.",
            ("driver_name", "method_name", "grpc_status_code"),
            registry=registry,
            buckets=BUCKETS,
        )

    def operation(self, name: str, seconds: float, failed: bool) -> None:
        """Count what was done for a pod: PrepareResources or UnprepareResources."""
        self._operations.labels(name, "true" if failed else "false").observe(seconds)

    def call(self, driver: str, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """Count a call to a driver; `method` is the full name on the wire."""
        self._calls.labels(driver, method, code_name(code)).observe(seconds)


def code_name(code: grpc.StatusCode) -> str:
    """A status code as Kubernetes writes it: DeadlineExceeded."""
    if code is grpc.StatusCode.OK:
        return "OK"
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "".join(part.capitalize() for part in code.name.split("_"))
