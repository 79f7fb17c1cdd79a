"""Namespaces that are deleted: emptied, told about, let go.

Owns what is decided about a namespace (upstream's namespace controller): its phase, the conditions that say
what is in the way, how long to wait, and taking off the finalizer `kubernetes` once it is empty. Also owns
which namespaces every cluster has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.meta import Condition
from plimsoll.api.quota import CountedPod
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import NAMESPACES
from plimsoll.controllers.actions import NOTHING, Action, Create, Patch, Plan, Update
from plimsoll.controllers.plans.pods import is_finished
from plimsoll.controllers.plans.views import Namespace

DEFAULTS = ("default", "kube-node-lease", "kube-public", "kube-system")
FINALIZER = "kubernetes"
TERMINATING = "Terminating"
#: How long finalizers of what is left are expected to take, in seconds.
FINALIZING = 15

#: The conditions of a deleted namespace while nothing is wrong: type -> (reason, message).
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


@dataclass(frozen=True, slots=True)
class Content:
    """What is left in a namespace after an attempt to empty it."""

    left: Mapping[str, int] = field(default_factory=dict)  #: `plural.group` -> how many
    finalizers: Mapping[str, int] = field(default_factory=dict)  #: finalizer -> on how many
    failures: Sequence[str] = ()
    estimate: int = 0  #: seconds that what is left is expected to take
    undiscovered: str = ""  #: why it is not known which kinds there are; then nothing was done


def plan_defaults(known: Collection[str]) -> Plan:
    """Make the namespaces that every cluster has."""
    return Plan(
        tuple(
            Create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for name in DEFAULTS
            if name not in known
        )
    )


def estimate_pods(pods: Sequence[CountedPod], deleted_at: float, now: float) -> int:
    """How long pods may take to end; nothing more is expected of those that had their time."""
    graces = (pod.spec.termination_grace_period_seconds or 0 for pod in pods if not is_finished(pod))
    longest = max(graces, default=0)
    return longest if now - deleted_at < longest else 0


def plan_phase(namespace: Namespace) -> Plan:
    """Say that a namespace is on its way out."""
    if namespace.metadata.deletion_timestamp is None or namespace.status.phase == TERMINATING:
        return NOTHING
    return Plan((_patch_status(namespace, {"phase": TERMINATING}),))


def plan_content(namespace: Namespace, tree: Mapping[str, Any], content: Content, now: float) -> Plan:
    """Tell what is left, and wait for it; let an empty namespace go. `tree` is the namespace in full.

    DIFF: while pods are left, the conditions say so (test_conditions_tell_of_pods_that_are_left); upstream
    says that all content is removed until the last pod is gone.
    """
    actions: list[Action] = []
    conditions = _conditions(namespace.status.conditions, content, now)
    if conditions:
        actions.append(_patch_status(namespace, {"conditions": conditions}))
    if content.undiscovered or content.failures:
        return Plan(tuple(actions), trouble="; ".join((content.undiscovered, *content.failures)))
    if content.estimate:
        return Plan(tuple(actions), again=content.estimate // 2 + 1)
    if content.left:
        return Plan(tuple(actions), trouble="objects that nothing holds are still there")
    kept = [finalizer for finalizer in namespace.spec.finalizers if finalizer != FINALIZER]
    final = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": tree["metadata"],
        "spec": {**tree.get("spec", {}), "finalizers": sorted(kept)},
    }
    return Plan((*actions, Update(NAMESPACES, final, "finalize")))


def _conditions(old: Sequence[Condition], content: Content, now: float) -> list[dict[str, Any]]:
    """The conditions that are to be changed."""
    wrong: dict[str, tuple[str, str]] = {}
    if content.undiscovered:
        wrong["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", content.undiscovered)
    if content.failures:
        text = ", ".join(sorted(content.failures))
        count = len(content.failures)
        wrong["NamespaceDeletionContentFailure"] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {count} remaining: {text}",
        )
    if content.left:
        texts = sorted(f"{kind} has {count} resource instances" for kind, count in content.left.items())
        wrong["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(texts)}",
        )
    if content.finalizers:
        texts = sorted(f"{name} in {count} resource instances" for name, count in content.finalizers.items())
        wrong["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {', '.join(texts)}",
        )
    known = {condition.type: condition for condition in old}
    changed = []
    for type, fine in _FINE.items():
        status = "True" if type in wrong else "False"
        reason, message = wrong.get(type, fine)
        before = known.get(type)
        if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
            continue
        same = before is not None and before.status == status and before.last_transition_time
        since = same or format_time(now)
        changed.append(
            {
                "type": type,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
            }
        )
    return changed


def _patch_status(namespace: Namespace, status: dict[str, Any]) -> Patch:
    metadata = {"uid": namespace.metadata.uid, "resourceVersion": namespace.metadata.resource_version}
    patch = {"metadata": metadata, "status": status}
    return Patch(NAMESPACES, namespace.metadata.name, patch, subresource="status", type="strategic")
