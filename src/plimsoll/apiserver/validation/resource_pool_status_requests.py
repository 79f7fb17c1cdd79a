"""Strategy of ResourcePoolStatusRequest (`resource.k8s.io/v1alpha3`, KEP-5677).

A request is processed once: its spec never changes, and its status, which is absent until a controller writes
it, not after that.

DIFF: with DRAResourcePoolStatus disabled, requests cannot be created; upstream does not serve them
(test_pool_status_requests_need_their_gate).
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.names import byte_length, dns_subdomain
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.conditions import validate_conditions
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import (
    OBJECT_ROOT,
    FieldError,
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
)
from plimsoll.apiserver.validation.metadata import (
    IMMUTABLE,
    reset_for_status,
    validate_metadata,
    validate_metadata_update,
)
from plimsoll.apiserver.validation.name_formats import validate_format, validate_pool, validate_subdomain
from plimsoll.apiserver.validation.object_trees import copy_tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

LIMIT_MAX = 1000
CONDITIONS_MAX = 10
ERROR_BYTES_MAX = 256

_SPEC, _STATUS = FieldPath("spec"), FieldPath("status")
_REQUEST = view_of("resource.v1alpha3.ResourcePoolStatusRequest")
#: Numbers of a pool, by JSON name: attribute and minimum.
_NUMBERS = {
    "resourceSliceCount": ("resource_slice_count", 1),
    "totalDevices": ("total_devices", 0),
    "allocatedDevices": ("allocated_devices", 0),
    "availableDevices": ("available_devices", 0),
    "unavailableDevices": ("unavailable_devices", 0),
}


def _prepare(write: WriteContext[View]) -> None:
    write.restore_fields("status")


def _validate(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    if not write.is_create:
        yield from validate_metadata_update(write.metadata, write.old_metadata)
        if not semantic_equal(write.old.spec, spec):
            yield invalid(_SPEC, None, IMMUTABLE)
        return
    if not write.gates.enabled("DRAResourcePoolStatus"):
        yield forbidden(OBJECT_ROOT, "pool status requests need the feature gate DRAResourcePoolStatus")
    yield from validate_metadata(write.metadata, namespaced=False)
    yield from _validate_driver(spec.driver, _SPEC.child("driver"))
    if spec.pool_name == "":
        yield invalid(_SPEC.child("poolName"), "", "must not be empty")
    elif spec.pool_name is not None:
        yield from validate_pool(spec.pool_name, _SPEC.child("poolName"))
    if spec.limit is not None and not 1 <= spec.limit <= LIMIT_MAX:
        yield invalid(_SPEC.child("limit"), spec.limit, f"must be from 1 to {LIMIT_MAX}")


def _prepare_status(write: WriteContext[View]) -> None:
    write.restore_fields("spec")
    reset_for_status(write.metadata_tree(), copy_tree(subtree(write.old_tree, "metadata")))


def _validate_status(write: WriteContext[View]) -> FieldErrors:
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    status, old = write.new.status, write.old.status
    if old is not None:
        if not semantic_equal(old, status):
            yield invalid(_STATUS, None, IMMUTABLE)
        return
    if status is None:
        return
    if status.pool_count is None:
        yield required(_STATUS.child("poolCount"))
    elif status.pool_count < 0:
        yield _too_small(_STATUS.child("poolCount"), status.pool_count, 0)
    path = _STATUS.child("pools")
    if len(status.pools) > LIMIT_MAX:
        yield too_many(path, len(status.pools), LIMIT_MAX)
        return
    for index, pool in enumerate(status.pools):
        yield from _validate_pool_status(pool, path.index(index))
    yield from validate_conditions(status.conditions, CONDITIONS_MAX, _STATUS.child("conditions"))


def _validate_pool_status(pool: View, path: FieldPath) -> FieldErrors:
    yield from _validate_driver(pool.driver, path.child("driver"))
    if not pool.pool_name:
        yield required(path.child("poolName"))
    else:
        yield from validate_pool(pool.pool_name, path.child("poolName"))
    if not pool.generation:  # upstream cannot distinguish 0 from absent
        yield required(path.child("generation"))
    elif pool.generation < 0:
        yield _too_small(path.child("generation"), pool.generation, 0)
    for name, (attribute, minimum) in _NUMBERS.items():
        value = getattr(pool, attribute)
        if value is not None and value < minimum:
            yield _too_small(path.child(name), value, minimum)
    if pool.node_name is not None:
        yield from validate_subdomain(pool.node_name, path.child("nodeName"))
    if pool.validation_error is not None and byte_length(pool.validation_error) > ERROR_BYTES_MAX:
        yield too_long(path.child("validationError"), ERROR_BYTES_MAX)


def _validate_driver(name: str, path: FieldPath) -> FieldErrors:
    """Validate a driver name of any length that a subdomain may have, unlike those in slices."""
    if not name:
        yield required(path)
    else:
        yield from validate_format(name, path, lambda text: dns_subdomain(text.lower()))


def _too_small(path: FieldPath, value: int, minimum: int) -> FieldError:
    return invalid(path, value, f"must be greater than or equal to {minimum}")


_STRATEGY = WriteStrategy(_REQUEST, _prepare, _validate)

POOL_STATUS_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "ResourcePoolStatusRequest", ""): _STRATEGY,
    ("update", "ResourcePoolStatusRequest", ""): _STRATEGY,
    ("update", "ResourcePoolStatusRequest", "status"): WriteStrategy(
        _REQUEST, _prepare_status, _validate_status
    ),
}
