"""`explain_workload`: the pods of a workload, those of one cause once, or why it has none.

A missing pod is created in memory from the template, with the admission rules of `whatif --add`: priorities,
LimitRanges and quotas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.controllers.workloads.pod_states import is_ready
from plimsoll.errors import InputError
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.tools.cluster_state import ClusterState, Source
from plimsoll.tools.cluster_state.related import WORKLOADS, Tree, section_of
from plimsoll.tools.cluster_state.related_query import read_related
from plimsoll.tools.colors import Paint
from plimsoll.tools.explain.events import describe_events
from plimsoll.tools.explain.pending import summarize_pending
from plimsoll.tools.explain.pods import explain_pod
from plimsoll.tools.explain.text import pluralize
from plimsoll.tools.explain.verdict import ExplanationSection, PodExplanation, fold
from plimsoll.tools.fixes.similar import near_text
from plimsoll.tools.whatif import Whatif
from plimsoll.tools.whatif.manifests import read_manifests
from plimsoll.tools.workload_pods import find_pods, subjects_of

#: Causes of pending pods that are explained.
MAX_CAUSES = 3
#: Conditions of workloads with reasons for missing pods.
_FAILURES = ("ReplicaFailure", "Failed", "Suspended", "Complete")


@dataclass(frozen=True, slots=True)
class WorkloadExplanation:
    """A workload, why pods are missing, and explanations of pending pods, one for each cause."""

    kind: str
    subject: str  #: namespace/name
    summary: str
    is_pending: bool
    missing: tuple[str, ...] = ()  #: reasons why it has fewer pods than it should
    pods: tuple[tuple[int, PodExplanation], ...] = ()  #: with the number of pods of the cause
    sections: tuple[ExplanationSection, ...] = field(default=())

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield paint.bold(f"{self.kind} {self.subject}")
        yield from fold(str, self.summary, "", paint.width)
        for reason in self.missing:
            yield from fold(paint.yellow, reason, "no pod: ", paint.width)
        for section in self.sections:
            yield from section.lines(paint)
        for count, pod in self.pods:
            yield ""
            if count > 1:
                yield paint.dim(f"{count} pods are pending for this reason, such as:")
            yield from pod.lines(paint, wide=wide)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "subject": self.subject,
            "summary": self.summary,
            "missing": list(self.missing),
            "sections": [section.as_json() for section in self.sections],
            "pods": [{"count": count, **pod.as_json()} for count, pod in self.pods],
        }


def explain_workload(
    cluster_state: ClusterState,
    kind: str,
    name: str,
    namespace: str = "",
    settings: SchedulerProfile | ProfileSet | None = None,
) -> WorkloadExplanation:
    """Explain the pods of a workload. Raise InputError if neither it nor pods of it exist."""
    namespace = namespace or _find_namespace(cluster_state, kind, name)
    tree = cluster_state.objects.related.find(kind, namespace, name)
    pods = [pod for pod in find_pods(cluster_state.objects, kind, namespace, name) if not pod.has_terminated]
    if tree is None and not pods:
        known = [each for _, each in cluster_state.objects.related.names(kind)]
        raise InputError(f"{kind} {namespace}/{name} not found{near_text(name, known)}")
    pending = [pod for pod in pods if not pod.spec.node_name]
    by_cause: dict[str, list[Pod]] = {}
    for pod, why in summarize_pending(cluster_state, settings=settings, pods=pending):
        by_cause.setdefault(why, []).append(pod)
    causes = sorted(by_cause.values(), key=len, reverse=True)
    wanted = None if tree is None else _wanted(kind, tree)
    missing = () if tree is None else _explain_missing(cluster_state, kind, tree, wanted, pods)
    parts = [] if wanted is None else [f"{pluralize(wanted, 'pod')} wanted"]
    parts += [f"{len(pods)} exist", f"{len(pending)} pending"]
    if len(causes) > MAX_CAUSES:
        parts.append(f"for {len(causes)} reasons, of which {MAX_CAUSES} follow")
    return WorkloadExplanation(
        kind,
        f"{namespace}/{name}",
        ", ".join(parts),
        bool(pending or missing),
        missing,
        tuple(
            (len(each), explain_pod(cluster_state, each[0], settings=settings))
            for each in causes[:MAX_CAUSES]
        ),
        tuple(
            section
            for each_kind, each in subjects_of(cluster_state.objects, kind, namespace, name)
            for section in describe_events(cluster_state, each_kind, namespace, each)
        ),
    )


def read_events(source: Source, cluster_state: ClusterState, kind: str, namespace: str, name: str) -> None:
    """Read events about a pod, or about a workload and its pods, and the workload, of a running cluster."""
    if kind == "pod":
        pods = [pod for pod in cluster_state.pods if pod.metadata.name == name]
        namespace = namespace or next((pod.metadata.namespace for pod in pods), "")
        read_related(source, cluster_state.objects, namespace, [name])
    elif kind in WORKLOADS:
        config = source.config
        namespace = namespace or (config.namespace if config is not None else "") or "default"
        subjects = [each for _, each in subjects_of(cluster_state.objects, kind, namespace, name)]
        pending = [
            pod for pod in find_pods(cluster_state.objects, kind, namespace, name) if not pod.spec.node_name
        ]
        names = (*subjects, *(pod.metadata.name for pod in pending[:MAX_CAUSES]))
        read_related(source, cluster_state.objects, namespace, names, kind)


def _find_namespace(cluster_state: ClusterState, kind: str, name: str) -> str:
    """Return the only namespace with a workload of this name."""
    names = [namespace for namespace, each in cluster_state.objects.related.names(kind) if each == name]
    if not names:
        names = sorted({pod.metadata.namespace for pod in find_pods(cluster_state.objects, kind, "", name)})
    if len(names) > 1:
        raise InputError(
            f"{kind} {name} exists in several namespaces: {', '.join(names)}; select one with -n"
        )
    return names[0] if names else "default"


# -- pods that do not exist


def _wanted(kind: str, tree: Tree) -> int | None:
    """Return how many pods a workload should have; None if that depends on nodes or time."""
    spec, status = section_of(tree, "spec"), section_of(tree, "status")
    if kind in ("DaemonSet", "CronJob"):
        return _number(status, "desiredNumberScheduled")
    if kind != "Job":
        return _number(spec, "replicas", 1)
    if spec.get("suspend") or _condition(tree, "Complete") or _condition(tree, "Failed"):
        return 0
    parallelism = _number(spec, "parallelism", 1) or 0
    completions = _number(spec, "completions", parallelism + (_number(status, "succeeded") or 0)) or 0
    return max(min(parallelism, completions - (_number(status, "succeeded") or 0)), 0)


def _number(tree: Tree, field: str, default: int | None = None) -> int | None:
    value = tree.get(field)
    return value if isinstance(value, int) else default


def _condition(tree: Tree, kind: str) -> str | None:
    """Return the message of a condition that is true; None if there is none."""
    conditions = section_of(tree, "status").get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and each.get("type") == kind and each.get("status") == "True":
            return str(each.get("message") or each.get("reason") or kind)
    return None


def _explain_missing(
    cluster_state: ClusterState, kind: str, tree: Tree, wanted: int | None, pods: Sequence[Pod]
) -> tuple[str, ...]:
    """Return why a workload has fewer pods than it should, or should have none."""
    spec = section_of(tree, "spec")
    reasons = []
    if spec.get("suspend"):
        reasons.append("spec.suspend is true")
    if spec.get("paused"):
        reasons.append("spec.paused is true: changes of the template are not rolled out")
    if kind != "Job" and spec.get("replicas") == 0:
        reasons.append("spec.replicas is 0")
    if kind == "DaemonSet" and wanted == 0:
        reasons.append("no node matches its node selector, affinity and tolerations")
    is_short = wanted is None or len(pods) < wanted
    if not is_short and not (wanted == 0 and not pods):
        return ()
    for each in _FAILURES:
        message = _condition(tree, each)
        if message and not (each == "Suspended" and reasons):
            reasons.append(f"condition {each}: {message}")
    if is_short and not spec.get("suspend"):
        refusal = _try_creation(cluster_state, kind, tree)
        if refusal and not any(refusal in each for each in reasons):
            reasons.append(f"the API would refuse to create it: {refusal}")
    if not reasons and is_short and kind != "CronJob":
        earlier = [pod.metadata.full_name for pod in pods if not is_ready(pod)]
        if kind == "StatefulSet" and spec.get("podManagementPolicy") != "Parallel" and earlier:
            reasons.append(f"it is created when pod {earlier[0]} is ready (podManagementPolicy OrderedReady)")
        else:
            reasons.append(
                "the API would accept it now: the controller (kube-controller-manager) has not created it yet"
            )
    return tuple(reasons)


def _try_creation(cluster_state: ClusterState, kind: str, tree: Tree) -> str:
    """Create one pod from the template in memory; return why the API refuses it or its claims."""
    metadata = tree["metadata"]
    name = f"{metadata['name']}-next"
    sample = {**tree, "kind": kind, "apiVersion": WORKLOADS[kind].api_version}
    if kind == "DaemonSet":
        sample["kind"], sample["spec"] = "ReplicaSet", {"template": section_of(tree, "spec").get("template")}
    sample["metadata"] = {"name": name, "namespace": metadata.get("namespace") or "default"}
    try:
        pods = [each for each in read_manifests([sample], replicas=1).things if isinstance(each, Pod)]
        cluster = Whatif(cluster_state)
        cluster.add(*pods)
    except InputError as error:
        return str(error).partition(" is forbidden: ")[2] or str(error)
    refused = [each.why for each in cluster.refused] + list(cluster.cluster.claim_refusals.values())
    return next(iter(refused), "")
