"""The rules of workloads that keep pods running: selectors that fit their templates and stay as they are.

Owns what Deployments, ReplicaSets, DaemonSets, StatefulSets, ReplicationControllers and PodTemplates need for
a controller to find its pods again and never take those of others. Of the status nothing is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.meta import LabelSelector
from plimsoll.api.names import dns_label
from plimsoll.apiserver.validation.equality import same, same_tree
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import Rules
from plimsoll.apiserver.validation.generic_kinds.pod_template_rules import MISMATCH, check_template, selects
from plimsoll.apiserver.validation.generic_kinds.workload_defaults import (
    fill_daemon_set,
    fill_deployment,
    fill_pod_template,
    fill_replica_set,
    fill_replication_controller,
    fill_stateful_set,
)
from plimsoll.apiserver.validation.generic_kinds.workload_view import (
    AppSpec,
    DaemonSet,
    Deployment,
    PodTemplate,
    PodTemplateSpec,
    ReplicaSet,
    ReplicationController,
    RollingUpdate,
    StatefulSet,
    StatefulSetSpec,
)
from plimsoll.apiserver.validation.int_or_string import (
    check_count_or_percentage,
    check_not_above_all,
    check_not_negative,
    number_in,
)
from plimsoll.apiserver.validation.label_selectors import check_selector, is_fine
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import check_format
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.pod.volume_claims import check_claim_spec
from plimsoll.apiserver.validation.write_context import Job

_SPEC = Path("spec")
_TEMPLATE = _SPEC.child("template")
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_MAY_CHANGE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


# -- what they share


def _check_selector(spec: AppSpec) -> Problems:
    """A selector is given, asks for something, and picks the pods of the template."""
    path, selector = _SPEC.child("selector"), spec.selector
    if selector is None:
        yield required(path)
    else:
        yield from check_selector(selector, path)
        if selector == LabelSelector():
            yield invalid(path, "{}", "an empty selector would take every pod; it must ask for something")
        elif not is_fine(selector):
            yield invalid(path, None, "invalid label selector")
            return
    if selector is None or not selects(selector, spec.template.metadata.labels):
        yield invalid(_TEMPLATE.child("metadata", "labels"), None, MISMATCH)


def _check_template(job: Job[Any], template: PodTemplateSpec) -> Problems:
    """The template, whose pods are kept running for good."""
    old = None if job.creates else part(job.old_tree, "spec", "template")
    yield from check_template(part(job.tree, "spec", "template"), _TEMPLATE, job.gates, old)
    yield from check_runs_forever(template, _TEMPLATE)


def check_runs_forever(template: PodTemplateSpec, path: Path) -> Problems:
    spec, at = template.spec, path.child("spec")
    if spec.restart_policy != "Always":
        yield not_supported(at.child("restartPolicy"), spec.restart_policy, ("Always",))
    if spec.active_deadline_seconds is not None:
        yield forbidden(at.child("activeDeadlineSeconds"), "pods that are kept running have no deadline")


def _check_numbers(spec: AppSpec) -> Problems:
    yield from check_not_negative(spec.replicas, _SPEC.child("replicas"))
    yield from check_not_negative(spec.min_ready_seconds, _SPEC.child("minReadySeconds"))


def _check_same_selector(job: Job[Any]) -> Problems:
    if not job.creates and not same(job.old.spec.selector, job.decode().spec.selector):
        yield invalid(_SPEC.child("selector"), None, IMMUTABLE)


# -- ReplicaSet


def _check_replica_set(job: Job[ReplicaSet]) -> Problems:
    spec = job.decode().spec
    yield from _check_numbers(spec)
    yield from _check_selector(spec)
    yield from _check_template(job, spec.template)
    yield from _check_same_selector(job)


# -- Deployment


def _check_deployment(job: Job[Deployment]) -> Problems:
    spec = job.decode().spec
    yield from _check_numbers(spec)
    yield from _check_selector(spec)
    yield from _check_template(job, spec.template)
    path, strategy = _SPEC.child("strategy"), spec.strategy
    if strategy.type == "Recreate":
        if strategy.rolling_update is not None:
            yield forbidden(path.child("rollingUpdate"), "may not be specified when `type` is 'Recreate'")
    elif strategy.type != "RollingUpdate":
        yield not_supported(path, strategy.type, ("Recreate", "RollingUpdate"))
    elif strategy.rolling_update is not None:
        yield from _check_step(strategy.rolling_update, path.child("rollingUpdate"))
    yield from check_not_negative(spec.revision_history_limit, _SPEC.child("revisionHistoryLimit"))
    deadline, at = spec.progress_deadline_seconds, _SPEC.child("progressDeadlineSeconds")
    yield from check_not_negative(deadline, at)
    if deadline is not None and deadline <= spec.min_ready_seconds:
        yield invalid(at, deadline, "must be greater than minReadySeconds")
    yield from _check_same_selector(job)


def _check_step(update: RollingUpdate, path: Path) -> Problems:
    """Something must be allowed to move, or nothing ever will."""
    away, surge = update.max_unavailable, update.max_surge
    yield from check_count_or_percentage(away, path.child("maxUnavailable"))
    yield from check_count_or_percentage(surge, path.child("maxSurge"))
    if not number_in(away) and not number_in(surge):
        yield invalid(path.child("maxUnavailable"), away, "may not be 0 when `maxSurge` is 0")
    yield from check_not_above_all(away, path.child("maxUnavailable"))


# -- DaemonSet


def _count_template(job: Job[DaemonSet]) -> None:
    """The generation of the template, which old clients read from an annotation."""
    annotations = job.meta_tree().setdefault("annotations", {})
    if job.creates:
        given = annotations.get(_TEMPLATE_GENERATION, "")
        annotations[_TEMPLATE_GENERATION] = given if _is_positive(given) else "1"
        return
    before = part(job.old_tree, "metadata", "annotations").get(_TEMPLATE_GENERATION, "")
    count = int(before) if _is_positive(before) else 0
    count += not same_tree(part(job.old_tree, "spec", "template"), part(job.tree, "spec", "template"))
    annotations[_TEMPLATE_GENERATION] = str(count)


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0


def _check_daemon_set(job: Job[DaemonSet]) -> Problems:
    spec = job.decode().spec
    selector, path = spec.selector, _SPEC.child("selector")
    yield from check_selector(selector, path)
    if selector is None or (is_fine(selector) and not selects(selector, spec.template.metadata.labels)):
        yield invalid(_TEMPLATE.child("metadata", "labels"), None, MISMATCH)
    if selector == LabelSelector():
        yield invalid(path, "{}", "an empty selector would take every pod; it must ask for something")
    yield from _check_template(job, spec.template)
    yield from check_not_negative(spec.min_ready_seconds, _SPEC.child("minReadySeconds"))
    yield from check_not_negative(spec.revision_history_limit, _SPEC.child("revisionHistoryLimit"))
    path, strategy = _SPEC.child("updateStrategy"), spec.update_strategy
    if strategy.type not in ("RollingUpdate", "OnDelete"):
        yield not_supported(path, strategy.type, ("RollingUpdate", "OnDelete"))
    elif strategy.type == "RollingUpdate" and strategy.rolling_update is not None:
        yield from _check_daemon_step(strategy.rolling_update, path.child("rollingUpdate"))
    yield from _check_same_selector(job)


def _check_daemon_step(update: RollingUpdate, path: Path) -> Problems:
    """A node has room for one more pod, or does without one for a moment: one of the two."""
    for name, value in (("maxUnavailable", update.max_unavailable), ("maxSurge", update.max_surge)):
        yield from check_count_or_percentage(value, path.child(name))
    for name, value in (("maxUnavailable", update.max_unavailable), ("maxSurge", update.max_surge)):
        yield from check_not_above_all(value, path.child(name))
    away, surge = number_in(update.max_unavailable), number_in(update.max_surge)
    if away and surge:
        detail = "may not be set when maxUnavailable is non-zero"
        yield invalid(path.child("maxSurge"), update.max_surge, detail)
    elif not away and not surge:
        yield required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0")


# -- StatefulSet


def _check_stateful_set(job: Job[StatefulSet]) -> Problems:
    spec = job.decode().spec
    yield from _check_stateful_policies(spec)
    if job.creates:
        at = _SPEC.child("volumeClaimTemplates")
        for place, claim in enumerate(spec.volume_claim_templates):
            yield from check_claim_spec(claim.spec, at.index(place).child("spec"))
        if spec.service_name:
            yield from check_format(spec.service_name, _SPEC.child("serviceName"), dns_label)
    yield from _check_numbers(spec)
    if spec.ordinals is not None:
        yield from check_not_negative(spec.ordinals.start, _SPEC.child("ordinals", "start"))
    yield from _check_selector(spec)
    old = None if job.creates else _with_claims(part(job.old_tree, "spec"))
    yield from check_template(_with_claims(part(job.tree, "spec")), _TEMPLATE, job.gates, old)
    yield from check_runs_forever(spec.template, _TEMPLATE)
    if not job.creates:
        now, before = ({**part(tree, "spec")} for tree in (job.tree, job.old_tree))
        for name in _MAY_CHANGE:
            now.pop(name, None)
            before.pop(name, None)
        if not same_tree(before, now):
            yield forbidden(_SPEC, f"of a StatefulSet only these can change: {', '.join(_MAY_CHANGE)}")


def _check_stateful_policies(spec: StatefulSetSpec) -> Problems:
    if spec.pod_management_policy not in ("OrderedReady", "Parallel"):
        at, detail = _SPEC.child("podManagementPolicy"), "must be 'OrderedReady' or 'Parallel'"
        yield invalid(at, spec.pod_management_policy, detail)
    path, update = _SPEC.child("updateStrategy"), spec.update_strategy.rolling_update
    if spec.update_strategy.type == "OnDelete":
        if update is not None:
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(path.child("rollingUpdate"), None, detail)
    elif spec.update_strategy.type != "RollingUpdate":
        yield invalid(path, spec.update_strategy.type, "must be 'RollingUpdate' or 'OnDelete'")
    elif update is not None:
        at = path.child("rollingUpdate", "maxUnavailable")
        yield from check_not_negative(update.partition, path.child("rollingUpdate", "partition"))
        if update.max_unavailable is not None:
            yield from check_count_or_percentage(update.max_unavailable, at)
            if not number_in(update.max_unavailable):
                yield invalid(at, update.max_unavailable, "cannot be 0")
            yield from check_not_above_all(update.max_unavailable, at)
    retention = spec.persistent_volume_claim_retention_policy
    if retention is not None:
        at = _SPEC.child("persistentVolumeClaimRetentionPolicy")
        for name, value in (("whenDeleted", retention.when_deleted), ("whenScaled", retention.when_scaled)):
            if value not in ("Retain", "Delete"):
                yield not_supported(at.child(name), value, ("Retain", "Delete"))


def _with_claims(spec: Tree) -> Tree:
    """The template as its pods will be: with volumes for the claims, and names of their own."""
    template, claims = part(spec, "template"), spec.get("volumeClaimTemplates", ())
    inner = {k: v for k, v in part(template, "spec").items() if k not in ("hostname", "subdomain")}
    names = [part(claim, "metadata").get("name", "") for claim in claims]
    volumes = {name: {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names}
    if volumes:
        kept = [volume for volume in inner.get("volumes", ()) if volume.get("name") not in volumes]
        inner["volumes"] = [*volumes.values(), *kept]
    return {**template, "spec": inner}


# -- ReplicationController and PodTemplate


def _check_replication_controller(job: Job[ReplicationController]) -> Problems:
    spec = job.decode().spec
    yield from check_not_negative(spec.min_ready_seconds, _SPEC.child("minReadySeconds"))
    if not spec.selector:
        yield required(_SPEC.child("selector"))
    yield from check_not_negative(spec.replicas, _SPEC.child("replicas"))
    if spec.template is None:
        yield required(_TEMPLATE)
        return
    if spec.selector and not spec.selector.items() <= spec.template.metadata.labels.items():
        yield invalid(_TEMPLATE.child("metadata", "labels"), None, MISMATCH)
    yield from _check_template(job, spec.template)


def _check_pod_template(job: Job[PodTemplate]) -> Problems:
    old = None if job.creates else part(job.old_tree, "template")
    yield from check_template(part(job.tree, "template"), Path("template"), job.gates, old)


_NO_REPLICAS = {"replicas": 0}
_NO_DAEMONS = dict.fromkeys(
    ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
)

WORKLOAD_RULES: Mapping[str, Rules] = {
    "Deployment": Rules(Deployment, fill_deployment, check=_check_deployment),
    "ReplicaSet": Rules(ReplicaSet, fill_replica_set, check=_check_replica_set, first_status=_NO_REPLICAS),
    "DaemonSet": Rules(
        DaemonSet, fill_daemon_set, _count_template, _check_daemon_set, first_status=_NO_DAEMONS
    ),
    "StatefulSet": Rules(
        StatefulSet,
        fill_stateful_set,
        check=_check_stateful_set,
        first_status={"replicas": 0, "availableReplicas": 0},
    ),
    "ReplicationController": Rules(
        ReplicationController,
        fill_replication_controller,
        check=_check_replication_controller,
        first_status=_NO_REPLICAS,
    ),
    "PodTemplate": Rules(PodTemplate, fill_pod_template, check=_check_pod_template),
}
