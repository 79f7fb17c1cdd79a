"""Health endpoints `/healthz`, `/livez` and `/readyz`, with the check names of kube-apiserver.

Monitoring matches the names, so they are upstream's. `etcd` is the store. A `poststarthook` is a step of the
start: the server listens only after all of them, so each has passed once it can be asked for; steps with
nothing to do here (API aggregation, custom resources) have passed as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.apiserver.request import ApiResponse

ENDPOINTS = ("healthz", "livez", "readyz")
_START_STEPS = (
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
    "apiservice-openapi-controller",
    "apiservice-openapiv3-controller",
)
_BEFORE: Mapping[str, tuple[str, ...]] = {
    "healthz": ("ping", "log", "loopback-serving-certificate", "etcd"),
    "livez": ("ping", "log", "loopback-serving-certificate", "etcd"),
    "readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync"),
}
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache, private"}
_TEXT = "text/plain; charset=utf-8"


def check_names(endpoint: str) -> list[str]:
    """Return the checks of an endpoint, in the order of the report."""
    steps = [f"poststarthook/{step}" for step in _START_STEPS]
    steps.insert(steps.index("poststarthook/kube-apiserver-autoregistration") + 1, "autoregister-completion")
    return [*_BEFORE[endpoint], *steps, *(["shutdown"] if endpoint == "readyz" else [])]


def check_results(store_error: str) -> dict[tuple[str, str], bool]:
    """Return whether each check passes, by its name and endpoint."""
    return {
        (name, endpoint): name not in _failing(endpoint, store_error)
        for endpoint in ENDPOINTS
        for name in check_names(endpoint)
    }


def _failing(endpoint: str, store_error: str) -> set[str]:
    """Return the checks that fail: the store if it cannot be written, except for `livez`."""
    return {"etcd", "etcd-readiness"} if store_error and endpoint != "livez" else set()


def report_health(
    endpoint: str, check: str, query: Sequence[tuple[str, str]], store_error: str
) -> ApiResponse:
    """Report all checks of an endpoint, or one; 503 if one fails.

    The store is failed if it cannot be written. It is never failed for `livez`: a full disk is no reason to
    be restarted.
    """
    failing = _failing(endpoint, store_error)
    names = check_names(endpoint)
    if check:
        if check not in names:
            return _respond(404, "404 page not found\n")
        return _respond(500, f"{store_error}\n") if check in failing else _respond(200, "ok")
    excluded = {value for name, value in query if name == "exclude"}
    lines = [_line(name, store_error if name in failing else "", name in excluded) for name in names]
    unknown = sorted(excluded - set(names))
    if unknown:
        shown = ",".join(f'"{name[:64]}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {shown}")
    if failing - excluded:
        return _respond(503, "\n".join([*lines, f"{endpoint} check failed"]) + "\n")
    if not any(name == "verbose" for name, _ in query):
        return _respond(200, "ok")
    return _respond(200, "\n".join([*lines, f"{endpoint} check passed"]) + "\n")


def _line(name: str, error: str, excluded: bool) -> str:
    if excluded:
        return f"[+]{name} excluded: ok"
    return f"[-]{name} failed: {error}" if error else f"[+]{name} ok"


def _respond(status: int, text: str) -> ApiResponse:
    return ApiResponse(status, text.encode(), _TEXT, dict(_HEADERS))
