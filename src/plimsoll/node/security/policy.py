"""The verdict on the security context of one container, in the kubelet's words.

Owns `SecurityPolicy`, which says what becomes of fields that cannot be applied: the container is refused, or,
where the node is set so, started without them and the pod told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll.api.core import Container, Pod
from plimsoll.node.security.context import SecurityRequest
from plimsoll.node.security.credentials import (
    Credentials,
    Judgment,
    RootViolation,
    UnsupportedField,
    decide_credentials,
)
from plimsoll.node.security.rights import AgentRights, read_rights

OnUnsupported = Literal["refuse", "warn"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Credentials, unless `refusal` says why there are none; `warning` names what they are without."""

    credentials: Credentials | None
    refusal: str = ""
    warning: str = ""


class SecurityPolicy:
    """Judges security contexts by the rights of the agent."""

    def __init__(self, on_unsupported: OnUnsupported = "refuse", rights: AgentRights | None = None) -> None:
        """`rights`: those of this process, unless given."""
        self.on_unsupported = on_unsupported
        self.rights = rights or read_rights()

    def judge(self, pod: Pod, container: Container) -> Verdict:
        """Judge one container of a pod."""
        found = decide_credentials(security_request(pod, container), self.rights)
        if found.violation is not None:
            return Verdict(None, _describe_violation(found, pod, container))
        if not found.unsupported:
            return Verdict(found.credentials)
        text = describe_unsupported(found.unsupported)
        if self.on_unsupported == "warn":
            return Verdict(found.credentials, warning=f"started without {text}")
        return Verdict(None, f"the process runtime cannot apply {text}")


def security_request(pod: Pod, container: Container) -> SecurityRequest:
    """Gather what a pod asks for one of its containers."""
    return SecurityRequest(
        pod=pod.spec.security_context or {},
        container=container.security_context or {},
        host_users=pod.spec.host_users,
        path=container_path(pod, container.name),
    )


def container_path(pod: Pod, name: str) -> str:
    """Return the place of a container in its pod, such as `spec.initContainers[0]`."""
    spec = pod.spec
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for place, container in enumerate(containers):
            if container.name == name:
                return f"spec.{field}[{place}]"
    return f"spec.containers[{name!r}]"


def describe_unsupported(fields: Sequence[UnsupportedField]) -> str:
    """Format fields that cannot be applied, each with its reason and fix."""
    return "; ".join(f"{each.path}: {each.why} ({each.fix})" for each in fields)


def _describe_violation(found: Judgment, pod: Pod, container: Container) -> str:
    meta = pod.metadata
    where = f'(pod: "{meta.name}_{meta.namespace}({meta.uid})", container: {container.name})'
    if found.violation is RootViolation.RUN_AS_USER:
        return f"container's runAsUser breaks non-root policy {where}"
    return f"container has runAsNonRoot and image will run as root {where}"
