"""Environment variables of Services, as the kubelet sets them: REDIS_SERVICE_HOST and others. Pure.

A container gets the variables of the API server's Service, and of all Services of its namespace unless
`enableServiceLinks` is false. Services without an address of their own have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.common.json_tree import branch, items, text

#: Service of the API server, whose variables every container gets.
API_NAMESPACE, API_SERVICE = "default", "kubernetes"


def service_variables(
    services: Iterable[Mapping[str, Any]], namespace: str, *, links: bool
) -> dict[str, str]:
    """Return the variables for a container in a namespace; a Service there may replace the API server's."""
    chosen: dict[str, Mapping[str, Any]] = {}
    for service in services:
        metadata = branch(service, "metadata")
        name, place = text(metadata, "name"), text(metadata, "namespace")
        if not _has_address(service):
            continue
        if place == namespace and links:
            chosen[name] = service
        elif place == API_NAMESPACE and name == API_SERVICE:
            chosen.setdefault(name, service)
    found: dict[str, str] = {}
    for name in sorted(chosen):
        found.update(_variables(name, branch(chosen[name], "spec")))
    return found


def _has_address(service: Mapping[str, Any]) -> bool:
    return text(branch(service, "spec"), "clusterIP") not in ("", "None")


def _variables(name: str, spec: Mapping[str, Any]) -> dict[str, str]:
    prefix, host = name.upper().replace("-", "_"), text(spec, "clusterIP")
    ports = [each for each in items(spec, "ports") if isinstance(each.get("port"), int)]
    found = {f"{prefix}_SERVICE_HOST": host}
    if not ports:
        return found
    found[f"{prefix}_SERVICE_PORT"] = str(ports[0]["port"])
    for each in ports:
        if text(each, "name"):
            label = text(each, "name").upper().replace("-", "_")
            found[f"{prefix}_SERVICE_PORT_{label}"] = str(each["port"])
    shown = f"[{host}]" if ":" in host else host
    for number, each in enumerate(ports):
        protocol = text(each, "protocol") or "TCP"
        link = f"{protocol.lower()}://{shown}:{each['port']}"
        start = f"{prefix}_PORT_{each['port']}_{protocol.upper()}"
        if number == 0:
            found[f"{prefix}_PORT"] = link
        found |= {
            start: link,
            f"{start}_PROTO": protocol.lower(),
            f"{start}_PORT": str(each["port"]),
            f"{start}_ADDR": host,
        }
    return found
