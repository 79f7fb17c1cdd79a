"""Restart policies of pods and containers, and container restart rules.

Pure. A rule that asks to restart all containers is not followed: the container's own policy applies, as where
upstream's feature gate is off.
"""

from __future__ import annotations

from plimsoll.api.core import Container, Pod
from plimsoll.ledger.containers import is_sidecar

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"


def should_restart(pod: Pod, container: Container, exit_code: int) -> bool:
    """Return whether a container of a pod that keeps running is restarted after this exit code."""
    policy = pod.spec.restart_policy or ALWAYS
    if container.restart_policy is not None:
        if _matches_rule(container, exit_code):
            return True
        if container.restart_policy in (ALWAYS, ON_FAILURE, NEVER):
            policy = container.restart_policy
    if policy == NEVER:
        return False
    return exit_code != 0 if policy == ON_FAILURE else True


def should_restart_init(pod: Pod, container: Container, exit_code: int) -> bool:
    """Return the same for an init container: one that succeeded is done, unless it is a sidecar."""
    if is_sidecar(container):
        return True
    return exit_code != 0 and should_restart(pod, container, exit_code)


def _matches_rule(container: Container, exit_code: int) -> bool:
    """Return whether the first rule that matches this exit code requires a restart."""
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if codes is None:
            continue
        named = exit_code in codes.values
        if (codes.operator == "In" and named) or (codes.operator == "NotIn" and not named):
            return rule.action == "Restart"
    return False
