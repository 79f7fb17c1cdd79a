"""Validation of pod updates (docs/spec/api.md, "Pod").

A pod's spec is immutable except for a few fields. Works on canonical trees, because the rule applies to all
fields, known or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import NodeAffinity, NodeSelectorRequirement, Toleration
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.equality import trees_equal_as
from plimsoll.apiserver.validation.field_errors import (
    OBJECT_ROOT,
    FieldError,
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    required,
)
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.placement import PlacementOptions, validate_tolerations

_CONTAINER_VIEW = view_of("core.v1.EphemeralContainer")
_SPEC_VIEW = view_of("core.v1.PodSpec")

_SPEC = FieldPath("spec")
_DEADLINE_MAX = 2**31 - 1


def validate_pod_update(
    tree: Tree, old_tree: Tree, pod: View, old: View, options: PlacementOptions
) -> FieldErrors:
    """Validate the mutable fields of the spec, and that no other field changed."""
    for group, now, before in (
        ("containers", pod.spec.containers, old.spec.containers),
        ("initContainers", pod.spec.init_containers, old.spec.init_containers),
    ):
        if len(now) != len(before):
            yield forbidden(_SPEC.child(group), "pod updates may not add or remove containers")
            return
        for index, container in enumerate(now):
            yield from _validate_image(container.image, _SPEC.child(group).index(index).child("image"))
    error, continues = _find_deadline_error(
        pod.spec.active_deadline_seconds, old.spec.active_deadline_seconds
    )
    if error is not None:
        yield error
    if not continues:
        return
    yield from _validate_tolerations(pod, old, options)
    gates = {gate.name for gate in old.spec.scheduling_gates}
    added = {
        gate.name: index for index, gate in enumerate(pod.spec.scheduling_gates) if gate.name not in gates
    }
    for name, index in added.items():
        at = _SPEC.child("schedulingGates").index(index).child("name")
        yield forbidden(at, f"only deletion is allowed, but found new scheduling gate '{name}'")
    yield from _validate_rest(subtree(tree, "spec"), subtree(old_tree, "spec"), gated=bool(gates))


def _validate_image(image: str, path: FieldPath) -> FieldErrors:
    if not image:
        yield required(path)
    elif image != image.strip():
        yield invalid(path, image, "must not have leading or trailing whitespace")


def _find_deadline_error(now: int | None, before: int | None) -> tuple[FieldError | None, bool]:
    """Return the error if activeDeadlineSeconds is removed or extended, and whether to continue
    validation.
    """
    path = _SPEC.child("activeDeadlineSeconds")
    if now is None:
        if before is None:
            return None, True
        return invalid(path, None, "must not update from a positive integer to nil value"), True
    if not 0 <= now <= _DEADLINE_MAX:
        return invalid(path, now, f"must be between 0 and {_DEADLINE_MAX}, inclusive"), False
    if before is not None and before < now:
        return invalid(path, now, "must be less than or equal to previous value"), False
    return None, True


def _validate_tolerations(pod: View, old: View, options: PlacementOptions) -> FieldErrors:
    """Validate that tolerations are only added; of existing ones only tolerationSeconds can change."""

    def key(toleration: Toleration) -> tuple[str, ...]:
        return toleration.key, toleration.operator, toleration.value, toleration.effect

    path, kept = _SPEC.child("tolerations"), set(map(key, pod.spec.tolerations))
    if any(key(toleration) not in kept for toleration in old.spec.tolerations):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden(path, detail)
    else:
        yield from validate_tolerations(pod.spec.tolerations, path, options)


def _validate_rest(spec: Tree, old: Tree, *, gated: bool) -> FieldErrors:
    """Validate that no other field changed."""
    if specs_equal(spec, old):
        return
    masked = dict(spec)
    for group in ("containers", "initContainers"):
        masked[group] = [
            {**container, "image": before.get("image", "")}
            for container, before in zip(spec.get(group, ()), old.get(group, ()), strict=True)
        ]
    may_change: Sequence[str] = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
    if _grace_period(old) < 0 and _grace_period(spec) == 1:
        may_change = (*may_change, "terminationGracePeriodSeconds")
    if gated:
        yield from _validate_gated(spec, old)
        may_change = (*may_change, "nodeSelector")
        masked["affinity"] = _with_node_affinity(spec.get("affinity"), old.get("affinity"))
    for name in may_change:
        masked[name] = old.get(name)
    if not specs_equal(masked, old):
        detail = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
            "`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        yield forbidden(_SPEC, detail)


def _grace_period(spec: Tree) -> int:
    seconds = spec.get("terminationGracePeriodSeconds")
    return seconds if isinstance(seconds, int) else 0


def _validate_gated(spec: Tree, old: Tree) -> FieldErrors:
    """Validate that a pod with scheduling gates only restricts its node selection further."""
    now, before = spec.get("nodeSelector", {}), old.get("nodeSelector", {})
    if any(now.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid(_SPEC.child("nodeSelector"), None, detail)
    path = _SPEC.child("affinity", "nodeAffinity", _REQUIRED)
    terms, old_terms = _required_terms(spec), _required_terms(old)
    if not old_terms:
        return
    if terms is None or len(terms) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield invalid(path.child("nodeSelectorTerms"), None, detail)
    else:
        for index, (term, before_term) in enumerate(zip(terms, old_terms, strict=True)):
            if not _only_adds_requirements(term, before_term):
                detail = "only additions are allowed (no mutations or deletions)"
                yield invalid(path.child("nodeSelectorTerms").index(index), None, detail)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _required_terms(spec: Tree) -> list[Tree] | None:
    required_affinity = subtree(spec, "affinity", "nodeAffinity").get(_REQUIRED)
    return None if required_affinity is None else required_affinity.get("nodeSelectorTerms", [])


def _only_adds_requirements(term: Tree, old: Tree) -> bool:
    if not old.get("matchExpressions") and not old.get("matchFields"):
        # An empty term matches nothing and must stay empty.
        return not term.get("matchExpressions") and not term.get("matchFields")
    return all(
        trees_equal_as(tuple[NodeSelectorRequirement, ...], before, term.get(name, [])[: len(before)])
        for name in ("matchExpressions", "matchFields")
        if (before := old.get(name, []))
    )


def _with_node_affinity(affinity: Tree | None, old: Tree | None) -> Tree | None:
    """Return the new affinity with the old node affinity, which is validated separately."""
    now, before = (affinity or {}).get("nodeAffinity"), (old or {}).get("nodeAffinity")
    if trees_equal_as(NodeAffinity | None, before, now):
        return affinity
    kept = {name: value for name, value in (affinity or {}).items() if name != "nodeAffinity"}
    if old is None and not kept.get("podAffinity") and not kept.get("podAntiAffinity"):
        return None
    return kept if before is None else {**kept, "nodeAffinity": before}


# -- ephemeral containers


def validate_ephemeral_update(tree: Tree, old_tree: Tree) -> FieldErrors:
    """Validate that ephemeral containers are only added and never changed."""
    path = _SPEC.child("ephemeralContainers")
    now = {c.get("name", ""): c for c in subtree(tree, "spec").get("ephemeralContainers", ())}
    for before in subtree(old_tree, "spec").get("ephemeralContainers", ()):
        name = before.get("name", "")
        if name not in now:
            yield forbidden(path, f"existing ephemeral containers {name!r} may not be removed")
        elif not trees_equal_as(_CONTAINER_VIEW, before, now[name]):
            yield forbidden(path, f"existing ephemeral containers {name!r} may not be changed")


def find_ephemeral_error(mirror: bool) -> FieldError | None:
    """Return the error for pods that cannot have ephemeral containers."""
    return forbidden(OBJECT_ROOT, "static pods do not support ephemeral containers") if mirror else None


# -- comparison


def specs_equal(spec: Tree, old: Tree) -> bool:
    """Report whether two pod specs are equal, quantities compared by value."""
    return trees_equal_as(_SPEC_VIEW, old, spec)
