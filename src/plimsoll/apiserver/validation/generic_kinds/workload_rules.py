"""Validation of workloads: selectors that match their templates and are immutable.

Covers what Deployments, ReplicaSets, DaemonSets, StatefulSets, ReplicationControllers and PodTemplates need
for a controller to find its pods and never adopt those of others. The status is not validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.meta import LabelSelector
from plimsoll.api.names import dns_label
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.equality import semantic_equal, trees_equal
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules
from plimsoll.apiserver.validation.generic_kinds.pod_template_rules import (
    SELECTOR_MISMATCH,
    validate_template,
)
from plimsoll.apiserver.validation.generic_kinds.workload_defaults import (
    set_daemon_set_defaults,
    set_deployment_defaults,
    set_pod_template_defaults,
    set_replica_set_defaults,
    set_replication_controller_defaults,
    set_stateful_set_defaults,
)
from plimsoll.apiserver.validation.int_or_string import (
    scaled_value,
    validate_not_more_than_100_percent,
    validate_not_negative,
    validate_positive_int_or_percent,
)
from plimsoll.apiserver.validation.label_selectors import is_valid, selector_matches, validate_selector
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import validate_format
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.volume_claims import validate_claim_spec
from plimsoll.apiserver.validation.write_context import WriteContext

_SPEC = FieldPath("spec")
_TEMPLATE = _SPEC.child("template")
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_MUTABLE_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


# -- shared rules


def _validate_selector(spec: View) -> FieldErrors:
    """Validate that a selector is set, is not empty, and matches the pod template."""
    path, selector = _SPEC.child("selector"), spec.selector
    if selector is None:
        yield required(path)
    else:
        yield from validate_selector(selector, path)
        if selector == LabelSelector():
            yield invalid(path, "{}", "must not be empty: it would select every pod")
        elif not is_valid(selector):
            yield invalid(path, None, "invalid label selector")
            return
    if selector is None or not selector_matches(selector, spec.template.metadata.labels):
        yield invalid(_TEMPLATE.child("metadata", "labels"), None, SELECTOR_MISMATCH)


def _validate_template(write: WriteContext[Any], template: View) -> FieldErrors:
    """Validate the pod template, whose pods must restart always."""
    old = None if write.is_create else subtree(write.old_tree, "spec", "template")
    yield from validate_template(subtree(write.tree, "spec", "template"), _TEMPLATE, write.gates, old)
    yield from validate_always_restarts(template, _TEMPLATE)


def validate_always_restarts(template: View, path: FieldPath) -> FieldErrors:
    spec, at = template.spec, path.child("spec")
    if spec.restart_policy != "Always":
        yield not_supported(at.child("restartPolicy"), spec.restart_policy, ("Always",))
    if spec.active_deadline_seconds is not None:
        yield forbidden(at.child("activeDeadlineSeconds"), "must not be set for pods that restart always")


def _validate_numbers(spec: View) -> FieldErrors:
    yield from validate_not_negative(spec.replicas, _SPEC.child("replicas"))
    yield from validate_not_negative(spec.min_ready_seconds, _SPEC.child("minReadySeconds"))


def _validate_selector_unchanged(write: WriteContext[Any]) -> FieldErrors:
    if not write.is_create and not semantic_equal(write.old.spec.selector, write.new.spec.selector):
        yield invalid(_SPEC.child("selector"), None, IMMUTABLE)


# -- ReplicaSet


def _validate_replica_set(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    yield from _validate_numbers(spec)
    yield from _validate_selector(spec)
    yield from _validate_template(write, spec.template)
    yield from _validate_selector_unchanged(write)


# -- Deployment


def _validate_deployment(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    yield from _validate_numbers(spec)
    yield from _validate_selector(spec)
    yield from _validate_template(write, spec.template)
    path, strategy = _SPEC.child("strategy"), spec.strategy
    if strategy.type == "Recreate":
        if strategy.rolling_update is not None:
            yield forbidden(path.child("rollingUpdate"), "may not be specified when `type` is 'Recreate'")
    elif strategy.type != "RollingUpdate":
        yield not_supported(path, strategy.type, ("Recreate", "RollingUpdate"))
    elif strategy.rolling_update is not None:
        yield from _validate_rolling_update(strategy.rolling_update, path.child("rollingUpdate"))
    yield from validate_not_negative(spec.revision_history_limit, _SPEC.child("revisionHistoryLimit"))
    deadline, at = spec.progress_deadline_seconds, _SPEC.child("progressDeadlineSeconds")
    yield from validate_not_negative(deadline, at)
    if deadline is not None and deadline <= spec.min_ready_seconds:
        yield invalid(at, deadline, "must be greater than minReadySeconds")
    yield from _validate_selector_unchanged(write)


def _validate_rolling_update(update: View, path: FieldPath) -> FieldErrors:
    """Validate that a rolling update can make progress."""
    unavailable, surge = update.max_unavailable, update.max_surge
    yield from validate_positive_int_or_percent(unavailable, path.child("maxUnavailable"))
    yield from validate_positive_int_or_percent(surge, path.child("maxSurge"))
    if not scaled_value(unavailable) and not scaled_value(surge):
        yield invalid(path.child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0")
    yield from validate_not_more_than_100_percent(unavailable, path.child("maxUnavailable"))


# -- DaemonSet


def _set_template_generation(write: WriteContext[View]) -> None:
    """Set the template generation, which old clients read from an annotation."""
    annotations = write.metadata_tree().setdefault("annotations", {})
    if write.is_create:
        given = annotations.get(_TEMPLATE_GENERATION, "")
        annotations[_TEMPLATE_GENERATION] = given if _is_positive_number(given) else "1"
        return
    before = subtree(write.old_tree, "metadata", "annotations").get(_TEMPLATE_GENERATION, "")
    count = int(before) if _is_positive_number(before) else 0
    count += not trees_equal(
        subtree(write.old_tree, "spec", "template"), subtree(write.tree, "spec", "template")
    )
    annotations[_TEMPLATE_GENERATION] = str(count)


def _is_positive_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0


def _validate_daemon_set(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    selector, path = spec.selector, _SPEC.child("selector")
    yield from validate_selector(selector, path)
    if selector is None or (
        is_valid(selector) and not selector_matches(selector, spec.template.metadata.labels)
    ):
        yield invalid(_TEMPLATE.child("metadata", "labels"), None, SELECTOR_MISMATCH)
    if selector == LabelSelector():
        yield invalid(path, "{}", "must not be empty: it would select every pod")
    yield from _validate_template(write, spec.template)
    yield from validate_not_negative(spec.min_ready_seconds, _SPEC.child("minReadySeconds"))
    yield from validate_not_negative(spec.revision_history_limit, _SPEC.child("revisionHistoryLimit"))
    path, strategy = _SPEC.child("updateStrategy"), spec.update_strategy
    if strategy.type not in ("RollingUpdate", "OnDelete"):
        yield not_supported(path, strategy.type, ("RollingUpdate", "OnDelete"))
    elif strategy.type == "RollingUpdate" and strategy.rolling_update is not None:
        yield from _validate_daemon_set_update(strategy.rolling_update, path.child("rollingUpdate"))
    yield from _validate_selector_unchanged(write)


def _validate_daemon_set_update(update: View, path: FieldPath) -> FieldErrors:
    """Validate that exactly one of maxSurge and maxUnavailable is nonzero."""
    for name, value in (("maxUnavailable", update.max_unavailable), ("maxSurge", update.max_surge)):
        yield from validate_positive_int_or_percent(value, path.child(name))
    for name, value in (("maxUnavailable", update.max_unavailable), ("maxSurge", update.max_surge)):
        yield from validate_not_more_than_100_percent(value, path.child(name))
    unavailable, surge = scaled_value(update.max_unavailable), scaled_value(update.max_surge)
    if unavailable and surge:
        detail = "may not be set when maxUnavailable is non-zero"
        yield invalid(path.child("maxSurge"), update.max_surge, detail)
    elif not unavailable and not surge:
        yield required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0")


# -- StatefulSet


def _validate_stateful_set(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    yield from _validate_stateful_policies(spec)
    if write.is_create:
        at = _SPEC.child("volumeClaimTemplates")
        for index, claim in enumerate(spec.volume_claim_templates):
            yield from validate_claim_spec(claim.spec, at.index(index).child("spec"))
        if spec.service_name:
            yield from validate_format(spec.service_name, _SPEC.child("serviceName"), dns_label)
    yield from _validate_numbers(spec)
    if spec.ordinals is not None:
        yield from validate_not_negative(spec.ordinals.start, _SPEC.child("ordinals", "start"))
    yield from _validate_selector(spec)
    old = None if write.is_create else _with_claim_volumes(subtree(write.old_tree, "spec"))
    yield from validate_template(
        _with_claim_volumes(subtree(write.tree, "spec")), _TEMPLATE, write.gates, old
    )
    yield from validate_always_restarts(spec.template, _TEMPLATE)
    if not write.is_create:
        now, before = ({**subtree(tree, "spec")} for tree in (write.tree, write.old_tree))
        for name in _MUTABLE_FIELDS:
            now.pop(name, None)
            before.pop(name, None)
        if not trees_equal(before, now):
            yield forbidden(
                _SPEC, f"only these fields of a StatefulSet can change: {', '.join(_MUTABLE_FIELDS)}"
            )


def _validate_stateful_policies(spec: View) -> FieldErrors:
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
        yield from validate_not_negative(update.partition, path.child("rollingUpdate", "partition"))
        if update.max_unavailable is not None:
            yield from validate_positive_int_or_percent(update.max_unavailable, at)
            if not scaled_value(update.max_unavailable):
                yield invalid(at, update.max_unavailable, "cannot be 0")
            yield from validate_not_more_than_100_percent(update.max_unavailable, at)
    retention = spec.persistent_volume_claim_retention_policy
    if retention is not None:
        at = _SPEC.child("persistentVolumeClaimRetentionPolicy")
        for name, value in (("whenDeleted", retention.when_deleted), ("whenScaled", retention.when_scaled)):
            if value not in ("Retain", "Delete"):
                yield not_supported(at.child(name), value, ("Retain", "Delete"))


def _with_claim_volumes(spec: Tree) -> Tree:
    """Return the template as its pods will be: with volumes for the claims and their own host names."""
    template, claims = subtree(spec, "template"), spec.get("volumeClaimTemplates", ())
    inner = {k: v for k, v in subtree(template, "spec").items() if k not in ("hostname", "subdomain")}
    names = [subtree(claim, "metadata").get("name", "") for claim in claims]
    volumes = {name: {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names}
    if volumes:
        kept = [volume for volume in inner.get("volumes", ()) if volume.get("name") not in volumes]
        inner["volumes"] = [*volumes.values(), *kept]
    return {**template, "spec": inner}


# -- ReplicationController and PodTemplate


def _validate_replication_controller(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    yield from validate_not_negative(spec.min_ready_seconds, _SPEC.child("minReadySeconds"))
    if not spec.selector:
        yield required(_SPEC.child("selector"))
    yield from validate_not_negative(spec.replicas, _SPEC.child("replicas"))
    if spec.template is None:
        yield required(_TEMPLATE)
        return
    if spec.selector and not spec.selector.items() <= spec.template.metadata.labels.items():
        yield invalid(_TEMPLATE.child("metadata", "labels"), None, SELECTOR_MISMATCH)
    yield from _validate_template(write, spec.template)


def _validate_pod_template(write: WriteContext[View]) -> FieldErrors:
    old = None if write.is_create else subtree(write.old_tree, "template")
    yield from validate_template(subtree(write.tree, "template"), FieldPath("template"), write.gates, old)


WORKLOAD_RULES: Mapping[str, KindRules] = {
    "Deployment": KindRules("apps.v1", set_deployment_defaults, validate=_validate_deployment),
    "ReplicaSet": KindRules(
        "apps.v1",
        set_replica_set_defaults,
        validate=_validate_replica_set,
    ),
    "DaemonSet": KindRules(
        "apps.v1",
        set_daemon_set_defaults,
        _set_template_generation,
        _validate_daemon_set,
    ),
    "StatefulSet": KindRules(
        "apps.v1",
        set_stateful_set_defaults,
        validate=_validate_stateful_set,
    ),
    "ReplicationController": KindRules(
        "core.v1",
        set_replication_controller_defaults,
        validate=_validate_replication_controller,
    ),
    "PodTemplate": KindRules("core.v1", set_pod_template_defaults, validate=_validate_pod_template),
}
