"""Effective requests and limits of a pod.

`pod_requests` and `pod_limits` with all options of the Kubernetes helpers (docs/spec/accounting.md,
"PodRequests and PodLimits" and "Changes in 1.37"), in two forms. In 1.36 claims count in requests only, and
the status of a resized pod counts per container. In 1.37 claims count in limits too, and the status counts as
sums. The draft form is computed as 1.37.

`PodResourcesOptions.count_claims` enables claims; the argument `charges` defaults to those in the pod's
status.

DIFF: computing requests does not change the pod; upstream adds the overhead to pod-level amounts that it
stores as big decimals (1.5Gi), so that they grow with each call (test_reading_changes_nothing).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from msgspec.structs import replace as with_fields

from plimsoll.api.core import Container, Pod, PodSpec, ResourceList
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.ledger import in_place
from plimsoll.ledger.amounts import Amounts, add_amounts, is_huge_page, max_amounts, raise_amounts
from plimsoll.ledger.charges import read_charges, sum_pod_charges
from plimsoll.ledger.containers import ContainerUse, list_uses, sum_with_init_containers
from plimsoll.ledger.in_place import is_resize_infeasible

#: Requests assumed for a container without any, for scoring (NonZeroRequested).
NON_ZERO_CPU = Quantity.of(100, scale=-3)
NON_ZERO_MEMORY = Quantity.of(200 << 20, Format.DECIMAL_SI)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResourcesOptions:
    """Options for a pod's requests and limits; as in Kubernetes all are off by default."""

    form: Form = Form.V1_36
    count_claims: bool = False  #: claim charges (useDRANodeAllocatableResourceClaimStatus)
    claims_in_qos: bool = False  #: claim charges count in QoS classes, too
    use_status: bool = False  #: what the node reports for a resized pod (useStatusResources)
    in_place_pod_level: bool = False  #: the same for pod-level resources
    exclude_overhead: bool = False
    skip_pod_level: bool = False
    skip_containers: bool = False  #: applies to requests only, as upstream; excludes claims, too
    non_missing: Mapping[str, Quantity] = field(default_factory=dict, hash=False)  #: fills absent requests


DEFAULTS = PodResourcesOptions()


@lru_cache(maxsize=64)
def without_status(options: PodResourcesOptions) -> PodResourcesOptions:
    """Return the options for a pod that is not running: its status is ignored."""
    return replace(options, use_status=False, in_place_pod_level=False)


def without_served_resources(pod: Pod) -> Pod:
    """Return a pod without the requests for extended resources that devices of its claim serve.

    A container keeps its request if the claim serves the resource for other containers only.
    """
    status = pod.status.extended_resource_claim_status
    if status is None:
        return pod
    served = {(mapping.container_name, mapping.resource_name) for mapping in status.request_mappings}

    def unserved(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            with_fields(
                each,
                resources=with_fields(
                    each.resources,
                    requests={
                        name: amount
                        for name, amount in each.resources.requests.items()
                        if (each.name, name) not in served
                    },
                ),
            )
            for each in containers
        )

    spec = pod.spec
    return with_fields(
        pod,
        spec=with_fields(
            spec, containers=unserved(spec.containers), init_containers=unserved(spec.init_containers)
        ),
    )


# -- predicates


def is_pod_level_resource(name: str) -> bool:
    """Return whether a resource is supported at pod level."""
    return name in ("cpu", "memory") or is_huge_page(name)


def has_pod_level_requests(pod: Pod) -> bool:
    """Return whether the pod has supported pod-level requests."""
    return pod.spec.resources is not None and any(map(is_pod_level_resource, pod.spec.resources.requests))


def has_pod_level_limits(pod: Pod) -> bool:
    """Return whether the pod has supported pod-level limits."""
    return pod.spec.resources is not None and any(map(is_pod_level_resource, pod.spec.resources.limits))


def has_pod_level_resources(pod: Pod) -> bool:
    """Return whether the pod has supported pod-level requests or limits."""
    return has_pod_level_requests(pod) or has_pod_level_limits(pod)


# -- requests


def pod_requests(
    pod: Pod, options: PodResourcesOptions = DEFAULTS, charges: Iterable[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """Return the total requests of a pod."""
    requests = {} if options.skip_containers else aggregate_container_requests(pod, options, charges)
    if not options.skip_pod_level and has_pod_level_requests(pod):
        _replace_by_pod_level(requests, pod, options, limits=False)
    if not options.exclude_overhead:
        add_amounts(requests, pod.spec.overhead)
    return requests


def aggregate_container_requests(
    pod: Pod, options: PodResourcesOptions = DEFAULTS, charges: Iterable[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """Return the sum of the container requests, including claim charges."""
    extra = _extra(pod, options, charges)
    if options.form is Form.V1_36 and options.use_status and _has_reports(pod):
        total = sum_with_init_containers(*in_place.list_container_requests(pod, True, options.non_missing))
        add_amounts(total, extra)
        return total
    spec = _spec_sum(pod, options.non_missing)
    add_amounts(spec, extra)
    if options.form is Form.V1_36 or not options.use_status:
        return spec
    reported = in_place.reported_requests(pod, options.in_place_pod_level, options.non_missing, extra)
    if is_resize_infeasible(pod):
        return reported
    raise_amounts(spec, reported)
    return spec


def _has_reports(pod: Pod) -> bool:
    return bool(pod.status.container_statuses or pod.status.init_container_statuses)


def _spec_sum(pod: Pod, non_missing: Amounts) -> dict[str, Quantity]:
    """Return the sum of the container requests in the spec; the caller may modify it."""
    if non_missing:
        return sum_with_init_containers(*in_place.list_container_requests(pod, False, non_missing))
    if len(pod.spec.containers) == 1 and not pod.spec.init_containers:
        return dict(pod.spec.containers[0].resources.requests)
    spec, total = _last[0]
    if spec is not pod.spec:
        total = sum_with_init_containers(*in_place.list_container_requests(pod, False, {}))
        _last[0] = (pod.spec, total)
    return dict(total)


#: The last spec and its sum: a pod being scheduled is evaluated several times in a row.
_last: list[tuple[PodSpec | None, dict[str, Quantity]]] = [(None, {})]


# -- limits


def pod_limits(
    pod: Pod, options: PodResourcesOptions = DEFAULTS, charges: Iterable[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """Return the total limits of a pod; overhead is added to existing nonzero limits."""
    limits = aggregate_container_limits(pod, options, charges)
    if not options.skip_pod_level and has_pod_level_resources(pod):
        _replace_by_pod_level(limits, pod, options, limits=True)
    if not options.exclude_overhead:
        for name, amount in pod.spec.overhead.items():
            if limits.get(name, ZERO):
                limits[name] += amount
    return limits


def aggregate_container_limits(
    pod: Pod, options: PodResourcesOptions = DEFAULTS, charges: Iterable[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """Return the sum of the container limits; since 1.37 including claim charges."""
    if options.form is Form.V1_36:
        return sum_with_init_containers(*in_place.list_container_limits(pod, options.use_status))
    spec = sum_with_init_containers(*in_place.list_container_limits(pod, False))
    for name, amount in _extra(pod, options, charges).items():
        # An amount without a limit is unlimited; huge pages always have a limit.
        if name in spec or is_huge_page(name):
            spec[name] = spec.get(name, ZERO) + amount
    if not options.use_status:
        return spec
    reported = in_place.reported_limits(pod, options.in_place_pod_level)
    if is_resize_infeasible(pod):
        return reported
    raise_amounts(spec, reported)
    return spec


def list_limit_uses(pod: Pod, options: PodResourcesOptions = DEFAULTS) -> tuple[ContainerUse, ...]:
    """List the limits in use while each container runs, in the order of upstream."""
    return list_uses(*in_place.list_container_limits(pod, options.use_status))


# -- parts


def _extra(
    pod: Pod, options: PodResourcesOptions, charges: Iterable[ClaimCharge] | None
) -> dict[str, Quantity]:
    if not options.count_claims:
        return {}
    return sum_pod_charges(read_charges(pod) if charges is None else charges)


def _replace_by_pod_level(
    total: dict[str, Quantity], pod: Pod, options: PodResourcesOptions, *, limits: bool
) -> None:
    """Replace sums by pod-level values, which include claims, in `total`."""
    assert pod.spec.resources is not None
    spec: ResourceList = pod.spec.resources.limits if limits else pod.spec.resources.requests
    effective: Amounts = spec
    names: Iterable[str] = spec
    if options.in_place_pod_level and options.use_status and pod.status.resources is not None:
        lists = (
            (pod.status.resources.limits,)
            if limits
            else (pod.status.resources.requests, pod.status.allocated_resources)
        )
        effective = max_amounts(*lists) if is_resize_infeasible(pod) else max_amounts(spec, *lists)
        if options.form is not Form.V1_36:
            names = effective
        elif limits and is_resize_infeasible(pod) and not pod.status.resources.limits:
            effective = spec  # 1.36 falls back to the spec if the node reports no limits
    for name in names:
        if is_pod_level_resource(name):
            total[name] = effective.get(name, ZERO)
