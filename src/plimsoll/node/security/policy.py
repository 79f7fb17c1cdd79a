"""Security policy: admission of a container's security context, with the kubelet's messages.

Decides about fields that cannot be applied: the container is rejected, or, if the node is configured so,
started without them with a warning event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll.api.core import Container, Pod
from plimsoll.node.security.context import SecurityRequest
from plimsoll.node.security.credentials import (
    CredentialDecision,
    ProcessCredentials,
    RootViolation,
    UnsupportedField,
    compute_credentials,
)
from plimsoll.node.security.rights import AgentRights, read_rights

OnUnsupported = Literal["refuse", "warn"]


@dataclass(frozen=True, slots=True)
class SecurityDecision:
    """Credentials, or the `refusal`; `warning` lists the fields that are not applied."""

    credentials: ProcessCredentials | None
    refusal: str = ""
    warning: str = ""


class SecurityPolicy:
    """Check of security contexts against the rights of the agent."""

    def __init__(self, on_unsupported: OnUnsupported = "refuse", rights: AgentRights | None = None) -> None:
        """Create a policy; `rights` default to those of this process."""
        self.on_unsupported = on_unsupported
        self.rights = rights or read_rights()

    def check(self, pod: Pod, container: Container) -> SecurityDecision:
        """Check one container of a pod."""
        found = compute_credentials(security_request(pod, container), self.rights)
        if found.violation is not None:
            return SecurityDecision(None, _describe_violation(found, pod, container))
        if not found.unsupported:
            return SecurityDecision(found.credentials)
        text = describe_unsupported(found.unsupported)
        if self.on_unsupported == "warn":
            return SecurityDecision(found.credentials, warning=f"started without {text}")
        return SecurityDecision(None, f"the process runtime cannot apply {text}")


def security_request(pod: Pod, container: Container) -> SecurityRequest:
    """Collect what a pod requests for one of its containers."""
    return SecurityRequest(
        pod=pod.spec.security_context or {},
        container=container.security_context or {},
        host_users=pod.spec.host_users,
        path=container_path(pod, container.name),
    )


def container_path(pod: Pod, name: str) -> str:
    """Return the path of a container in its pod, such as `spec.initContainers[0]`."""
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


def _describe_violation(found: CredentialDecision, pod: Pod, container: Container) -> str:
    meta = pod.metadata
    where = f'(pod: "{meta.name}_{meta.namespace}({meta.uid})", container: {container.name})'
    if found.violation is RootViolation.RUN_AS_USER:
        return f"container's runAsUser breaks non-root policy {where}"
    return f"container has runAsNonRoot and image will run as root {where}"
