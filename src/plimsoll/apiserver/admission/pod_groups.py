"""Admission plugins of PodGroups: Priority, PodGroupProtection and PodGroupWorkloadExists.

Pure functions like those of `plugins.py`. They run when a PodGroup is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from plimsoll.api.gates import Gates
from plimsoll.api.scheduling import POD_GROUP_FINALIZER
from plimsoll.apiserver.admission.plugins import AdmissionResult, find_priority
from plimsoll.apiserver.json_values import get_path, items
from plimsoll.apiserver.validation.object_trees import Tree

FindWorkload: TypeAlias = "Callable[[str], Tree | None]"


def admit_pod_group(
    group: Tree, gates: Gates, classes: Iterable[Tree], find_workload: FindWorkload
) -> AdmissionResult:
    """Run all plugins for a new PodGroup, in the order of Kubernetes."""
    if not isinstance(group.get("spec"), dict) or not gates.enabled("GenericWorkload"):
        return AdmissionResult(group)
    if gates.enabled("WorkloadAwarePreemption"):
        admitted = _admit_priority(group, classes)
        if admitted.refusal:
            return admitted
        group = admitted.tree
    group = _protect(group)
    return AdmissionResult(group, _check_workload(group, find_workload))


def _admit_priority(group: Tree, classes: Iterable[Tree]) -> AdmissionResult:
    spec = group["spec"]
    name = spec.get("priorityClassName") or ""
    found = find_priority(name, classes)
    if found is None:
        return AdmissionResult(group, f"no PriorityClass with name {name} was found")
    name, value, _ = found
    given = spec.get("priority")
    if given is not None and given != value:
        text = (
            f"priority set in the pod group ({given}) must match the priority computed ({value}) "
            "based on the priority class set in the spec"
        )
        return AdmissionResult(group, text)
    fields = {"priority": value, **({"priorityClassName": name} if name else {})}
    return AdmissionResult({**group, "spec": {**spec, **fields}})


def _protect(group: Tree) -> Tree:
    """Add the finalizer that the controller removes once no pod refers to the group."""
    metadata = group["metadata"]
    given = metadata.get("finalizers") or []
    if not isinstance(given, list) or POD_GROUP_FINALIZER in given:
        return group
    return {**group, "metadata": {**metadata, "finalizers": [*given, POD_GROUP_FINALIZER]}}


def _check_workload(group: Tree, find_workload: FindWorkload) -> str:
    """Return the reason why the template that a group refers to cannot be used, or ""."""
    reference: Any = get_path(group, ("spec", "podGroupTemplateRef", "workload"))
    if not isinstance(reference, dict):
        return ""
    name, template = reference.get("workloadName") or "", reference.get("podGroupTemplateName") or ""
    workload = find_workload(name) if isinstance(name, str) else None
    if workload is None:
        return f'PodGroup rejected: Workload "{name}" not found'
    if get_path(workload, ("metadata", "deletionTimestamp")):
        return f'PodGroup rejected: Workload "{name}" is being deleted'
    templates = items(get_path(workload, ("spec", "podGroupTemplates")))
    if any(each.get("name") == template for each in templates):
        return ""
    return f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{name}"'
