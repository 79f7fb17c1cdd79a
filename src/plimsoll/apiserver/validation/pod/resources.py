"""Requests and limits: of containers, of the pod as a whole, and what it takes beside them.

Claims of containers are in `claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.api.core import ResourceList, ResourceRequirements
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import is_extended_resource, is_node_allocatable
from plimsoll.apiserver.validation.pod.pod_view import WholePod, WholePodSpec
from plimsoll.apiserver.validation.resource_names import (
    check_amount,
    check_resource,
    fits_pages,
    is_container_resource,
    is_huge_page,
)
from plimsoll.ledger.requests import container_limits_sum, container_requests_sum, is_pod_level_resource

_COMPUTE = ("cpu", "memory")
_POD_LEVEL = ("cpu", "hugepages-*", "memory")


def check_container_resource(name: str, path: Path) -> Problems:
    yield from check_resource(name, path)
    if "/" not in name:
        if not is_container_resource(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_node_allocatable(name) and not is_extended_resource(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _check_pod_resource(name: str, path: Path) -> Problems:
    problems = list(check_resource(name, path))
    yield from problems
    if not problems and not is_pod_level_resource(name):
        yield not_supported(path, name, _POD_LEVEL)


def check_requirements(resources: ResourceRequirements, path: Path, *, any_pages: bool) -> Problems:
    """Requests and limits of a container; `any_pages` lets parts of huge pages be, stored already."""
    return _check(resources.requests, resources.limits, check_container_resource, path, any_pages)


def check_overhead(overhead: ResourceList, path: Path, *, any_pages: bool) -> Problems:
    return _check({}, overhead, check_container_resource, path, any_pages)


def may_overcommit(name: str) -> bool:
    return is_node_allocatable(name) and not is_huge_page(name)


def _check(
    requests: ResourceList,
    limits: ResourceList,
    check_name: Callable[[str, Path], Problems],
    path: Path,
    any_pages: bool,
) -> Problems:
    limited, requested = path.child("limits"), path.child("requests")
    for name, amount in limits.items():
        yield from _check_one(name, amount, check_name, limited.key(name), any_pages)
    for name, amount in requests.items():
        yield from _check_one(name, amount, check_name, requested.key(name), any_pages)
        limit = limits.get(name)
        if limit is None:
            if not may_overcommit(name):
                yield required(limited, "Limit must be set for non overcommitable resources")
        elif amount != limit and not may_overcommit(name):
            yield invalid(requested, amount, f"must be equal to {name} limit of {limit}")
        elif amount > limit:
            yield invalid(requested, amount, f"must be less than or equal to {name} limit of {limit}")
    names = requests.keys() | limits.keys()
    if any(map(is_huge_page, names)) and not names.intersection(_COMPUTE):
        yield forbidden(path, "HugePages require cpu or memory")


def _check_one(
    name: str, amount: Quantity, check_name: Callable[[str, Path], Problems], path: Path, any_pages: bool
) -> Problems:
    yield from check_name(name, path)
    yield from check_amount(name, amount, path)
    if is_huge_page(name) and not any_pages and not fits_pages(name, amount):
        yield invalid(path, amount, f"{amount} is not positive integer multiple of {name}")


# -- the pod as a whole


def check_pod_level(pod: WholePod, path: Path, *, any_pages: bool) -> Problems:
    """Resources of the pod must hold those of its containers."""
    spec = pod.spec
    if spec.resources is None:
        return
    if spec.os is not None and spec.os.name == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    requests, limits = spec.resources.requests, spec.resources.limits
    yield from _check(requests, limits, _check_pod_resource, path, any_pages)
    for name, amount in container_requests_sum(pod).items():
        if name in requests and amount > requests[name]:
            detail = f"must be greater than or equal to aggregate container requests of {amount}"
            yield invalid(path.child("requests").key(name), requests[name], detail)
    for name, amount in container_limits_sum(pod).items():
        if is_huge_page(name) and name in limits and amount > limits[name]:
            detail = f"must be greater than or equal to aggregate container limits of {amount}"
            yield invalid(path.child("limits").key(name), limits[name], detail)
    for place, container in enumerate(spec.containers):
        for name, amount in container.resources.limits.items():
            if name in limits and amount > limits[name]:
                at = path.child("containers").index(place).key(name).child("limits")
                yield invalid(at, amount, f"must be less than or equal to pod limits of {limits[name]}")


def has_odd_pages(spec: WholePodSpec) -> bool:
    """Whether a part of a huge page is asked for somewhere."""
    containers = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    lists = [
        spec.overhead,
        *(container.resources.requests for container in containers),
        *(container.resources.limits for container in containers),
    ]
    return any(
        is_huge_page(name) and not fits_pages(name, amount)
        for amounts in lists
        for name, amount in amounts.items()
    )
