"""Resizing a running pod (end of section 9 of the API semantics).

Owns what the `/resize` endpoint takes over from the request (`keep_resources_only`) and which changes it
allows. As in Kubernetes 1.36.4 a container that had claims cannot be resized at all, because its claims
are left out of the comparison, nor can a pod with claim charges. 1.37 mends both: pods whose charges are
written in its form are resized within the budget of the pod as a whole, claims included (document 000,
"Integration with In-Place Pod Vertical Scaling"; section 6 of the accounting semantics).

DIFF: charges in the draft form stop a resize like those of 1.36 (test_charged_pods_cannot_be_resized).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.core import ResourceRequirements
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation.equality import same_tree, same_under
from plimsoll.apiserver.validation.field_errors import WHOLE, Path, Problem, Problems, forbidden, invalid
from plimsoll.apiserver.validation.metadata import reset_for_status
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, part
from plimsoll.apiserver.validation.pod.claims import is_mirror
from plimsoll.apiserver.validation.pod.containers import is_sidecar
from plimsoll.apiserver.validation.pod.pod_view import WholeContainer, WholePod
from plimsoll.apiserver.validation.pod.update import same_spec
from plimsoll.ledger.budget import budget_breaches
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.qos import qos_class
from plimsoll.ledger.requests import Options
from plimsoll.ledger.texts import render

_SPEC = Path("spec")
_GROUPS = ("containers", "initContainers")
_RESIZABLE = ("cpu", "memory")


def keep_resources_only(tree: Tree, old: Tree, gates: Gates) -> None:
    """Take back everything but the resources of containers and pod; changes `tree`.

    Where containers were added or removed nothing is taken back, so that the checks can say so.
    """
    spec, before = part(tree, "spec"), part(old, "spec")
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


def check_resize(
    tree: Tree, old_tree: Tree, pod: WholePod, old: WholePod, gates: Gates, earlier: bool
) -> Problems:
    """Whether this resize is allowed; `earlier` says that other checks found problems already."""
    found = list(_check_resources(tree, old_tree, pod, old, gates))
    yield from found
    if found or earlier:
        return
    before = part(old_tree, "spec")
    spec = _mask(part(tree, "spec"), before, _in_new_form(old))
    if not same_spec(spec, before):
        yield forbidden(_SPEC, "only cpu and memory can be changed")


def refuse_resize(old_tree: Tree, old: WholePod) -> Problem | None:
    """Pods that cannot be resized at all, whatever else is wrong."""
    if is_mirror(old):
        return forbidden(WHOLE, "a static pod cannot be resized")
    if same_tree(part(old_tree, "spec").get("os"), {"name": "windows"}):
        return forbidden(WHOLE, "a Windows pod cannot be resized")
    return None


def _check_resources(tree: Tree, old_tree: Tree, pod: WholePod, old: WholePod, gates: Gates) -> Problems:
    pod_level = gates.enabled("PodLevelResources")
    was = old.status.qos_class or qos_class(old.spec, pod_level=pod_level)
    if was != qos_class(pod.spec, pod_level=pod_level):
        yield invalid(_SPEC, old.status.qos_class, "the QoS class cannot be changed by a resize")
    yield from _check_node_support(old)
    if _has_pod_level(pod) or _has_pod_level(old):
        if not gates.enabled("InPlacePodLevelResourcesVerticalScaling"):
            yield forbidden(
                WHOLE, "resources of the pod need the gate InPlacePodLevelResourcesVerticalScaling"
            )
            return
        yield from _check_pod_level(part(tree, "spec"), part(old_tree, "spec"))
    if _is_charged(old):
        if _in_new_form(old):
            yield from _check_budget(tree, pod, gates)
        else:
            yield forbidden(_SPEC, "pods with node allocatable resource claims cannot be resized")
    order = list(_check_order(pod, old))
    yield from order
    if order:
        return
    for group, now, before in (
        ("initContainers", pod.spec.init_containers, old.spec.init_containers),
        ("containers", pod.spec.containers, old.spec.containers),
    ):
        for place, (container, previous) in enumerate(zip(now, before, strict=True)):
            path = _SPEC.child(group).index(place).child("resources")
            yield from _check_removed(
                container.resources.requests, previous.resources.requests, path, "requests"
            )
            yield from _check_removed(container.resources.limits, previous.resources.limits, path, "limits")
    yield from _check_containers(part(tree, "spec"), part(old_tree, "spec"), pod, _in_new_form(old))


def _is_charged(pod: WholePod) -> bool:
    status = pod.status
    return bool(status.node_allocatable_resource_claim_statuses or status.native_resource_claim_status)


def _in_new_form(pod: WholePod) -> bool:
    """Whether claims charge a pod in the form of 1.37, and in no other."""
    entries = pod.status.node_allocatable_resource_claim_statuses
    new = any(entry.mapping or entry.overhead for entry in entries)
    return new and not any(e.resources for e in entries) and not pod.status.native_resource_claim_status


def _check_budget(tree: Tree, pod: WholePod, gates: Gates) -> Problems:
    """What the pod as a whole asks for must still cover its containers and claims."""
    if not gates.enabled("DRANodeAllocatableResources") or not gates.enabled("PodLevelResources"):
        return
    options = Options(form=Form.V1_37, count_claims=True)
    for reason in budget_breaches(pod, read_charges(pod), options, limits=True):
        value = part(tree, "spec").get("resources")
        yield invalid(_SPEC.child("resources"), value, render(reason))
        return


def _check_node_support(old: WholePod) -> Problems:
    """A running container without reported resources is on a node that cannot resize."""
    for status in old.status.container_statuses:
        if status.state.running is not None:
            if status.resources is None:
                yield forbidden(_SPEC, "the node of this pod does not support resizing")
            return


def _has_pod_level(pod: WholePod) -> bool:
    resources = pod.spec.resources
    return resources is not None and bool(resources.requests or resources.limits)


def _check_pod_level(spec: Tree, old: Tree) -> Problems:
    path = _SPEC.child("resources")
    resources, before = spec.get("resources"), old.get("resources")
    if resources is None:
        if before is not None:
            yield forbidden(path, "resources of the pod cannot be removed")
        return
    for name in ("requests", "limits"):
        if before is not None:
            yield from _check_removed(resources.get(name, {}), before.get(name, {}), path, name)
    if not same_under(ResourceRequirements | None, before, _mask_pod_level(resources, before)):
        yield forbidden(_SPEC, "only cpu and memory of the pod can be changed")


def _check_order(pod: WholePod, old: WholePod) -> Problems:
    for group, now, before in (
        ("containers", pod.spec.containers, old.spec.containers),
        ("initContainers", pod.spec.init_containers, old.spec.init_containers),
    ):
        if len(now) != len(before):
            yield forbidden(_SPEC.child(group), "a resize cannot add or remove containers")
            continue
        for place, (container, previous) in enumerate(zip(now, before, strict=True)):
            if container.name != previous.name:
                path = _SPEC.child(group).index(place).child("name")
                yield forbidden(path, "a resize cannot rename or reorder containers")


def _check_removed(now: Mapping[str, Any], before: Mapping[str, Any], path: Path, name: str) -> Problems:
    if not before.keys() <= now.keys():
        yield forbidden(path.child(name), f"{name} can be changed, not removed")


def _check_containers(spec: Tree, old: Tree, pod: WholePod, claims: bool) -> Problems:
    """Of each container only cpu and memory may differ; claims are compared where they may be there."""
    for now, before in zip(spec.get("containers", ()), old.get("containers", ()), strict=True):
        if not _same_container(_mask_container(now, before, claims), before):
            yield forbidden(_SPEC, "only cpu and memory resources are mutable")
    for place, (now, before) in enumerate(
        zip(spec.get("initContainers", ()), old.get("initContainers", ()), strict=True)
    ):
        path = _SPEC.child("initContainers").index(place)
        if not _same_container(_mask_container(now, before, claims), before):
            detail = "only cpu and memory resources for init or sidecar containers are mutable"
            yield forbidden(path, detail)
        container = pod.spec.init_containers[place]
        if not is_sidecar(container) and not _same_container(now, before):
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


def _same_container(container: Tree, old: Tree) -> bool:
    return same_under(WholeContainer, old, container)
