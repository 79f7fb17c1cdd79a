"""Commands that release devices: deletions of pods and claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.tools.audit.facts import AuditFacts
from plimsoll.tools.fixes.harm import removal_harm


def delete_pods(pods: Iterable[Pod]) -> str:
    """Return the commands that delete pods, one for each namespace."""
    by_namespace: dict[str, list[str]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.metadata.namespace, []).append(pod.metadata.name)
    commands = (f"kubectl delete pod -n {space} {' '.join(names)}" for space, names in by_namespace.items())
    return "; ".join(commands)


def delete_claim(claim: ResourceClaim) -> str:
    return f"kubectl delete resourceclaim -n {claim.metadata.namespace} {claim.metadata.name}"


def allocate_again(facts: AuditFacts, claim: ResourceClaim) -> str:
    """Return how a claim gets other devices: its pods are recreated, or it is deleted if it has none."""
    pods = facts.users.get(claim.metadata.key, [])
    if not pods:
        return f"no pod uses the claim; if it is not needed: {delete_claim(claim)}"
    owned = all(controller_of(pod.metadata) is not None for pod in pods)
    then = "whose controllers recreate them" if owned else "and recreate them"
    return f"delete the pods of the claim, {then}, so that it is allocated again: {delete_pods(pods)}"


def release_claims(facts: AuditFacts, choices: Iterable[Sequence[ResourceClaim]]) -> str:
    """Return the commands that release the claims of the choice by which least is lost."""
    snapshot = facts.cluster_state.snapshot

    def harm(claims: Sequence[ResourceClaim]) -> tuple[int, list[tuple[str, str]]]:
        pods = [pod for claim in claims for pod in facts.users.get(claim.metadata.key, ())]
        return sum(removal_harm(pod, snapshot) for pod in pods), [claim.metadata.key for claim in claims]

    claims = min(choices, key=harm)
    unused = [claim for claim in claims if not facts.users.get(claim.metadata.key)]
    pods = [pod for claim in claims for pod in facts.users.get(claim.metadata.key, ())]
    commands = [*map(delete_claim, unused), *([delete_pods(pods)] if pods else [])]
    names = ", ".join(claim.metadata.full_name for claim in claims)
    return f"release {names}, with the least harm: {'; '.join(commands)}"
