"""Strategies of Workload and PodGroup (`scheduling.k8s.io/v1alpha2`).

Every field of a spec is immutable: a changed field is reported as such and not validated further, as
upstream's declarative validation does.

DIFF: with GenericWorkload disabled, Workloads and PodGroups cannot be created; upstream does not serve them
(test_workloads_need_their_gate).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.conditions import validate_conditions
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import (
    OBJECT_ROOT,
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
    validate_list,
    validate_unique,
)
from plimsoll.apiserver.validation.metadata import (
    IMMUTABLE,
    reset_for_status,
    validate_metadata,
    validate_metadata_update,
)
from plimsoll.apiserver.validation.name_formats import (
    path_segment,
    validate_format,
    validate_label,
    validate_label_key,
    validate_subdomain,
)
from plimsoll.apiserver.validation.object_trees import copy_tree, subtree
from plimsoll.apiserver.validation.priority_classes import HIGHEST_USER_PRIORITY
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

TEMPLATES_MAX = 8
CLAIMS_MAX = 4
TOPOLOGY_MAX = 1
DISRUPTION_MODES = ("Pod", "PodGroup")

_SPEC, _STATUS = FieldPath("spec"), FieldPath("status")
_WORKLOAD = view_of("scheduling.v1alpha2.Workload")
_POD_GROUP = view_of("scheduling.v1alpha2.PodGroup")
_CONDITIONS_MAX = 1_000_000  # upstream sets no limit


# -- parts of both kinds


def _validate_one_of(value: View, path: FieldPath, members: Mapping[str, str]) -> FieldErrors:
    """Require exactly one member of a union; `members` maps JSON names to attributes."""
    given = [name for name, attribute in members.items() if getattr(value, attribute) is not None]
    if not given:
        yield invalid(path, "", f"must specify one of: {_quoted(members)}")
    elif len(given) > 1:
        yield invalid(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {_quoted(members)}")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _validate_policy(policy: View, path: FieldPath) -> FieldErrors:
    yield from _validate_one_of(policy, path, {"basic": "basic", "gang": "gang"})
    if policy.gang is not None:
        at = path.child("gang", "minCount")
        if not policy.gang.min_count:
            yield required(at)
        elif policy.gang.min_count < 1:
            yield invalid(at, policy.gang.min_count, "must be greater than or equal to 1")


def _validate_constraints(constraints: View, path: FieldPath) -> FieldErrors:
    yield from validate_list(
        constraints.topology, TOPOLOGY_MAX, _validate_topology_constraint, path.child("topology")
    )


def _validate_topology_constraint(constraint: View, path: FieldPath) -> FieldErrors:
    if not constraint.key:
        yield required(path.child("key"))
    else:
        yield from validate_label_key(constraint.key, path.child("key"))


def _validate_claims(claims: Sequence[View], path: FieldPath) -> FieldErrors:
    if len(claims) > CLAIMS_MAX:
        yield too_many(path, len(claims), CLAIMS_MAX)
        return
    yield from validate_unique((claim.name for claim in claims), path)
    for index, claim in enumerate(claims):
        yield from _validate_claim(claim, path.index(index))


def _validate_claim(claim: View, path: FieldPath) -> FieldErrors:
    sources = {
        "resourceClaimName": "resource_claim_name",
        "resourceClaimTemplateName": "resource_claim_template_name",
    }
    yield from _validate_one_of(claim, path, sources)
    yield from _validate_name(claim.name, path.child("name"), short=True)
    for name, attribute in sources.items():
        if (value := getattr(claim, attribute)) is not None:
            yield from validate_subdomain(value, path.child(name))


def _validate_name(name: str, path: FieldPath, *, short: bool = False) -> FieldErrors:
    if not name:
        yield required(path)
    else:
        yield from (validate_label if short else validate_subdomain)(name, path)


def _validate_disruption_mode(mode: str | None, path: FieldPath) -> FieldErrors:
    if mode is not None and mode not in DISRUPTION_MODES:
        yield not_supported(path, mode, DISRUPTION_MODES)


def _validate_priority_class_name(name: str, path: FieldPath) -> FieldErrors:
    if name:
        yield from validate_subdomain(name, path)


def _validate_priority(priority: int | None, path: FieldPath) -> FieldErrors:
    if priority is not None and priority > HIGHEST_USER_PRIORITY:
        yield invalid(path, priority, f"must be less than or equal to {HIGHEST_USER_PRIORITY}")


def _validate_group_fields(fields: View, path: FieldPath) -> FieldErrors:
    """Validate the fields that PodGroups and their templates have in common."""
    yield from _validate_policy(fields.scheduling_policy, path.child("schedulingPolicy"))
    if fields.scheduling_constraints is not None:
        yield from _validate_constraints(fields.scheduling_constraints, path.child("schedulingConstraints"))
    yield from _validate_claims(fields.resource_claims, path.child("resourceClaims"))
    yield from _validate_disruption_mode(fields.disruption_mode, path.child("disruptionMode"))
    yield from _validate_priority_class_name(fields.priority_class_name, path.child("priorityClassName"))
    yield from _validate_priority(fields.priority, path.child("priority"))


def _validate_unchanged(new: View, old: View, fields: Mapping[str, str]) -> FieldErrors:
    for name, attribute in fields.items():
        if not semantic_equal(getattr(old, attribute), getattr(new, attribute)):
            yield invalid(_SPEC.child(name), None, IMMUTABLE)


def _validate_gate(write: WriteContext[View], kind: str) -> FieldErrors:
    if not write.gates.enabled("GenericWorkload"):
        yield forbidden(OBJECT_ROOT, f"{kind} needs the feature gate GenericWorkload")


# -- Workload


_WORKLOAD_FIELDS = {"controllerRef": "controller_ref", "podGroupTemplates": "pod_group_templates"}


def _prepare_workload(write: WriteContext[View]) -> None:
    write.drop_disabled_fields("Workload")


def _validate_workload(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    yield from _validate_gate(write, "Workload")
    yield from validate_metadata(write.metadata, namespaced=True)
    reference = spec.controller_ref
    if reference is not None:
        yield from _validate_controller(reference, _SPEC.child("controllerRef"))
    path = _SPEC.child("podGroupTemplates")
    templates = spec.pod_group_templates
    if not templates:
        yield required(path)
    elif len(templates) > TEMPLATES_MAX:
        yield too_many(path, len(templates), TEMPLATES_MAX)
    else:
        yield from validate_unique((template.name for template in templates), path)
        for index, template in enumerate(templates):
            yield from _validate_name(template.name, path.index(index).child("name"), short=True)
            yield from _validate_group_fields(template, path.index(index))


def _validate_controller(reference: View, path: FieldPath) -> FieldErrors:
    if reference.api_group:
        yield from validate_subdomain(reference.api_group, path.child("apiGroup"))
    for field, value in (("kind", reference.kind), ("name", reference.name)):
        if not value:
            yield required(path.child(field))
        else:
            yield from validate_format(value, path.child(field), path_segment)


def _validate_workload_update(write: WriteContext[View]) -> FieldErrors:
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from _validate_unchanged(write.new.spec, write.old.spec, _WORKLOAD_FIELDS)
    templates = write.new.spec.pod_group_templates
    if not templates:
        yield required(_SPEC.child("podGroupTemplates"))
    elif len(templates) > TEMPLATES_MAX:
        yield too_many(_SPEC.child("podGroupTemplates"), len(templates), TEMPLATES_MAX)


# -- PodGroup


_POD_GROUP_FIELDS = {
    "podGroupTemplateRef": "pod_group_template_ref",
    "schedulingPolicy": "scheduling_policy",
    "schedulingConstraints": "scheduling_constraints",
    "resourceClaims": "resource_claims",
    "disruptionMode": "disruption_mode",
    "priorityClassName": "priority_class_name",
    "priority": "priority",
}


def _prepare_pod_group(write: WriteContext[View]) -> None:
    write.restore_fields("status")
    write.drop_disabled_fields("PodGroup")


def _validate_pod_group(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    yield from _validate_gate(write, "PodGroup")
    yield from validate_metadata(write.metadata, namespaced=True)
    reference, path = spec.pod_group_template_ref, _SPEC.child("podGroupTemplateRef")
    if reference is not None:
        yield from _validate_one_of(reference, path, {"workload": "workload"})
        if (workload := reference.workload) is not None:
            at = path.child("workload")
            yield from _validate_name(workload.workload_name, at.child("workloadName"))
            name = workload.pod_group_template_name
            yield from _validate_name(name, at.child("podGroupTemplateName"), short=True)
    yield from _validate_group_fields(spec, _SPEC)


def _validate_pod_group_update(write: WriteContext[View]) -> FieldErrors:
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from _validate_unchanged(write.new.spec, write.old.spec, _POD_GROUP_FIELDS)


def _prepare_pod_group_status(write: WriteContext[View]) -> None:
    write.restore_fields("spec")
    reset_for_status(write.metadata_tree(), copy_tree(subtree(write.old_tree, "metadata")))
    write.drop_disabled_fields("PodGroup", "status")


def _validate_pod_group_status(write: WriteContext[View]) -> FieldErrors:
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    status = write.new.status
    yield from validate_conditions(status.conditions, _CONDITIONS_MAX, _STATUS.child("conditions"))
    known = {claim.name for claim in write.new.spec.resource_claims}
    path = _STATUS.child("resourceClaimStatuses")
    for index, entry in enumerate(status.resource_claim_statuses):
        if entry.name not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(path.index(index).child("name"), entry.name, detail)
    if semantic_equal(write.old.status.resource_claim_statuses, status.resource_claim_statuses):
        return
    if len(status.resource_claim_statuses) > CLAIMS_MAX:
        yield too_many(path, len(status.resource_claim_statuses), CLAIMS_MAX)
        return
    yield from validate_unique((entry.name for entry in status.resource_claim_statuses), path)
    for index, entry in enumerate(status.resource_claim_statuses):
        if entry.resource_claim_name is not None:
            yield from validate_subdomain(
                entry.resource_claim_name, path.index(index).child("resourceClaimName")
            )


POD_GROUP_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "Workload", ""): WriteStrategy(_WORKLOAD, _prepare_workload, _validate_workload),
    ("update", "Workload", ""): WriteStrategy(_WORKLOAD, _prepare_workload, _validate_workload_update),
    ("create", "PodGroup", ""): WriteStrategy(_POD_GROUP, _prepare_pod_group, _validate_pod_group),
    ("update", "PodGroup", ""): WriteStrategy(
        _POD_GROUP, _prepare_pod_group, _validate_pod_group_update, reset_fields=("status",)
    ),
    ("update", "PodGroup", "status"): WriteStrategy(
        _POD_GROUP, _prepare_pod_group_status, _validate_pod_group_status, reset_fields=("spec",)
    ),
}
