"""Defaults of workloads that depend on other fields.

Works in place on canonical trees that have the defaults of the schema.
"""

from __future__ import annotations

from plimsoll.apiserver.validation.generic_kinds.kind_rules import default_if_empty, default_if_missing
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.defaults import set_template_defaults

_BACKOFF_LIMIT = 6
_NO_LIMIT = 2**31 - 1


def set_pod_template_defaults(tree: Tree) -> None:
    set_template_defaults(tree["template"])


def _set_rolling_update_defaults(strategy: Tree, **defaults: object) -> None:
    """Set the step sizes of a rolling update, which differ by kind."""
    if strategy["type"] == "RollingUpdate":
        default_if_missing(strategy.setdefault("rollingUpdate", {}), **defaults)


# -- apps


def set_deployment_defaults(tree: Tree) -> None:
    spec = tree["spec"]
    set_template_defaults(spec["template"])
    _set_rolling_update_defaults(spec["strategy"], maxUnavailable="25%", maxSurge="25%")


def set_replica_set_defaults(tree: Tree) -> None:
    set_template_defaults(tree["spec"]["template"])


def set_daemon_set_defaults(tree: Tree) -> None:
    spec = tree["spec"]
    set_template_defaults(spec["template"])
    _set_rolling_update_defaults(spec["updateStrategy"], maxUnavailable=1, maxSurge=0)
    if "rollingUpdate" in spec["updateStrategy"]:
        default_if_missing(spec["updateStrategy"]["rollingUpdate"], maxUnavailable=0, maxSurge=0)


def set_stateful_set_defaults(tree: Tree) -> None:
    spec = tree["spec"]
    set_template_defaults(spec["template"])
    strategy = spec["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        default_if_missing(strategy["rollingUpdate"], partition=0)
    for claim in spec.get("volumeClaimTemplates", ()):
        default_if_empty(claim, apiVersion="v1", kind="PersistentVolumeClaim")


def set_replication_controller_defaults(tree: Tree) -> None:
    """Default selector and labels to the labels of the pod template."""
    spec = tree["spec"]
    if "template" in spec:
        set_template_defaults(spec["template"])
        labels = subtree(spec, "template", "metadata").get("labels")
        if labels:
            default_if_empty(spec, selector=dict(labels))
            default_if_empty(tree.setdefault("metadata", {}), labels=dict(labels))


# -- batch


def set_job_defaults(tree: Tree) -> None:
    spec = tree["spec"]
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
    set_template_defaults(spec["template"])


def set_cron_job_defaults(tree: Tree) -> None:
    """Set the defaults of the pod template; those of a job are set in each job."""
    set_template_defaults(tree["spec"]["jobTemplate"]["spec"]["template"])
