"""Validation of requests and limits of containers and pods, and of pod overhead.

Claims of containers are in `claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.api.core import ResourceList, ResourceRequirements
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import is_extended_resource, is_node_allocatable
from plimsoll.apiserver.validation.resource_names import (
    is_huge_page_multiple,
    is_huge_page_resource,
    is_standard_container_resource,
    validate_resource,
    validate_resource_quantity,
)
from plimsoll.ledger.requests import (
    aggregate_container_limits,
    aggregate_container_requests,
    is_pod_level_resource,
)

_COMPUTE = ("cpu", "memory")
_POD_LEVEL = ("cpu", "hugepages-*", "memory")


def validate_container_resource(name: str, path: FieldPath) -> FieldErrors:
    yield from validate_resource(name, path)
    if "/" not in name:
        if not is_standard_container_resource(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_node_allocatable(name) and not is_extended_resource(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _validate_pod_resource(name: str, path: FieldPath) -> FieldErrors:
    errors = list(validate_resource(name, path))
    yield from errors
    if not errors and not is_pod_level_resource(name):
        yield not_supported(path, name, _POD_LEVEL)


def validate_requirements(
    resources: ResourceRequirements, path: FieldPath, *, allow_indivisible_huge_pages: bool
) -> FieldErrors:
    """Validate requests and limits of a container; stored ones may keep indivisible huge page values."""
    return _validate(
        resources.requests, resources.limits, validate_container_resource, path, allow_indivisible_huge_pages
    )


def validate_overhead(
    overhead: ResourceList, path: FieldPath, *, allow_indivisible_huge_pages: bool
) -> FieldErrors:
    return _validate({}, overhead, validate_container_resource, path, allow_indivisible_huge_pages)


def may_overcommit(name: str) -> bool:
    return is_node_allocatable(name) and not is_huge_page_resource(name)


def _validate(
    requests: ResourceList,
    limits: ResourceList,
    validate_name: Callable[[str, FieldPath], FieldErrors],
    path: FieldPath,
    allow_indivisible_huge_pages: bool,
) -> FieldErrors:
    limited, requested = path.child("limits"), path.child("requests")
    for name, amount in limits.items():
        yield from _validate_one(name, amount, validate_name, limited.key(name), allow_indivisible_huge_pages)
    for name, amount in requests.items():
        yield from _validate_one(
            name, amount, validate_name, requested.key(name), allow_indivisible_huge_pages
        )
        limit = limits.get(name)
        if limit is None:
            if not may_overcommit(name):
                yield required(limited, "Limit must be set for non overcommitable resources")
        elif amount != limit and not may_overcommit(name):
            yield invalid(requested, amount, f"must be equal to {name} limit of {limit}")
        elif amount > limit:
            yield invalid(requested, amount, f"must be less than or equal to {name} limit of {limit}")
    names = requests.keys() | limits.keys()
    if any(map(is_huge_page_resource, names)) and not names.intersection(_COMPUTE):
        yield forbidden(path, "HugePages require cpu or memory")


def _validate_one(
    name: str,
    amount: Quantity,
    validate_name: Callable[[str, FieldPath], FieldErrors],
    path: FieldPath,
    allow_indivisible_huge_pages: bool,
) -> FieldErrors:
    yield from validate_name(name, path)
    yield from validate_resource_quantity(name, amount, path)
    if (
        is_huge_page_resource(name)
        and not allow_indivisible_huge_pages
        and not is_huge_page_multiple(name, amount)
    ):
        yield invalid(path, amount, f"{amount} is not positive integer multiple of {name}")


# -- pod-level resources


def validate_pod_level(pod: View, path: FieldPath, *, allow_indivisible_huge_pages: bool) -> FieldErrors:
    """Validate pod-level resources, which must cover those of the containers."""
    spec = pod.spec
    if spec.resources is None:
        return
    if spec.os is not None and spec.os.name == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    requests, limits = spec.resources.requests, spec.resources.limits
    yield from _validate(requests, limits, _validate_pod_resource, path, allow_indivisible_huge_pages)
    for name, amount in aggregate_container_requests(pod).items():
        if name in requests and amount > requests[name]:
            detail = f"must be greater than or equal to aggregate container requests of {amount}"
            yield invalid(path.child("requests").key(name), requests[name], detail)
    for name, amount in aggregate_container_limits(pod).items():
        if is_huge_page_resource(name) and name in limits and amount > limits[name]:
            detail = f"must be greater than or equal to aggregate container limits of {amount}"
            yield invalid(path.child("limits").key(name), limits[name], detail)
    for index, container in enumerate(spec.containers):
        for name, amount in container.resources.limits.items():
            if name in limits and amount > limits[name]:
                at = path.child("containers").index(index).key(name).child("limits")
                yield invalid(at, amount, f"must be less than or equal to pod limits of {limits[name]}")


def has_indivisible_huge_pages(spec: View) -> bool:
    """Report whether a quantity of huge pages is not a multiple of the page size."""
    containers = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    lists = [
        spec.overhead,
        *(container.resources.requests for container in containers),
        *(container.resources.limits for container in containers),
    ]
    return any(
        is_huge_page_resource(name) and not is_huge_page_multiple(name, amount)
        for amounts in lists
        for name, amount in amounts.items()
    )
