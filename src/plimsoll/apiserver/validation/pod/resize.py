"""In-place resize of pods (docs/spec/api.md, end of "Pod").

Defines what the `/resize` subresource takes from the request (`keep_resources_only`) and which changes it
permits. As in Kubernetes 1.36.4, a container with claims cannot be resized, because its claims are left out
of the comparison, nor can a pod with claim charges. 1.37 lifts both restrictions: pods charged in its form
are resized within the pod-level budget, claims included (KEP-5517, "Integration with In-Place Pod Vertical
Scaling"; docs/spec/accounting.md, "Changes in 1.37").

DIFF: charges in the draft form prevent a resize like those of 1.36 (test_charged_pods_cannot_be_resized).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.core import ResourceRequirements
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.equality import trees_equal, trees_equal_as
from plimsoll.apiserver.validation.field_errors import (
    OBJECT_ROOT,
    FieldError,
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
)
from plimsoll.apiserver.validation.metadata import reset_for_status
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, subtree
from plimsoll.apiserver.validation.pod.claims import is_mirror
from plimsoll.apiserver.validation.pod.containers import is_sidecar
from plimsoll.apiserver.validation.pod.qos import compute_qos
from plimsoll.apiserver.validation.pod.update import specs_equal
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.messages import format_reason
from plimsoll.ledger.pod_level_budget import find_budget_violations
from plimsoll.ledger.requests import PodResourcesOptions

_CONTAINER_VIEW = view_of("core.v1.Container")

_SPEC = FieldPath("spec")
_GROUPS = ("containers", "initContainers")
_RESIZABLE = ("cpu", "memory")


def keep_resources_only(tree: Tree, old: Tree, gates: Gates) -> None:
    """Reset everything except the resources of containers and pod; modifies `tree`.

    If containers were added or removed, nothing is reset, so that validation can report it.
    """
    spec, before = subtree(tree, "spec"), subtree(old, "spec")
    if any(len(spec.get(group, ())) != len(before.get(group, ())) for group in _GROUPS):
        return
    kept = copy_tree(before)
    for group in _GROUPS:
        if group in spec:
            kept[group] = _keep_container_resources(spec[group], kept.get(group, []))
    if gates.enabled("InPlacePodLevelResourcesVerticalScaling"):
        kept.pop("resources", None)
        if "resources" in spec:
            kept["resources"] = spec["resources"]
    tree["spec"] = kept
    tree["status"] = copy_tree(old.get("status", {}))
    reset_for_status(tree.setdefault("metadata", {}), copy_tree(old.get("metadata", {})))


def _keep_container_resources(containers: list[Tree], old: list[Tree]) -> list[Tree]:
    if any(
        now.get("name", "") != before.get("name", "") for now, before in zip(containers, old, strict=True)
    ):
        return containers
    for now, before in zip(containers, old, strict=True):
        for name in ("resources", "resizePolicy"):
            before.pop(name, None)
            if name in now:
                before[name] = now[name]
    return old


def validate_resize(
    tree: Tree, old_tree: Tree, pod: View, old: View, gates: Gates, earlier: bool
) -> FieldErrors:
    """Validate a resize; `earlier` is true if other validation already found errors."""
    found = list(_validate_resources(tree, old_tree, pod, old, gates))
    yield from found
    if found or earlier:
        return
    before = subtree(old_tree, "spec")
    spec = _mask(subtree(tree, "spec"), before, _in_new_form(old))
    if not specs_equal(spec, before):
        yield forbidden(_SPEC, "only cpu and memory can be changed")


def find_resize_error(old_tree: Tree, old: View) -> FieldError | None:
    """Return the error for pods that cannot be resized at all."""
    if is_mirror(old):
        return forbidden(OBJECT_ROOT, "a static pod cannot be resized")
    if trees_equal(subtree(old_tree, "spec").get("os"), {"name": "windows"}):
        return forbidden(OBJECT_ROOT, "a Windows pod cannot be resized")
    return None


def _validate_resources(tree: Tree, old_tree: Tree, pod: View, old: View, gates: Gates) -> FieldErrors:
    was = old.status.qos_class or compute_qos(old, gates)
    if was != compute_qos(pod, gates):
        yield invalid(_SPEC, old.status.qos_class, "the QoS class cannot be changed by a resize")
    yield from _validate_node_support(old)
    if _has_pod_level(pod) or _has_pod_level(old):
        if not gates.enabled("InPlacePodLevelResourcesVerticalScaling"):
            yield forbidden(
                OBJECT_ROOT, "resources of the pod need the gate InPlacePodLevelResourcesVerticalScaling"
            )
            return
        yield from _validate_pod_level(subtree(tree, "spec"), subtree(old_tree, "spec"))
    if _is_charged(old):
        if _in_new_form(old):
            yield from _validate_budget(tree, pod, gates)
        else:
            yield forbidden(_SPEC, "pods with node allocatable resource claims cannot be resized")
    order = list(_validate_order(pod, old))
    yield from order
    if order:
        return
    for group, now, before in (
        ("initContainers", pod.spec.init_containers, old.spec.init_containers),
        ("containers", pod.spec.containers, old.spec.containers),
    ):
        for index, (container, previous) in enumerate(zip(now, before, strict=True)):
            path = _SPEC.child(group).index(index).child("resources")
            yield from _validate_removed(
                container.resources.requests, previous.resources.requests, path, "requests"
            )
            yield from _validate_removed(
                container.resources.limits, previous.resources.limits, path, "limits"
            )
    yield from _validate_containers(subtree(tree, "spec"), subtree(old_tree, "spec"), pod, _in_new_form(old))


def _is_charged(pod: View) -> bool:
    status = pod.status
    return bool(status.node_allocatable_resource_claim_statuses or status.native_resource_claim_status)


def _in_new_form(pod: View) -> bool:
    """Report whether claims charge a pod in the form of 1.37 and in no other."""
    entries = pod.status.node_allocatable_resource_claim_statuses
    new = any(entry.mapping or entry.overhead for entry in entries)
    return new and not any(e.resources for e in entries) and not pod.status.native_resource_claim_status


def _validate_budget(tree: Tree, pod: View, gates: Gates) -> FieldErrors:
    """Validate that the pod-level requests still cover its containers and claims."""
    if not gates.enabled("DRANodeAllocatableResources") or not gates.enabled("PodLevelResources"):
        return
    options = PodResourcesOptions(form=Form.V1_37, count_claims=True)
    for reason in find_budget_violations(pod, read_charges(pod), options, limits=True):
        value = subtree(tree, "spec").get("resources")
        yield invalid(_SPEC.child("resources"), value, format_reason(reason))
        return


def _validate_node_support(old: View) -> FieldErrors:
    """Reject the resize of a running container without reported resources: its node does not support it."""
    for status in old.status.container_statuses:
        if status.state.running is not None:
            if status.resources is None:
                yield forbidden(_SPEC, "the node of this pod does not support resizing")
            return


def _has_pod_level(pod: View) -> bool:
    resources = pod.spec.resources
    return resources is not None and bool(resources.requests or resources.limits)


def _validate_pod_level(spec: Tree, old: Tree) -> FieldErrors:
    path = _SPEC.child("resources")
    resources, before = spec.get("resources"), old.get("resources")
    if resources is None:
        if before is not None:
            yield forbidden(path, "resources of the pod cannot be removed")
        return
    for name in ("requests", "limits"):
        if before is not None:
            yield from _validate_removed(resources.get(name, {}), before.get(name, {}), path, name)
    if not trees_equal_as(ResourceRequirements | None, before, _mask_pod_level(resources, before)):
        yield forbidden(_SPEC, "only cpu and memory of the pod can be changed")


def _validate_order(pod: View, old: View) -> FieldErrors:
    for group, now, before in (
        ("containers", pod.spec.containers, old.spec.containers),
        ("initContainers", pod.spec.init_containers, old.spec.init_containers),
    ):
        if len(now) != len(before):
            yield forbidden(_SPEC.child(group), "a resize cannot add or remove containers")
            continue
        for index, (container, previous) in enumerate(zip(now, before, strict=True)):
            if container.name != previous.name:
                path = _SPEC.child(group).index(index).child("name")
                yield forbidden(path, "a resize cannot rename or reorder containers")


def _validate_removed(
    now: Mapping[str, Any], before: Mapping[str, Any], path: FieldPath, name: str
) -> FieldErrors:
    if not before.keys() <= now.keys():
        yield forbidden(path.child(name), f"{name} can be changed, not removed")


def _validate_containers(spec: Tree, old: Tree, pod: View, claims: bool) -> FieldErrors:
    """Validate that containers differ only in cpu and memory; claims are compared if `claims` is set."""
    for now, before in zip(spec.get("containers", ()), old.get("containers", ()), strict=True):
        if not _containers_equal(_mask_container(now, before, claims), before):
            yield forbidden(_SPEC, "only cpu and memory resources are mutable")
    for index, (now, before) in enumerate(
        zip(spec.get("initContainers", ()), old.get("initContainers", ()), strict=True)
    ):
        path = _SPEC.child("initContainers").index(index)
        if not _containers_equal(_mask_container(now, before, claims), before):
            detail = "only cpu and memory resources for init or sidecar containers are mutable"
            yield forbidden(path, detail)
        container = pod.spec.init_containers[index]
        if not is_sidecar(container) and not _containers_equal(now, before):
            for policy in container.resize_policy:
                if policy.restart_policy == "RestartContainer":
                    detail = "init containers with a resize policy of RestartContainer cannot be resized"
                    yield forbidden(path, detail)


# -- masking: the new object with the cpu and memory of the old one


def _mask(spec: Tree, old: Tree, claims: bool) -> Tree:
    masked = dict(spec)
    for group in _GROUPS:
        pairs = zip(spec.get(group, ()), old.get(group, ()), strict=True)
        masked[group] = [_mask_container(now, before, claims) for now, before in pairs]
    if "resources" in spec:
        masked.pop("resources")
        if "resources" in old:
            masked["resources"] = old["resources"]
    return masked


def _mask_container(container: Tree, old: Tree, claims: bool) -> Tree:
    resources, before = container.get("resources", {}), old.get("resources", {})
    masked: Tree = {
        name: _mask_amounts(resources.get(name, {}), before.get(name, {})) for name in ("requests", "limits")
    }
    if claims and "claims" in resources:
        masked["claims"] = resources["claims"]
    return {**container, "resources": masked}


def _mask_amounts(amounts: Tree, old: Tree) -> Tree:
    rest = {name: amount for name, amount in amounts.items() if name not in _RESIZABLE}
    return rest | {name: amount for name, amount in old.items() if name in _RESIZABLE}


def _mask_pod_level(resources: Tree, old: Tree | None) -> Tree | None:
    masked = {
        name: _mask_amounts(resources.get(name, {}), (old or {}).get(name, {}))
        for name in ("requests", "limits")
    }
    if old is None and not any(masked.values()) and not resources.get("claims"):
        return None
    return {**resources, **masked}


def _containers_equal(container: Tree, old: Tree) -> bool:
    return trees_equal_as(_CONTAINER_VIEW, old, container)
