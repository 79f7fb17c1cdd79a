"""What is filled into workloads where their authors said nothing.

Works on canonical trees and fills in place. The templates inside get what every pod template gets
(`pod_defaults.fill_template`).
"""

from __future__ import annotations

from plimsoll.apiserver.validation.generic_kinds.kind_rules import fill_empty, fill_missing
from plimsoll.apiserver.validation.int_or_string import expect_int_or_string
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.pod.defaults import fill_template
from plimsoll.apiserver.validation.pod.volume_defaults import fill_claim_spec

_BACKOFF_LIMIT = 6
_NO_LIMIT = 2**31 - 1


def fill_pod_template(tree: Tree) -> None:
    _fill_template(tree)


def _fill_template(holder: Tree) -> None:
    template = holder.setdefault("template", {})
    template.setdefault("metadata", {})
    fill_template(template)


def _fill_rolling_update(strategy: Tree, **defaults: object) -> None:
    """Replacing pods bit by bit is the usual way; how many at a time differs by kind."""
    fill_empty(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_missing(strategy.setdefault("rollingUpdate", {}), **defaults)
    expect_int_or_string(part(strategy, "rollingUpdate"), "maxUnavailable", "maxSurge")


# -- apps


def fill_deployment(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _fill_template(spec)
    _fill_rolling_update(spec.setdefault("strategy", {}), maxUnavailable="25%", maxSurge="25%")
    fill_missing(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)


def fill_replica_set(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _fill_template(spec)
    fill_missing(spec, replicas=1)


def fill_daemon_set(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _fill_template(spec)
    _fill_rolling_update(spec.setdefault("updateStrategy", {}), maxUnavailable=1, maxSurge=0)
    if "rollingUpdate" in spec["updateStrategy"]:
        fill_missing(spec["updateStrategy"]["rollingUpdate"], maxUnavailable=0, maxSurge=0)
    fill_missing(spec, revisionHistoryLimit=10)


def fill_stateful_set(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    _fill_template(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        fill_missing(strategy["rollingUpdate"], partition=0)
    expect_int_or_string(part(strategy, "rollingUpdate"), "maxUnavailable")
    fill_empty(spec, podManagementPolicy="OrderedReady")
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    fill_empty(retention, whenDeleted="Retain", whenScaled="Retain")
    fill_missing(spec, replicas=1, revisionHistoryLimit=10, serviceName="")
    for claim in spec.get("volumeClaimTemplates", ()):
        fill_empty(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        fill_claim_spec(claim.setdefault("spec", {}))
        fill_empty(claim.setdefault("status", {}), phase="Pending")


def fill_replication_controller(tree: Tree) -> None:
    """Who says nothing of labels means those of the pods."""
    spec = tree.setdefault("spec", {})
    fill_missing(spec, replicas=1)
    if "template" in spec:
        _fill_template(spec)
        labels = part(spec, "template", "metadata").get("labels")
        if labels:
            fill_empty(spec, selector=dict(labels))
            fill_empty(tree.setdefault("metadata", {}), labels=dict(labels))


# -- batch


def fill_job(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    fill_missing(
        spec,
        parallelism=1,
        backoffLimit=_NO_LIMIT if "backoffLimitPerIndex" in spec else _BACKOFF_LIMIT,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
        manualSelector=False,
    )
    fill_job_spec(spec)


def fill_job_spec(spec: Tree) -> None:
    """What jobs share with the templates of jobs, whose own defaults wait for the job."""
    _fill_template(spec)
    for rule in part(spec, "podFailurePolicy").get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            fill_empty(pattern, status="True")


def fill_cron_job(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    fill_empty(spec, concurrencyPolicy="Allow")
    fill_missing(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    fill_job_spec(template.setdefault("spec", {}))
