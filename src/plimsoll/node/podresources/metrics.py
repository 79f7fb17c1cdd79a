"""Metrics of the PodResources endpoint, under the kubelet's names.

KEP-3695 writes the names without `kubelet_`, and some with `_total` at the end; these are the names that a
kubelet serves, and that dashboards use. See docs/spec/node-protocols.md, "PodResources".
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.common.metrics import CounterFamily, MetricFamily

PREFIX = "kubelet_pod_resources_endpoint_"
LABEL = "server_api_version"
METHODS = {"list": "List", "get": "Get", "get_allocatable": "GetAllocatableResources"}


class EndpointMetrics:
    """Calls and failed calls by method and API version. Rate-limited calls are not counted, as upstream."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {"v1": 0}
        self.requests: dict[tuple[str, str], int] = {(method, "v1"): 0 for method in METHODS}
        self.errors: dict[tuple[str, str], int] = {(method, "v1"): 0 for method in METHODS}

    def called(self, method: str, version: str = "v1") -> None:
        """Count a call of a method; v1alpha1 calls count in the total only."""
        self.total[version] = self.total.get(version, 0) + 1
        if version == "v1":
            self.requests[method, version] += 1

    def failed(self, method: str, version: str = "v1") -> None:
        if version == "v1":
            self.errors[method, version] += 1

    def collect(self) -> Iterator[MetricFamily]:
        family = CounterFamily(
            f"{PREFIX}requests_total",
            "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
            labels=[LABEL],
        )
        for version, count in self.total.items():
            family.add([version], count)
        yield family
        for kind, counts in (("requests", self.requests), ("errors", self.errors)):
            for method, name in METHODS.items():
                yield _counter(kind, method, name, counts)


def _counter(kind: str, method: str, name: str, counts: dict[tuple[str, str], int]) -> MetricFamily:
    which = " which returned error" if kind == "errors" else ""
    about = (
        f"Number of requests to the PodResource {name} endpoint{which}. Broken down by server api version."
    )
    family = CounterFamily(f"{PREFIX}{kind}_{method}", about, labels=(LABEL,))
    for (counted, version), count in counts.items():
        if counted == method:
            family.add((version,), count)
    return family
