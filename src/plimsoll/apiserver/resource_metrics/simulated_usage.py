"""Usage of pods on simulated nodes, which nothing can measure. Pure.

A running container uses what it requests, or what annotations of its pod specify:

   plimsoll.dev/usage-cpu: 250m                 every container
   plimsoll.dev/usage-memory: 64Mi
   usage-cpu.plimsoll.dev/CONTAINER: "1"        one container
   usage-memory.plimsoll.dev/CONTAINER: 1Gi
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.errors import QuantityError
from plimsoll.ledger.containers import is_sidecar

RESOURCES = ("cpu", "memory")
_DOMAIN = "plimsoll.dev"


def simulated_usage(pod: Pod) -> dict[str, dict[str, Quantity]]:
    """Return the usage of the running containers of a pod, by name."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    running = {status.name for status in statuses if "running" in status.state}
    sidecars = [container for container in pod.spec.init_containers if is_sidecar(container)]
    return {
        container.name: {name: _usage(pod.metadata.annotations, container, name) for name in RESOURCES}
        for container in (*sidecars, *pod.spec.containers)
        if container.name in running
    }


def _usage(annotations: Mapping[str, str], container: Container, resource: str) -> Quantity:
    for key in (f"usage-{resource}.{_DOMAIN}/{container.name}", f"{_DOMAIN}/usage-{resource}"):
        if key in annotations:
            try:
                return Quantity.parse(annotations[key])
            except QuantityError:
                continue
    return container.resources.requests.get(resource, ZERO)
