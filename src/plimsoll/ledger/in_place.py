"""Requests and limits of containers while a pod is resized in place.

Three values can apply to a container: the desired resources in the spec, the allocated ones
(`allocatedResources`) and the actual ones (`resources` in the status). In 1.36 the maximum of the three
applies per container; in 1.37 each of the three is summed over the pod first. An infeasible resize excludes
the spec (docs/spec/accounting.md, "PodRequests and PodLimits", steps 1 and 6, and "Changes in 1.37").

An empty list in a status equals an absent one, as stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from plimsoll.api.core import Container, ContainerStatus, Pod
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.amounts import Amounts, add_amounts, max_amounts, raise_amounts
from plimsoll.ledger.containers import ContainerAmounts, is_sidecar, pair_amounts, sum_with_init_containers

PodAmounts: TypeAlias = "tuple[list[ContainerAmounts], list[ContainerAmounts]]"


def _resize_pending_reason(pod: Pod) -> str | None:
    """Return the reason of the first PodResizePending condition."""
    return next((c.reason for c in pod.status.conditions if c.type == "PodResizePending"), None)


def is_resize_infeasible(pod: Pod) -> bool:
    """Return whether the node reported the resize as infeasible."""
    return _resize_pending_reason(pod) == "Infeasible"


def is_resize_deferred(pod: Pod) -> bool:
    """Return whether the node reported the resize as deferred."""
    return _resize_pending_reason(pod) == "Deferred"


# -- 1.36: the greatest value of each container


def list_container_requests(pod: Pod, use_status: bool, non_missing: Amounts) -> PodAmounts:
    """List the requests of every container; absent ones are filled from `non_missing`."""
    infeasible = use_status and is_resize_infeasible(pod)

    def requests(container: Container, status: ContainerStatus | None) -> Amounts:
        own = container.resources.requests
        if status is not None and status.resources is not None:
            reported = (status.resources.requests, status.allocated_resources)
            own = max_amounts(*reported) if infeasible else max_amounts(own, *reported)
        return _fill(own, non_missing)

    return _list_from_spec(pod, use_status, requests)


def list_container_limits(pod: Pod, use_status: bool) -> PodAmounts:
    """List the limits of every container."""
    infeasible = use_status and is_resize_infeasible(pod)

    def limits(container: Container, status: ContainerStatus | None) -> Amounts:
        own = container.resources.limits
        if status is not None and status.resources is not None:
            own = status.resources.limits if infeasible else max_amounts(own, status.resources.limits)
        return own

    return _list_from_spec(pod, use_status, limits)


def _list_from_spec(
    pod: Pod, use_status: bool, amounts: Callable[[Container, ContainerStatus | None], Amounts]
) -> PodAmounts:
    """Pair containers with amounts; status values of plain init containers are ignored (never resized)."""
    statuses: dict[str, ContainerStatus] = {}
    if use_status:
        reported = (*pod.status.container_statuses, *pod.status.init_container_statuses)
        statuses = {status.name: status for status in reported}
    return (
        [(c, amounts(c, statuses.get(c.name))) for c in pod.spec.containers],
        [(c, amounts(c, statuses.get(c.name) if is_sidecar(c) else None)) for c in pod.spec.init_containers],
    )


def _fill(amounts: Amounts, non_missing: Amounts) -> Amounts:
    return {**non_missing, **amounts} if non_missing else amounts


# -- 1.37: sums of what the node reports


def reported_requests(
    pod: Pod, in_place_pod_level: bool, non_missing: Amounts, extra: Amounts
) -> dict[str, Quantity]:
    """Return the maximum of allocated and actual requests; `extra` are the claim charges.

    The node's pod-level values include claims. The allocated resources of containers do not, so claims are
    added there; the actual resources of containers include them.
    """
    resources = pod.status.resources
    pod_level = in_place_pod_level and resources is not None and resources.requests
    if pod_level and resources is not None and pod.status.allocated_resources:
        return max_amounts(resources.requests, pod.status.allocated_resources)
    infeasible = is_resize_infeasible(pod)

    def allocated(container: Container, status: ContainerStatus | None) -> Amounts:
        if status is not None and status.allocated_resources:
            return status.allocated_resources
        return {} if infeasible else container.resources.requests

    def applied(container: Container, status: ContainerStatus | None) -> Amounts:
        if status is not None and status.resources is not None and status.resources.requests:
            return status.resources.requests
        return allocated(container, status)

    total = sum_with_init_containers(
        *_list_from_status(pod, lambda c, s: _fill(allocated(c, s), non_missing))
    )
    add_amounts(total, extra)
    in_effect = sum_with_init_containers(
        *_list_from_status(pod, lambda c, s: _fill(applied(c, s), non_missing))
    )
    # Draws from pools reduce the charge to the node, regardless of the reported requests.
    add_amounts(in_effect, {name: amount for name, amount in extra.items() if amount < ZERO})
    raise_amounts(total, in_effect)
    return total


def reported_limits(pod: Pod, in_place_pod_level: bool) -> dict[str, Quantity]:
    """Return the actual limits; claims are included."""
    resources = pod.status.resources
    if in_place_pod_level and resources is not None and resources.limits:
        return dict(resources.limits)
    infeasible = is_resize_infeasible(pod)

    def applied(container: Container, status: ContainerStatus | None) -> Amounts:
        if status is not None and status.resources is not None and status.resources.limits:
            return status.resources.limits
        return {} if infeasible else container.resources.limits

    return sum_with_init_containers(*_list_from_status(pod, applied))


def _list_from_status(
    pod: Pod, amounts: Callable[[Container, ContainerStatus | None], Amounts]
) -> PodAmounts:
    """Pair containers with amounts by status; of duplicate names the first counts, regular containers
    first.
    """
    statuses: dict[str, ContainerStatus] = {}
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        statuses.setdefault(status.name, status)
    return pair_amounts(pod, lambda container: amounts(container, statuses.get(container.name)))
