"""Strategies of the DRA kinds, and the table of the strategies of all kinds (docs/spec/api.md, sections
"ResourceSlice" to "ResourceClaim status").

Defines, for each kind and operation, which fields are reset, when the generation increases and which
validation runs; the validation itself is in the module of the kind. The update of a template also runs the
validation of a create.

DIFF: with DRADeviceTaintRules disabled, DeviceTaintRules cannot be created; upstream keeps serving them
(test_taint_rules_need_their_gate).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.api import codec
from plimsoll.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from plimsoll.apiserver.validation.claim_status_authorization import validate_permissions
from plimsoll.apiserver.validation.device_classes import validate_class_spec
from plimsoll.apiserver.validation.device_taint_rules import (
    update_taint_time,
    validate_taint_rule_spec,
    validate_taint_rule_status,
)
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.events import EVENT_STRATEGIES
from plimsoll.apiserver.validation.field_errors import OBJECT_ROOT, FieldErrors, FieldPath, forbidden, invalid
from plimsoll.apiserver.validation.leases import LEASE_STRATEGIES
from plimsoll.apiserver.validation.metadata import (
    IMMUTABLE,
    reset_for_status,
    validate_metadata,
    validate_metadata_update,
    validate_template_metadata,
)
from plimsoll.apiserver.validation.namespaces import NAMESPACE_STRATEGIES
from plimsoll.apiserver.validation.nodes import NODE_STRATEGIES
from plimsoll.apiserver.validation.object_trees import copy_tree, subtree
from plimsoll.apiserver.validation.pod.strategies import POD_STRATEGIES
from plimsoll.apiserver.validation.pod_groups import POD_GROUP_STRATEGIES
from plimsoll.apiserver.validation.priority_classes import PRIORITY_CLASS_STRATEGIES
from plimsoll.apiserver.validation.resource_claim_status import (
    drop_deallocated_status_devices,
    validate_admin_results,
    validate_claim_status,
)
from plimsoll.apiserver.validation.resource_claims import validate_admin_requests, validate_device_claim
from plimsoll.apiserver.validation.resource_pool_status_requests import POOL_STATUS_STRATEGIES
from plimsoll.apiserver.validation.resource_quotas import QUOTA_STRATEGIES
from plimsoll.apiserver.validation.resource_slices import validate_slice_spec
from plimsoll.apiserver.validation.validated_cache import ValidatedCache
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy, decode_metadata

_SPEC = FieldPath("spec")


# -- ResourceSlice


def _prepare_slice(write: WriteContext[ResourceSlice]) -> None:
    """Prepare a slice; the generation is determined before fields are dropped."""
    if write.is_create:
        write.set_generation(1)
    elif subtree(write.tree, "spec") != subtree(write.old_tree, "spec") and not semantic_equal(
        write.old.spec, write.new.spec
    ):
        write.set_generation(write.old.metadata.generation + 1)
    write.drop_disabled_fields("ResourceSlice")


def _validate_slice(write: WriteContext[ResourceSlice]) -> FieldErrors:
    spec = write.new.spec
    if write.is_create:
        yield from validate_metadata(write.metadata, namespaced=False)
        yield from validate_slice_spec(spec, None, write.gates)
    else:
        yield from validate_metadata_update(write.metadata, write.old_metadata)
        yield from validate_slice_spec(spec, write.old.spec, write.gates)


def _warn_slice(write: WriteContext[ResourceSlice]) -> Iterable[str]:
    driver = subtree(write.tree, "spec").get("driver", "")
    if driver != driver.lower():
        yield f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'


# -- ResourceClaim


_VALIDATED_CLAIMS = ValidatedCache()


def _prepare_claim(write: WriteContext[ResourceClaim]) -> None:
    write.restore_fields("status")
    write.drop_disabled_fields("ResourceClaim")


def _validate_claim_create(write: WriteContext[ResourceClaim]) -> FieldErrors:
    claim = write.new
    devices = claim.spec.devices
    yield from validate_admin_requests(devices.requests, claim.metadata.namespace, write.namespace_labels)
    yield from validate_metadata(write.metadata, namespaced=True)
    key = codec.encode(devices), b"", write.gates
    yield from _VALIDATED_CLAIMS.validate(
        key, validate_device_claim(devices, _SPEC.child("devices"), write.gates)
    )


def _validate_claim_update(write: WriteContext[ResourceClaim]) -> FieldErrors:
    """Validate an update of a claim; the spec is immutable, so it is not validated again."""
    yield from validate_metadata(write.metadata, namespaced=True)
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    if not semantic_equal(write.old.spec, write.new.spec):
        yield invalid(_SPEC, None, IMMUTABLE)


def _prepare_claim_status(write: WriteContext[ResourceClaim]) -> None:
    write.share_fields("spec")
    reset_for_status(write.metadata_tree(), copy_tree(subtree(write.old_tree, "metadata")))
    write.drop_disabled_fields("ResourceClaim", "status")
    drop_deallocated_status_devices(write.tree, write.old_tree)


def _validate_claim_status(write: WriteContext[ResourceClaim]) -> FieldErrors:
    claim = write.new
    yield from validate_admin_results(claim, write.old, write.namespace_labels)
    if write.caller is not None:
        yield from validate_permissions(claim, write.old, write.caller, write.gates)
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from validate_claim_status(claim, write.old)


# -- ResourceClaimTemplate


def _prepare_template(write: WriteContext[ResourceClaimTemplate]) -> None:
    write.drop_disabled_fields("ResourceClaimTemplate")


def _validate_template(write: WriteContext[ResourceClaimTemplate]) -> FieldErrors:
    yield from validate_metadata(write.metadata, namespaced=True)
    yield from validate_template_metadata(subtree(write.tree, "spec", "metadata"), _SPEC.child("metadata"))
    devices = write.new.spec.spec.devices
    yield from validate_device_claim(devices, _SPEC.child("spec", "devices"), write.gates)


def _validate_template_create(write: WriteContext[ResourceClaimTemplate]) -> FieldErrors:
    template = write.new
    requests = template.spec.spec.devices.requests
    yield from validate_admin_requests(requests, template.metadata.namespace, write.namespace_labels)
    yield from _validate_template(write)


def _validate_template_update(write: WriteContext[ResourceClaimTemplate]) -> FieldErrors:
    yield from _validate_template(write)
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    metadata, old_metadata = (decode_metadata(subtree(tree, "spec")) for tree in (write.tree, write.old_tree))
    if not semantic_equal(old_metadata, metadata) or not semantic_equal(
        write.old.spec.spec, write.new.spec.spec
    ):
        yield invalid(_SPEC, None, IMMUTABLE)


# -- DeviceClass


def _prepare_class(write: WriteContext[DeviceClass]) -> None:
    """Prepare a class; the generation is determined after fields are dropped."""
    write.drop_disabled_fields("DeviceClass")
    if write.is_create:
        write.set_generation(1)
    elif not semantic_equal(write.old.spec, write.new.spec):
        write.set_generation(write.old.metadata.generation + 1)


def _validate_class(write: WriteContext[DeviceClass]) -> FieldErrors:
    yield from validate_metadata(write.metadata, namespaced=False, generated_name_is_final=True)
    spec = write.new.spec
    if write.is_create:
        yield from validate_class_spec(spec, None, write.gates)
    else:
        yield from validate_metadata_update(write.metadata, write.old_metadata)
        yield from validate_class_spec(spec, write.old.spec, write.gates)


# -- DeviceTaintRule


def _prepare_taint_rule(write: WriteContext[DeviceTaintRule]) -> None:
    write.restore_fields("status")
    if write.is_create:
        write.set_generation(1)
        return
    update_taint_time(write.tree, write.old_tree, write.now)
    if not semantic_equal(write.old.spec, write.new.spec):
        write.set_generation(write.old.metadata.generation + 1)


def _validate_taint_rule(write: WriteContext[DeviceTaintRule]) -> FieldErrors:
    spec = write.new.spec
    if write.is_create:
        if not write.gates.enabled("DRADeviceTaintRules"):
            yield forbidden(OBJECT_ROOT, "taint rules need the feature gate DRADeviceTaintRules")
        yield from validate_metadata(write.metadata, namespaced=False)
        yield from validate_taint_rule_spec(spec, None)
    else:
        yield from validate_metadata_update(write.metadata, write.old_metadata)
        yield from validate_taint_rule_spec(spec, write.old.spec)


def _prepare_taint_rule_status(write: WriteContext[DeviceTaintRule]) -> None:
    write.restore_fields("spec")
    reset_for_status(write.metadata_tree(), copy_tree(subtree(write.old_tree, "metadata")))


def _validate_taint_rule_status(write: WriteContext[DeviceTaintRule]) -> FieldErrors:
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from validate_taint_rule_status(write.new.status)


_SLICE = WriteStrategy(ResourceSlice, _prepare_slice, _validate_slice, _warn_slice)
_CLASS = WriteStrategy(DeviceClass, _prepare_class, _validate_class)
_TAINT_RULE = WriteStrategy(DeviceTaintRule, _prepare_taint_rule, _validate_taint_rule)

#: By (operation, kind, subresource).
STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "ResourceSlice", ""): _SLICE,
    ("update", "ResourceSlice", ""): _SLICE,
    ("create", "ResourceClaim", ""): WriteStrategy(ResourceClaim, _prepare_claim, _validate_claim_create),
    ("update", "ResourceClaim", ""): WriteStrategy(
        ResourceClaim, _prepare_claim, _validate_claim_update, reset_fields=("status",)
    ),
    ("update", "ResourceClaim", "status"): WriteStrategy(
        ResourceClaim, _prepare_claim_status, _validate_claim_status, reset_fields=("spec",)
    ),
    ("create", "ResourceClaimTemplate", ""): WriteStrategy(
        ResourceClaimTemplate, _prepare_template, _validate_template_create
    ),
    ("update", "ResourceClaimTemplate", ""): WriteStrategy(
        ResourceClaimTemplate, _prepare_template, _validate_template_update
    ),
    ("create", "DeviceClass", ""): _CLASS,
    ("update", "DeviceClass", ""): _CLASS,
    ("create", "DeviceTaintRule", ""): _TAINT_RULE,
    ("update", "DeviceTaintRule", ""): _TAINT_RULE,
    ("update", "DeviceTaintRule", "status"): WriteStrategy(
        DeviceTaintRule, _prepare_taint_rule_status, _validate_taint_rule_status
    ),
    **POD_STRATEGIES,
    **NODE_STRATEGIES,
    **NAMESPACE_STRATEGIES,
    **EVENT_STRATEGIES,
    **LEASE_STRATEGIES,
    **PRIORITY_CLASS_STRATEGIES,
    **POD_GROUP_STRATEGIES,
    **QUOTA_STRATEGIES,
    **POOL_STATUS_STRATEGIES,
}
