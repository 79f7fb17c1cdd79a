"""Pod and container security contexts, merged as the kubelet merges them. Pure.

A security context is kept as the JSON object it is in the API, so that a field this version does not know is
seen and refused, not dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Fields that both levels have; the container's value wins (the kubelet's DetermineEffectiveSecurityContext).
BOTH = (
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "seccompProfile",
    "appArmorProfile",
    "seLinuxOptions",
    "windowsOptions",
)
POD_ONLY = (
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "seLinuxChangePolicy",
)
CONTAINER_ONLY = (
    "capabilities",
    "privileged",
    "allowPrivilegeEscalation",
    "readOnlyRootFilesystem",
    "procMount",
)


@dataclass(frozen=True, slots=True)
class SecurityRequest:
    """The merged security context of one container of a pod."""

    pod: Mapping[str, Any] = field(default_factory=dict)  #: spec.securityContext
    container: Mapping[str, Any] = field(default_factory=dict)  #: the container's securityContext
    host_users: bool | None = None  #: spec.hostUsers
    path: str = "spec.containers[0]"  #: the container's place in the pod


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A field of a security context: its value, and its path in the pod."""

    value: Any
    path: str


def effective_fields(request: SecurityRequest) -> dict[str, FieldValue]:
    """Return the effective fields of a container, by name; the container's take precedence over the pod's."""
    found: dict[str, FieldValue] = {}
    for tree, path, known in _levels(request):
        for name, value in tree.items():
            if value is not None and name in known:
                found[name] = FieldValue(value, f"{path}.{name}")
    return found


def unknown_fields(request: SecurityRequest) -> Iterator[FieldValue]:
    """Yield the fields that are not known at the level where they occur."""
    for tree, path, known in _levels(request):
        for name, value in tree.items():
            if value is not None and name not in known:
                yield FieldValue(value, f"{path}.{name}")


def _levels(request: SecurityRequest) -> tuple[tuple[Mapping[str, Any], str, tuple[str, ...]], ...]:
    """Return both contexts with their paths and known fields; later ones take precedence."""
    return (
        (request.pod, "spec.securityContext", (*BOTH, *POD_ONLY)),
        (request.container, f"{request.path}.securityContext", (*BOTH, *CONTAINER_ONLY)),
    )
