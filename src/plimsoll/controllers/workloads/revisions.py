"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, by number.

A revision is named after the hash of its template. A template that is used again gets the next number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import CONTROLLER_REVISIONS, Endpoint
from plimsoll.controllers.actions import CreateAction, DeleteAction, PatchAction
from plimsoll.controllers.workload_views import ControllerRevisionView
from plimsoll.controllers.workloads.ownership import controller_reference
from plimsoll.controllers.workloads.templates import hash_tree, prune

#: Label of pods: the revision of their template.
REVISION_LABEL = "controller-revision-hash"
_HASH_LABEL = "controller.kubernetes.io/hash"


class RevisionPlan(NamedTuple):
    """Newest revision, as it will be, and what makes it so."""

    newest: ControllerRevisionView
    action: CreateAction | PatchAction | None = None


def revision_data(template: Any) -> dict[str, Any]:
    """Build the content of a revision: a patch that restores the template.

    Keys are sorted as in kube-controller-manager, which finds the revision of a template by comparing bytes.
    """
    data: dict[str, Any] = sort_keys({"spec": {"template": {**template, "$patch": "replace"}}})
    return data


def sort_keys(value: Any) -> Any:
    """Return a tree with the keys of all objects in order."""
    if isinstance(value, Mapping):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(each) for each in value] if isinstance(value, list) else value


def template_of(revision: ControllerRevisionView) -> dict[str, Any]:
    template = ((revision.data or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def plan_revision(
    owner: ObjectMeta,
    endpoint: Endpoint,
    template: Any,
    revisions: Sequence[ControllerRevisionView],
    collisions: int | None,
) -> RevisionPlan:
    """Plan the revision of the current template."""
    data = revision_data(template)
    wanted = prune(data)
    ordered = sort_revisions(revisions)
    number = ordered[-1].revision + 1 if ordered else 1
    equal = [each for each in ordered if prune(each.data) == wanted]
    if equal:
        newest = equal[-1]
        if newest is ordered[-1]:
            return RevisionPlan(newest)
        metadata = newest.metadata
        known = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        patch = PatchAction(
            CONTROLLER_REVISIONS, metadata.name, {"metadata": known, "revision": number}, metadata.namespace
        )
        return RevisionPlan(replace(newest, revision=number), patch)
    hash = hash_tree(wanted, collisions)
    name = f"{owner.name}-{hash}"
    labels = {**_labels(template), _HASH_LABEL: hash, REVISION_LABEL: hash}
    metadata = ObjectMeta(name=name, namespace=owner.namespace, labels=labels)
    tree = {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [controller_reference(owner, endpoint)],
        },
        "data": data,
        "revision": number,
    }
    view = ControllerRevisionView(metadata=metadata, data=data, revision=number)
    create = CreateAction(CONTROLLER_REVISIONS, tree, owner.namespace)
    return RevisionPlan(view, create)


def plan_history(
    revisions: Iterable[ControllerRevisionView], limit: int | None, used: Iterable[str]
) -> tuple[DeleteAction, ...]:
    """Plan the deletion of the oldest revisions beyond a limit; `used` are names that stay."""
    names = set(used)
    idle = [each for each in sort_revisions(revisions) if each.metadata.name not in names]
    surplus = max(0, len(idle) - (10 if limit is None else limit))
    return tuple(
        DeleteAction(CONTROLLER_REVISIONS, each.metadata.name, each.metadata.namespace, uid=each.metadata.uid)
        for each in idle[:surplus]
    )


def sort_revisions(revisions: Iterable[ControllerRevisionView]) -> list[ControllerRevisionView]:
    """Sort by number, oldest first."""
    return sorted(
        revisions,
        key=lambda each: (each.revision, each.metadata.creation_timestamp or "", each.metadata.name),
    )


def _labels(template: Any) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}
