"""Validation of Job and CronJob, and the generated selector of jobs.

A job without manualSelector selects pods by its own uid, so that it never adopts pods of another. The status
is not validated.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.gates import Gates
from plimsoll.api.names import byte_length, dns_label, dns_subdomain
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.equality import trees_equal, trees_equal_as
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    not_supported,
    required,
    too_long,
)
from plimsoll.apiserver.validation.generic_kinds.cron_schedule import validate_schedule, validate_time_zone
from plimsoll.apiserver.validation.generic_kinds.job_policy_rules import (
    validate_failure_policy,
    validate_success_policy,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules, default_if_empty
from plimsoll.apiserver.validation.generic_kinds.pod_template_rules import (
    SELECTOR_MISMATCH,
    validate_template,
)
from plimsoll.apiserver.validation.generic_kinds.workload_defaults import (
    set_cron_job_defaults,
    set_job_defaults,
)
from plimsoll.apiserver.validation.int_or_string import validate_not_negative
from plimsoll.apiserver.validation.label_selectors import is_valid, selector_matches, validate_selector
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import validate_format
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext

_TEMPLATE_VIEW = view_of("core.v1.PodTemplateSpec")

_SPEC = FieldPath("spec")
_PREFIX = "batch.kubernetes.io/"
_UID, _NAME = "controller-uid", "job-name"
_IMMUTABLE_FIELDS = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_CONCURRENCY_POLICIES = ("Allow", "Forbid", "Replace")
_REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")
_INDEXED_PARALLELISM_MAX = 100_000
_MANAGED_BY_MAX = 63


# -- Job


def _prepare_job(write: WriteContext[View]) -> None:
    """Generate the pod labels and the selector of a new job, unless manualSelector is set.

    A job without labels gets those of its pods.
    """
    spec, meta = write.tree["spec"], write.metadata_tree()
    if write.is_create and not spec["manualSelector"]:
        labels = spec["template"]["metadata"].setdefault("labels", {})
        for name, value in ((_NAME, meta.get("name", "")), (_UID, meta.get("uid", ""))):
            labels.setdefault(name, value)
            labels.setdefault(_PREFIX + name, value)
        selector = spec.setdefault("selector", {})
        selector.setdefault("matchLabels", {}).setdefault(_PREFIX + _UID, meta.get("uid", ""))
    default_if_empty(meta, labels=dict(spec["template"]["metadata"].get("labels", {})))
    if not meta["labels"]:
        del meta["labels"]


def _validate_job(write: WriteContext[View]) -> FieldErrors:
    job = write.new
    spec = job.spec
    if not spec.manual_selector:
        yield from _validate_generated(job)
    template, old = subtree(write.tree, "spec", "template"), None
    if not write.is_create:
        old = subtree(write.old_tree, "spec", "template")
    yield from _validate_spec(spec, template, _SPEC, write.gates, old)
    selector, path = spec.selector, _SPEC.child("selector")
    if selector is None:
        yield required(path)
    yield from validate_selector(selector, path)
    if selector is None or (
        is_valid(selector) and not selector_matches(selector, spec.template.metadata.labels)
    ):
        yield invalid(_SPEC.child("template", "metadata", "labels"), None, SELECTOR_MISMATCH)
    if spec.completion_mode == "Indexed" and spec.completions:
        longest = f"{job.metadata.name}-{spec.completions - 1}"
        if dns_label(longest):
            detail = f"cannot be the name of a job with indexes: its pods would be called up to {longest}"
            yield invalid(FieldPath("metadata").child("name"), job.metadata.name, detail)
    if not write.is_create:
        yield from _validate_job_update(write)


def _validate_generated(job: View) -> FieldErrors:
    """Validate that the generated labels and selector are not overridden."""
    if job.spec.selector is None:
        return
    labels, path = job.spec.template.metadata.labels, _SPEC.child("template", "metadata", "labels")
    wanted = {
        prefix + name: value
        for prefix in ("", _PREFIX)
        for name, value in ((_UID, job.metadata.uid), (_NAME, job.metadata.name))
    }
    for name, value in wanted.items():
        if name not in labels:
            yield required(path.key(name), f"must be {value!r}")
        elif labels[name] != value:
            yield invalid(path.key(name), labels[name], f"must be {value!r}")
    if is_valid(job.spec.selector) and not selector_matches(job.spec.selector, wanted):
        yield invalid(_SPEC.child("selector"), None, "`selector` not auto-generated")


def _validate_spec(
    spec: View, template: Tree, path: FieldPath, gates: Gates, old: Tree | None
) -> FieldErrors:
    """Validate what jobs and job templates have in common."""
    for name, value in (
        ("parallelism", spec.parallelism),
        ("completions", spec.completions),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index),
        ("maxFailedIndexes", spec.max_failed_indexes),
    ):
        yield from validate_not_negative(value, path.child(name))
    if spec.managed_by is not None:
        yield from _validate_manager(spec.managed_by, path.child("managedBy"))
    yield from _validate_indexes(spec, path)
    policy, allowed = (
        spec.pod_replacement_policy,
        _REPLACEMENT_POLICIES[: 1 if spec.pod_failure_policy else 2],
    )
    if spec.pod_failure_policy is not None:
        yield from validate_failure_policy(spec, path.child("podFailurePolicy"))
    if spec.success_policy is not None:
        yield from validate_success_policy(spec, path.child("successPolicy"))
    if policy is not None and policy not in allowed:
        yield not_supported(path.child("podReplacementPolicy"), policy, allowed)
    yield from validate_template(template, path.child("template"), gates, old)
    yield from _validate_restart_policy(spec.template, path.child("template", "spec", "restartPolicy"), spec)


def _validate_manager(name: str, path: FieldPath) -> FieldErrors:
    domain, _, rest = name.partition("/")
    if not domain or not rest:
        yield invalid(path, name, "must be a domain-prefixed path, such as acme.io/foo")
    else:
        yield from validate_format(domain, path, dns_subdomain)
    if byte_length(name) > _MANAGED_BY_MAX:
        yield too_long(path, _MANAGED_BY_MAX)


def _validate_indexes(spec: View, path: FieldPath) -> FieldErrors:
    mode, per_index, failed = spec.completion_mode, spec.backoff_limit_per_index, spec.max_failed_indexes
    if failed is not None and per_index is None:
        yield required(path.child("backoffLimitPerIndex"), "must be given when maxFailedIndexes is")
    if mode not in (None, "NonIndexed", "Indexed"):
        yield not_supported(path.child("completionMode"), mode, ("NonIndexed", "Indexed"))
    elif mode != "Indexed":
        for name, value in (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", failed)):
            if value is not None:
                yield invalid(path.child(name), value, "requires indexed completion mode")
    else:
        if spec.completions is None:
            yield required(path.child("completions"), "must be given when completion mode is Indexed")
        elif failed is not None and failed > spec.completions:
            yield invalid(path.child("maxFailedIndexes"), failed, "must not be greater than completions")
        if spec.parallelism is not None and spec.parallelism > _INDEXED_PARALLELISM_MAX:
            detail = f"must not be greater than {_INDEXED_PARALLELISM_MAX} when completion mode is Indexed"
            yield invalid(path.child("parallelism"), spec.parallelism, detail)


def _validate_restart_policy(template: View, path: FieldPath, spec: View) -> FieldErrors:
    """Validate that the pods of a job terminate."""
    policy = template.spec.restart_policy
    if policy in ("", "Always"):
        yield required(path, "must be OnFailure or Never")
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(path, policy, ("OnFailure", "Never"))
    elif policy != "Never" and spec.pod_failure_policy is not None:
        yield invalid(path, policy, "must be Never when podFailurePolicy is given")


def _validate_job_update(write: WriteContext[View]) -> FieldErrors:
    now, before = subtree(write.tree, "spec"), subtree(write.old_tree, "spec")
    if now.get("completions") != before.get("completions"):
        at = _SPEC.child("completions")
        if now.get("completionMode") != "Indexed":
            yield invalid(at, now.get("completions"), IMMUTABLE)
        elif now.get("completions") not in (None, now.get("parallelism")):
            yield invalid(at, now["completions"], "can only be changed together with spec.parallelism")
    for name in _IMMUTABLE_FIELDS:
        if not trees_equal(before.get(name), now.get(name)):
            yield invalid(_SPEC.child(name), None, IMMUTABLE)
    templates: tuple[Tree, ...] = (subtree(before, "template"), subtree(now, "template"))
    at = _SPEC.child("template")
    if before.get("suspend"):
        at = at.child("spec")
        started = "startTime" in subtree(write.old_tree, "status")
        templates = tuple(_without_mutable_fields(each, placement=not started) for each in templates)
    if not trees_equal_as(_TEMPLATE_VIEW, *templates):
        yield invalid(at, None, IMMUTABLE)


def _without_mutable_fields(template: Tree, *, placement: bool) -> Tree:
    """Return a template without the fields that may change while a job is suspended: resources and, at
    first, placement.
    """
    tree: Tree = copy_tree(template)
    spec = tree.setdefault("spec", {})
    for group in ("containers", "initContainers"):
        for container in spec.get(group, ()):
            container.pop("resources", None)
    if placement:
        for name in ("annotations", "labels"):
            subtree(tree, "metadata").pop(name, None)
        for name in ("nodeSelector", "tolerations", "schedulingGates"):
            spec.pop(name, None)
        subtree(spec, "affinity").pop("nodeAffinity", None)
        if not spec.get("affinity"):
            spec.pop("affinity", None)
    return tree


# -- CronJob


def _validate_cron_job(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    before = None if write.is_create else write.old.spec
    if not spec.schedule:
        yield required(_SPEC.child("schedule"))
    else:
        old = "" if before is None else before.schedule
        yield from validate_schedule(spec.schedule, spec.time_zone, _SPEC.child("schedule"), old=old)
    yield from validate_not_negative(spec.starting_deadline_seconds, _SPEC.child("startingDeadlineSeconds"))
    if before is None or before.time_zone != spec.time_zone:
        yield from validate_time_zone(spec.time_zone, _SPEC.child("timeZone"))
    if spec.concurrency_policy not in _CONCURRENCY_POLICIES:
        yield not_supported(_SPEC.child("concurrencyPolicy"), spec.concurrency_policy, _CONCURRENCY_POLICIES)
    path, inner = _SPEC.child("jobTemplate", "spec"), spec.job_template.spec
    template, stored = (_job_template(tree) for tree in (write.tree, write.old_tree))
    yield from _validate_spec(inner, template, path, write.gates, None if write.is_create else stored)
    if inner.selector is not None:
        yield invalid(path.child("selector"), None, "`selector` will be auto-generated")
    if inner.manual_selector:
        yield not_supported(path.child("manualSelector"), "true", ("nil", "false"))
    for name, limit in (
        ("successfulJobsHistoryLimit", spec.successful_jobs_history_limit),
        ("failedJobsHistoryLimit", spec.failed_jobs_history_limit),
    ):
        yield from validate_not_negative(limit, _SPEC.child(name))


def _job_template(tree: Tree) -> Tree:
    return subtree(tree, "spec", "jobTemplate", "spec", "template")


JOB_RULES: Mapping[str, KindRules] = {
    "Job": KindRules("batch.v1", set_job_defaults, _prepare_job, _validate_job),
    "CronJob": KindRules("batch.v1", set_cron_job_defaults, validate=_validate_cron_job),
}
