"""ReplicaSets of a Deployment: revisions, annotations, sizes and their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from plimsoll.api.label_selection import parse_int64
from plimsoll.api.meta import LabelSelector, ObjectMeta
from plimsoll.client.endpoints import DEPLOYMENTS, REPLICA_SETS
from plimsoll.controllers.actions import CreateAction
from plimsoll.controllers.workload_views import (
    DeploymentView,
    ReplicaSetSpecView,
    ReplicaSetView,
)
from plimsoll.controllers.workloads.ownership import controller_reference
from plimsoll.controllers.workloads.templates import hash_tree, resolve_percent, without_label

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_HISTORY = "deployment.kubernetes.io/revision-history"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MAXIMUM = "deployment.kubernetes.io/max-replicas"
#: Annotations of a Deployment that its ReplicaSets do not get.
_OWN_ANNOTATIONS = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        _HISTORY,
        _DESIRED,
        _MAXIMUM,
    }
)
#: Longest revision history in characters.
_LONGEST_HISTORY = 2000


def is_rolling(deployment: DeploymentView) -> bool:
    return deployment.spec.strategy.type == "RollingUpdate"


def resolve_steps(deployment: DeploymentView) -> tuple[int, int]:
    """Return the surplus and the missing pods that a rolling update may have; they are never both 0."""
    strategy = deployment.spec.strategy.rolling_update
    if strategy is None:
        return 0, 1
    surge = resolve_percent(strategy.max_surge, deployment.replicas, round_up=True)
    unavailable = resolve_percent(strategy.max_unavailable, deployment.replicas, round_up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def max_surge(deployment: DeploymentView) -> int:
    return resolve_steps(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: DeploymentView) -> int:
    if not is_rolling(deployment) or not deployment.replicas:
        return 0
    return min(resolve_steps(deployment)[1], deployment.replicas)


def count_replicas(sets: Iterable[ReplicaSetView]) -> int:
    return sum(each.replicas for each in sets)


def filter_active(sets: Iterable[ReplicaSetView]) -> list[ReplicaSetView]:
    return [each for each in sets if each.replicas > 0]


def sort_by_age(sets: Iterable[ReplicaSetView]) -> list[ReplicaSetView]:
    """Sort by creation, oldest first."""
    return sorted(sets, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))


def find_new(deployment: DeploymentView, sets: Iterable[ReplicaSetView]) -> ReplicaSetView | None:
    """Return the oldest ReplicaSet with the Deployment's current template, or None."""
    wanted = without_label(deployment.spec.template, HASH_LABEL)
    for each in sort_by_age(sets):
        if without_label(each.spec.template, HASH_LABEL) == wanted:
            return each
    return None


def revision_of(metadata: ObjectMeta) -> int:
    """Return the revision of a ReplicaSet or Deployment; 0 if it has none."""
    return parse_int64(metadata.annotations.get(REVISION, "0")) or 0


def desired_of(replica_set: ReplicaSetView) -> int | None:
    """Return the size of the Deployment when it last scaled a ReplicaSet."""
    return parse_int64(replica_set.metadata.annotations.get(_DESIRED, ""))


def maximum_of(replica_set: ReplicaSetView) -> int:
    """Return the largest number of pods of the Deployment when it last scaled a ReplicaSet, or 0."""
    return parse_int64(replica_set.metadata.annotations.get(_MAXIMUM, "")) or 0


def size_annotations(deployment: DeploymentView) -> dict[str, str]:
    return {
        _DESIRED: str(deployment.replicas),
        _MAXIMUM: str(deployment.replicas + max_surge(deployment)),
    }


def new_annotations(deployment: DeploymentView, known: Mapping[str, str], revision: int) -> dict[str, str]:
    """Return the annotations of the newest ReplicaSet that differ from those it has."""
    wanted = {
        key: value for key, value in deployment.metadata.annotations.items() if key not in _OWN_ANNOTATIONS
    }
    old = known.get(REVISION)
    number = parse_int64(old or "0")
    if number is not None and number < revision:
        wanted[REVISION] = str(revision)
        if old is not None:
            entries = [entry for entry in known.get(_HISTORY, "").split(",") if entry]
            entries.append(old)
            while len(",".join(entries)) > _LONGEST_HISTORY and len(entries) > 1:
                del entries[0]
            wanted[_HISTORY] = ",".join(entries)
    return {key: value for key, value in wanted.items() if known.get(key) != value}


def name_of_new(deployment: DeploymentView) -> tuple[str, str]:
    """Return the name and the hash of the ReplicaSet for the current template."""
    hash = hash_tree(without_label(deployment.spec.template, HASH_LABEL), deployment.status.collision_count)
    return f"{deployment.metadata.name}-{hash}", hash


def make_new(deployment: DeploymentView, replicas: int, revision: int) -> tuple[ReplicaSetView, CreateAction]:
    """Build the ReplicaSet of the current template: as it will be, and its creation."""
    name, hash = name_of_new(deployment)
    spec = deployment.spec
    template = dict(spec.template)
    metadata = dict(template.get("metadata") or {})
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: hash}
    template["metadata"] = {**metadata, "labels": labels}
    selector = spec.selector or LabelSelector()
    selector = replace(selector, match_labels={**selector.match_labels, HASH_LABEL: hash})
    annotations = {**size_annotations(deployment), **new_annotations(deployment, {}, revision)}
    view = ReplicaSetView(
        metadata=ObjectMeta(
            name=name,
            namespace=deployment.metadata.namespace,
            labels=labels,
            annotations=annotations,
        ),
        spec=ReplicaSetSpecView(
            replicas=replicas,
            min_ready_seconds=spec.min_ready_seconds,
            selector=selector,
            template=template,
        ),
    )
    tree: dict[str, Any] = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [controller_reference(deployment.metadata, DEPLOYMENTS)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": spec.min_ready_seconds,
            "selector": _selector_tree(selector),
            "template": template,
        },
    }
    return view, CreateAction(REPLICA_SETS, tree, deployment.metadata.namespace)


def _selector_tree(selector: LabelSelector) -> dict[str, Any]:
    expressions = [
        {
            "key": each.key,
            "operator": each.operator,
            **({"values": list(each.values)} if each.values else {}),
        }
        for each in selector.match_expressions
    ]
    tree: dict[str, Any] = {"matchLabels": selector.match_labels}
    return {**tree, "matchExpressions": expressions} if expressions else tree


# -- sizes


def new_size(deployment: DeploymentView, sets: Iterable[ReplicaSetView], new: ReplicaSetView | None) -> int:
    """Return the size to which the newest ReplicaSet may grow now."""
    if not is_rolling(deployment):
        return deployment.replicas
    current = 0 if new is None else new.replicas
    room = deployment.replicas + max_surge(deployment) - count_replicas(sets)
    if room <= 0:
        return current
    return current + min(room, deployment.replicas - current)


def plan_old_sizes(
    deployment: DeploymentView, new: ReplicaSetView, old: Iterable[ReplicaSetView]
) -> dict[str, int]:
    """Return the sizes to which old ReplicaSets shrink in a rolling update, by name.

    Pods that are not available go first; then as many as keep the required number of pods available.

    DIFF: both in one write of each ReplicaSet; upstream writes the first step, then the second
    (test_old_replica_sets_shrink_in_one_write).
    """
    sets = sort_by_age(filter_active(old))
    least = deployment.replicas - max_unavailable(deployment)
    new_unavailable = new.replicas - new.status.available_replicas
    budget = count_replicas(sets) + new.replicas - least - new_unavailable
    sizes: dict[str, int] = {}
    if budget <= 0:
        return sizes
    removed = 0
    for each in sets:
        unhealthy = min(budget - removed, each.replicas - each.status.available_replicas)
        if unhealthy > 0:
            sizes[each.metadata.name] = each.replicas - unhealthy
            removed += unhealthy
    available = new.status.available_replicas + sum(each.status.available_replicas for each in sets)
    surplus = available - least
    for each in sets:
        size = sizes.get(each.metadata.name, each.replicas)
        shrink = min(size, surplus)
        if shrink > 0:
            sizes[each.metadata.name] = size - shrink
            surplus -= shrink
    return sizes


def is_saturated(deployment: DeploymentView, new: ReplicaSetView | None) -> bool:
    """Return whether the newest ReplicaSet has all pods of the Deployment, available."""
    return (
        new is not None
        and new.replicas == deployment.replicas
        and desired_of(new) == deployment.replicas
        and new.status.available_replicas == deployment.replicas
    )


def plan_scaled_sizes(
    deployment: DeploymentView, new: ReplicaSetView | None, old: Iterable[ReplicaSetView]
) -> dict[str, int]:
    """Return the sizes of ReplicaSets after a Deployment was scaled, by name.

    During a rollout each ReplicaSet grows or shrinks in proportion to its size; the largest takes the rest.
    """
    old = list(old)
    active = filter_active([*old, *([new] if new is not None else [])])
    if len(active) <= 1:
        only = active[0] if active else new
        if only is None and old:
            only = sort_by_age(old)[-1]
        return {} if only is None else {only.metadata.name: deployment.replicas}
    if is_saturated(deployment, new):
        return {each.metadata.name: 0 for each in filter_active(old)}
    if not is_rolling(deployment):
        return {}
    allowed = deployment.replicas + max_surge(deployment) if deployment.replicas else 0
    to_add = allowed - count_replicas(active)
    # The newest first when growing, the oldest first when shrinking; names are unique.
    by_age = sort_by_age(active)
    ordered = sorted(by_age[::-1] if to_add > 0 else by_age, key=lambda each: -each.replicas)
    sizes = {each.metadata.name: each.replicas for each in ordered}
    added = 0
    for each in ordered:
        share = _share(deployment, each, to_add, added)
        sizes[each.metadata.name] += share
        added += share
    if to_add:
        largest = ordered[0].metadata.name
        sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes


def _share(deployment: DeploymentView, replica_set: ReplicaSetView, to_add: int, added: int) -> int:
    """Return how many pods one ReplicaSet gains (or loses) of those still to add."""
    left = to_add - added
    if not left:
        return 0
    if not deployment.replicas:
        share = -replica_set.replicas
    else:
        before = maximum_of(replica_set) or deployment.status.replicas
        if not before:
            return 0
        product = replica_set.replicas * (deployment.replicas + max_surge(deployment))
        share = (2 * product + before) // (2 * before) - replica_set.replicas  # rounded to the nearest
    return min(share, left) if to_add > 0 else max(share, left)
