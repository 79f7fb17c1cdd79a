"""What each endpoint of the DRA kinds prepares and checks (sections 5 to 7 of the API semantics).

Owns, for every kind and operation, what the client may not touch, when the generation grows and which
checks run; the checks themselves are in the module of the kind. An update of a template runs the checks
of a create too.

DIFF: with DRADeviceTaintRules off no rule can be created; upstream keeps serving them
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
from plimsoll.apiserver.validation.claim_status_authorization import check_permissions
from plimsoll.apiserver.validation.device_classes import check_class_spec
from plimsoll.apiserver.validation.device_taint_rules import (
    check_taint_rule_spec,
    check_taint_rule_status,
    renew_taint,
)
from plimsoll.apiserver.validation.equality import same
from plimsoll.apiserver.validation.events import EVENT_ENDPOINTS
from plimsoll.apiserver.validation.field_errors import WHOLE, Path, Problems, forbidden, invalid
from plimsoll.apiserver.validation.leases import LEASE_ENDPOINTS
from plimsoll.apiserver.validation.metadata import (
    IMMUTABLE,
    check_metadata,
    check_metadata_update,
    check_template_metadata,
    reset_for_status,
)
from plimsoll.apiserver.validation.namespaces import NAMESPACE_ENDPOINTS
from plimsoll.apiserver.validation.nodes import NODE_ENDPOINTS
from plimsoll.apiserver.validation.object_trees import copy_tree, part
from plimsoll.apiserver.validation.pod.strategies import POD_ENDPOINTS
from plimsoll.apiserver.validation.priority_classes import PRIORITY_CLASS_ENDPOINTS
from plimsoll.apiserver.validation.resource_claim_status import (
    check_admin_results,
    check_claim_status,
    forget_released_devices,
)
from plimsoll.apiserver.validation.resource_claims import check_admin_requests, check_device_claim
from plimsoll.apiserver.validation.resource_quotas import QUOTA_ENDPOINTS
from plimsoll.apiserver.validation.resource_slices import check_slice_spec
from plimsoll.apiserver.validation.validated_cache import Verdicts
from plimsoll.apiserver.validation.write_context import Endpoint, Job, look_at_metadata

_SPEC = Path("spec")


# -- ResourceSlice


def _prepare_slice(job: Job[ResourceSlice]) -> None:
    """Changes are counted before fields are dropped."""
    if job.creates:
        job.set_generation(1)
    elif part(job.tree, "spec") != part(job.old_tree, "spec") and not same(job.old.spec, job.decode().spec):
        job.set_generation(job.old.metadata.generation + 1)
    job.drop("ResourceSlice")


def _check_slice(job: Job[ResourceSlice]) -> Problems:
    spec = job.decode().spec
    if job.creates:
        yield from check_metadata(job.metadata(), namespaced=False)
        yield from check_slice_spec(spec, None)
    else:
        yield from check_metadata_update(job.metadata(), job.old_metadata())
        yield from check_slice_spec(spec, job.old.spec)


def _warn_slice(job: Job[ResourceSlice]) -> Iterable[str]:
    driver = part(job.tree, "spec").get("driver", "")
    if driver != driver.lower():
        yield f"spec.driver: driver names should be in lower case, {driver!r} is not"


# -- ResourceClaim


_FINE_CLAIMS = Verdicts()


def _prepare_claim(job: Job[ResourceClaim]) -> None:
    job.take_back("status")
    job.drop("ResourceClaim")


def _check_claim_create(job: Job[ResourceClaim]) -> Problems:
    claim = job.decode()
    devices = claim.spec.devices
    yield from check_admin_requests(devices.requests, claim.metadata.namespace, job.namespace_labels)
    yield from check_metadata(job.metadata(), namespaced=True)
    key = codec.encode(devices), b"", job.gates
    yield from _FINE_CLAIMS.check(key, check_device_claim(devices, _SPEC.child("devices"), job.gates))


def _check_claim_update(job: Job[ResourceClaim]) -> Problems:
    """The spec cannot change, so the rest of it need not be looked at again."""
    yield from check_metadata(job.metadata(), namespaced=True)
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    if not same(job.old.spec, job.decode().spec):
        yield invalid(_SPEC, None, IMMUTABLE)


def _prepare_claim_status(job: Job[ResourceClaim]) -> None:
    job.take_back("spec")
    reset_for_status(job.meta_tree(), copy_tree(part(job.old_tree, "metadata")))
    job.drop("ResourceClaim", "status")
    forget_released_devices(job.tree, job.old_tree)


def _check_claim_status(job: Job[ResourceClaim]) -> Problems:
    claim = job.decode()
    yield from check_admin_results(claim, job.old, job.namespace_labels)
    if job.caller is not None:
        yield from check_permissions(claim, job.old, job.caller, job.gates)
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from check_claim_status(claim, job.old)


# -- ResourceClaimTemplate


def _prepare_template(job: Job[ResourceClaimTemplate]) -> None:
    job.drop("ResourceClaimTemplate")


def _check_template(job: Job[ResourceClaimTemplate]) -> Problems:
    yield from check_metadata(job.metadata(), namespaced=True)
    yield from check_template_metadata(part(job.tree, "spec", "metadata"), _SPEC.child("metadata"))
    devices = job.decode().spec.spec.devices
    yield from check_device_claim(devices, _SPEC.child("spec", "devices"), job.gates)


def _check_template_create(job: Job[ResourceClaimTemplate]) -> Problems:
    template = job.decode()
    requests = template.spec.spec.devices.requests
    yield from check_admin_requests(requests, template.metadata.namespace, job.namespace_labels)
    yield from _check_template(job)


def _check_template_update(job: Job[ResourceClaimTemplate]) -> Problems:
    yield from _check_template(job)
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    metadata, old_metadata = (look_at_metadata(part(tree, "spec")) for tree in (job.tree, job.old_tree))
    if not same(old_metadata, metadata) or not same(job.old.spec.spec, job.decode().spec.spec):
        yield invalid(_SPEC, None, IMMUTABLE)


# -- DeviceClass


def _prepare_class(job: Job[DeviceClass]) -> None:
    """Changes are counted after fields were dropped."""
    job.drop("DeviceClass")
    if job.creates:
        job.set_generation(1)
    elif not same(job.old.spec, job.decode().spec):
        job.set_generation(job.old.metadata.generation + 1)


def _check_class(job: Job[DeviceClass]) -> Problems:
    yield from check_metadata(job.metadata(), namespaced=False, generated_name_is_final=True)
    spec = job.decode().spec
    if job.creates:
        yield from check_class_spec(spec, None, job.gates)
    else:
        yield from check_metadata_update(job.metadata(), job.old_metadata())
        yield from check_class_spec(spec, job.old.spec, job.gates)


# -- DeviceTaintRule


def _prepare_taint_rule(job: Job[DeviceTaintRule]) -> None:
    job.take_back("status")
    if job.creates:
        job.set_generation(1)
        return
    renew_taint(job.tree, job.old_tree, job.now)
    if not same(job.old.spec, job.decode().spec):
        job.set_generation(job.old.metadata.generation + 1)


def _check_taint_rule(job: Job[DeviceTaintRule]) -> Problems:
    spec = job.decode().spec
    if job.creates:
        if not job.gates.enabled("DRADeviceTaintRules"):
            yield forbidden(WHOLE, "taint rules need the feature gate DRADeviceTaintRules")
        yield from check_metadata(job.metadata(), namespaced=False)
        yield from check_taint_rule_spec(spec, None)
    else:
        yield from check_metadata_update(job.metadata(), job.old_metadata())
        yield from check_taint_rule_spec(spec, job.old.spec)


def _prepare_taint_rule_status(job: Job[DeviceTaintRule]) -> None:
    job.take_back("spec")
    reset_for_status(job.meta_tree(), copy_tree(part(job.old_tree, "metadata")))


def _check_taint_rule_status(job: Job[DeviceTaintRule]) -> Problems:
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from check_taint_rule_status(job.decode().status)


_SLICE = Endpoint(ResourceSlice, _prepare_slice, _check_slice, _warn_slice)
_CLASS = Endpoint(DeviceClass, _prepare_class, _check_class)
_TAINT_RULE = Endpoint(DeviceTaintRule, _prepare_taint_rule, _check_taint_rule)

#: By (operation, kind, subresource).
ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "ResourceSlice", ""): _SLICE,
    ("update", "ResourceSlice", ""): _SLICE,
    ("create", "ResourceClaim", ""): Endpoint(ResourceClaim, _prepare_claim, _check_claim_create),
    ("update", "ResourceClaim", ""): Endpoint(
        ResourceClaim, _prepare_claim, _check_claim_update, restores=("status",)
    ),
    ("update", "ResourceClaim", "status"): Endpoint(
        ResourceClaim, _prepare_claim_status, _check_claim_status, restores=("spec",)
    ),
    ("create", "ResourceClaimTemplate", ""): Endpoint(
        ResourceClaimTemplate, _prepare_template, _check_template_create
    ),
    ("update", "ResourceClaimTemplate", ""): Endpoint(
        ResourceClaimTemplate, _prepare_template, _check_template_update
    ),
    ("create", "DeviceClass", ""): _CLASS,
    ("update", "DeviceClass", ""): _CLASS,
    ("create", "DeviceTaintRule", ""): _TAINT_RULE,
    ("update", "DeviceTaintRule", ""): _TAINT_RULE,
    ("update", "DeviceTaintRule", "status"): Endpoint(
        DeviceTaintRule, _prepare_taint_rule_status, _check_taint_rule_status
    ),
    **POD_ENDPOINTS,
    **NODE_ENDPOINTS,
    **NAMESPACE_ENDPOINTS,
    **EVENT_ENDPOINTS,
    **LEASE_ENDPOINTS,
    **PRIORITY_CLASS_ENDPOINTS,
    **QUOTA_ENDPOINTS,
}
