"""Defaulting of workloads.

Works in place on canonical trees. Pod templates get the defaults of `pod.defaults.set_template_defaults`.
"""

from __future__ import annotations

from plimsoll.apiserver.validation.generic_kinds.kind_rules import default_if_empty, default_if_missing
from plimsoll.apiserver.validation.int_or_string import require_int_or_string
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.defaults import set_template_defaults
from plimsoll.apiserver.validation.pod.volume_defaults import set_claim_spec_defaults

_BACKOFF_LIMIT = 6
_NO_LIMIT = 2**31 - 1


def set_pod_template_defaults(tree: Tree) -> None:
    _set_template_defaults(tree)


def _set_template_defaults(holder: Tree) -> None:
    template = holder.setdefault("template", {})
    template.setdefault("metadata", {})
    set_template_defaults(template)


def _set_rolling_update_defaults(strategy: Tree, **defaults: object) -> None:
    """Default the strategy to RollingUpdate; the step sizes differ by kind."""
    default_if_empty(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        default_if_missing(strategy.setdefault("rollingUpdate", {}), **defaults)
    require_int_or_string(subtree(strategy, "rollingUpdate"), "maxUnavailable", "maxSurge")


# -- apps


def set_deployment_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _set_template_defaults(spec)
    _set_rolling_update_defaults(spec.setdefault("strategy", {}), maxUnavailable="25%", maxSurge="25%")
    default_if_missing(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)


def set_replica_set_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _set_template_defaults(spec)
    default_if_missing(spec, replicas=1)


def set_daemon_set_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _set_template_defaults(spec)
    _set_rolling_update_defaults(spec.setdefault("updateStrategy", {}), maxUnavailable=1, maxSurge=0)
    if "rollingUpdate" in spec["updateStrategy"]:
        default_if_missing(spec["updateStrategy"]["rollingUpdate"], maxUnavailable=0, maxSurge=0)
    default_if_missing(spec, revisionHistoryLimit=10)


def set_stateful_set_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _set_template_defaults(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        default_if_missing(strategy["rollingUpdate"], partition=0)
    require_int_or_string(subtree(strategy, "rollingUpdate"), "maxUnavailable")
    default_if_empty(spec, podManagementPolicy="OrderedReady")
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    default_if_empty(retention, whenDeleted="Retain", whenScaled="Retain")
    default_if_missing(spec, replicas=1, revisionHistoryLimit=10, serviceName="")
    for claim in spec.get("volumeClaimTemplates", ()):
        default_if_empty(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        set_claim_spec_defaults(claim.setdefault("spec", {}))
        default_if_empty(claim.setdefault("status", {}), phase="Pending")


def set_replication_controller_defaults(tree: Tree) -> None:
    """Default selector and labels to the labels of the pod template."""
    spec = tree.setdefault("spec", {})
    default_if_missing(spec, replicas=1)
    if "template" in spec:
        _set_template_defaults(spec)
        labels = subtree(spec, "template", "metadata").get("labels")
        if labels:
            default_if_empty(spec, selector=dict(labels))
            default_if_empty(tree.setdefault("metadata", {}), labels=dict(labels))


# -- batch


def set_job_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    default_if_missing(
        spec,
        parallelism=1,
        backoffLimit=_NO_LIMIT if "backoffLimitPerIndex" in spec else _BACKOFF_LIMIT,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
        manualSelector=False,
    )
    set_job_spec_defaults(spec)


def set_job_spec_defaults(spec: Tree) -> None:
    """Set the defaults that jobs and job templates have in common."""
    _set_template_defaults(spec)
    for rule in subtree(spec, "podFailurePolicy").get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            default_if_empty(pattern, status="True")


def set_cron_job_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    default_if_empty(spec, concurrencyPolicy="Allow")
    default_if_missing(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    set_job_spec_defaults(template.setdefault("spec", {}))
