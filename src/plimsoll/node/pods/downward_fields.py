"""Downward API: fields of a pod and resources of its containers, for variables and files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll.api.containers import ResourceFieldSelector
from plimsoll.api.core import Container, Pod, ResourceList
from plimsoll.api.quantity import ZERO, Quantity, divide_up
from plimsoll.errors import InputError

_ONE = Quantity.parse("1")


@dataclass(frozen=True, slots=True)
class DownwardNodeInfo:
    """Node information available through the downward API."""

    name: str = ""
    host_ips: tuple[str, ...] = ()
    allocatable: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DownwardFields:
    """Downward API of one pod."""

    pod: Pod
    facts: DownwardNodeInfo
    pod_ips: tuple[str, ...] = ()

    def field(self, path: str) -> str:
        """Return a field of the pod; InputError if it is not supported."""
        meta, spec = self.pod.metadata, self.pod.spec
        plain = {
            "metadata.name": meta.name,
            "metadata.namespace": meta.namespace,
            "metadata.uid": meta.uid,
            "metadata.labels": _lines(meta.labels),
            "metadata.annotations": _lines(meta.annotations),
            "spec.nodeName": spec.node_name,
            "spec.serviceAccountName": spec.service_account_name,
            "status.hostIP": self.facts.host_ips[0] if self.facts.host_ips else "",
            "status.hostIPs": ",".join(self.facts.host_ips),
            "status.podIP": self.pod_ips[0] if self.pod_ips else "",
            "status.podIPs": ",".join(self.pod_ips),
        }
        if path in plain:
            return plain[path]
        for prefix, values in (("metadata.labels", meta.labels), ("metadata.annotations", meta.annotations)):
            if path.startswith(f"{prefix}['") and path.endswith("']"):
                return values.get(path[len(prefix) + 2 : -2], "")
        raise InputError(f"field label not supported: {path}")

    def resource(self, reference: ResourceFieldSelector, container: Container) -> str:
        """Return a request or limit of a container, or of the one that the reference names."""
        if reference.container_name:
            spec = self.pod.spec
            named = [
                c for c in (*spec.init_containers, *spec.containers) if c.name == reference.container_name
            ]
            if not named:
                raise InputError(f"container {reference.container_name} not found")
            container = named[0]
        kind, _, name = reference.resource.partition(".")
        if kind == "limits":
            # Without a limit the container may use the entire node.
            amount = container.resources.limits.get(name) or self.facts.allocatable.get(name, ZERO)
        elif kind == "requests":
            amount = container.resources.requests.get(name, ZERO)
        else:
            raise InputError(f"unsupported container resource : {reference.resource}")
        return _divide(amount, reference.divisor, milli=name == "cpu")


def _divide(amount: Quantity, divisor: Quantity | None, *, milli: bool) -> str:
    by = divisor if divisor is not None and divisor > ZERO else _ONE
    if milli:
        return str(divide_up(amount.milli(), max(1, by.milli())))
    return str(divide_up(amount.value(), max(1, by.value())))


def _lines(values: Mapping[str, str]) -> str:
    """Format labels or annotations as lines of key="value"."""
    return "\n".join(f'{key}="{_escape(value)}"' for key, value in sorted(values.items()))


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
