"""Suite `qos-cgroup`: QoS classes, cgroup values, container resources and OOM scores.

Compares every key in `want`. Rows say which Kubernetes they are of; those of 1.37 also have requests, limits
and what claims give to each container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import Form, read_status
from plimsoll.api.quantity import Quantity
from plimsoll.ledger import requests
from plimsoll.ledger.claim_shares import compute_claim_shares
from plimsoll.ledger.qos import qos_class
from plimsoll.node import cgroup_plans as cgroups
from plimsoll.node.cgroup_plans.containers import RuntimeResources
from plimsoll.node.cgroup_plans.conversions import shares_to_weight
from tests.conformance.pod_requests import read_amounts


def check(row: dict[str, Any]) -> str | None:
    form = Form.V1_37 if row["kubernetes"].startswith("v1.37") else Form.V1_36
    found = _tiers(row["in"], form) if row["kind"] == "qos_tier" else _pod(row["in"], form)
    for key, wanted in row["want"].items():
        if (text := _differ(key, wanted, found.get(key))) is not None:
            return text
    extra = {key for key, value in found.items() if value is not None} - row["want"].keys()
    # Rows of 1.36 have no requests and limits; every other value of ours must be expected.
    extra -= _AMOUNTS.keys() | {"container_dra_allocations"} if form is Form.V1_36 else set()
    return f"{sorted(extra)} was not wanted" if extra else None


_AMOUNTS = {
    "pod_requests": requests.pod_requests,
    "pod_limits": requests.pod_limits,
    "aggregate_requests": requests.aggregate_container_requests,
    "aggregate_limits": requests.aggregate_container_limits,
}


def _pod(given: dict[str, Any], form: Form) -> dict[str, Any]:
    pod = codec.convert(given["pod"], Pod)
    settings = _read_settings(given["kubelet"], form)
    exclusive = given["kubelet"]["exclusiveCPUContainers"]
    plan = cgroups.plan_pod(pod, settings, exclusive=exclusive)
    sandbox = cgroups.plan_sandbox(pod, settings, exclusive=exclusive)
    containers = cgroups.plan_containers(pod, settings, exclusive=exclusive)
    shares = compute_claim_shares(pod, read_status(pod.status))
    return {
        "qos": qos_class(pod.spec, form, pod_level=settings.pod_level),
        "pod_cgroup": _without_none(
            cpuShares=plan.cpu_shares,
            cpuWeight=shares_to_weight(plan.cpu_shares),
            cpuQuota=plan.cpu_quota,
            cpuPeriod=plan.cpu_period,
            memory=plan.memory,
            hugePageLimit={str(size): limit for size, limit in plan.huge_pages.items()},
            unified=plan.unified or None,
        ),
        "containers": [_as_container(container) for container in containers],
        "sandbox": _as_runtime(sandbox.resources),
        "sandbox_overhead": None if sandbox.overhead is None else _as_runtime(sandbox.overhead),
        "container_dra_allocations": {name: a for name, a in shares.containers.items() if a},
        **{key: total(pod, settings.options) for key, total in _AMOUNTS.items()},
    }


def _tiers(given: dict[str, Any], form: Form) -> dict[str, Any]:
    settings = _switch(cgroups.CgroupSettings(memory_capacity=1, form=form), given["features"])
    plan = cgroups.plan_qos_cgroups([codec.convert(pod, Pod) for pod in given["pods"]], settings)
    return {
        "besteffort_cpu_shares": plan.best_effort_shares,
        "burstable_cpu_shares": plan.burstable_shares,
        "burstable_cpu_weight": shares_to_weight(plan.burstable_shares),
        "memory_requests": dict(plan.memory_requests),
    }


def _switch(settings: cgroups.CgroupSettings, features: Mapping[str, bool]) -> cgroups.CgroupSettings:
    return replace(
        settings,
        count_claims=features["DRANodeAllocatableResources"],
        pod_level=features["PodLevelResources"],
        memory_qos=features["MemoryQoS"],
    )


def _read_settings(kubelet: dict[str, Any], form: Form) -> cgroups.CgroupSettings:
    settings = cgroups.CgroupSettings(
        form=form,
        memory_capacity=kubelet["machineMemoryBytes"],
        reservation=cgroups.MemoryReservationPolicy(kubelet["memoryReservationPolicy"]),
        throttling=Fraction(str(kubelet["memoryThrottlingFactor"])),
        allocatable_memory=Quantity.parse(kubelet["nodeAllocatableMemory"]).value(),
        cgroup_version=kubelet["cgroupVersion"],
        cfs_quota=kubelet["cpuCFSQuota"],
        cfs_period=kubelet["cpuCFSQuotaPeriodUS"],
        single_process_oom_kill=kubelet["singleProcessOOMKill"],
        huge_page_sizes=tuple(kubelet["hugePageSizes"]),
        page_size=kubelet["pageSize"],
    )
    return _switch(settings, kubelet["features"])


def _as_container(plan: cgroups.ContainerPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "type": plan.role.value,
        "oomScoreAdj": plan.oom_score_adj,
        "hugepageLimits": dict(plan.huge_pages),
        **_as_runtime(plan),
    }


def _as_runtime(resources: RuntimeResources) -> dict[str, Any]:
    return _without_none(
        cpuShares=resources.cpu_shares,
        cpuQuota=resources.cpu_quota,
        cpuPeriod=resources.cpu_period,
        memoryLimitInBytes=resources.memory_limit,
        unified=dict(resources.unified) or None,
    )


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _differ(key: str, wanted: Any, found: Any) -> str | None:
    if key in _AMOUNTS:
        wanted = read_amounts(wanted)
    elif key == "container_dra_allocations":
        wanted = {name: read_amounts(amounts) for name, amounts in wanted.items()}
    elif key == "containers" and len(wanted) == len(found):
        for one, other in zip(wanted, found, strict=True):
            if one != other:
                return f"container {one['name']} is {other}, wanted {one}"
    return None if wanted == found else f"{key} is {found}, wanted {wanted}"
