"""Check of nodes that advertise the same hardware through a device plugin and through a DRA driver."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.allocator import AllocationFault
from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.extended_resources import served_resources
from plimsoll.scheduler.filters.mixed_advertisers import advertised_resources, paired_drivers
from plimsoll.tools.audit.facts import AuditFacts, HeldDevice
from plimsoll.tools.audit.findings import CheckProblem, list_first
from plimsoll.tools.columns import format_count
from plimsoll.tools.findings import Severity


def find_mixed_advertisers(facts: AuditFacts) -> Iterator[CheckProblem]:
    snapshot = facts.cluster_state.snapshot
    for row in snapshot.rows():
        node = snapshot.node(row)
        for resource in advertised_resources(node):
            devices = snapshot.inventory.devices_for(node)
            if isinstance(devices, AllocationFault):
                break
            drivers = paired_drivers(resource, devices, snapshot)
            offered = [each.id for each in devices.entries if each.id.driver in drivers]
            if not offered:
                continue
            pods = [pod for pod in snapshot.pods_at(row) if _requests(pod, resource)]
            claimed = [
                held
                for device in offered
                for held in facts.held.get(device, ())
                if not held.result.admin_access
            ]
            yield _problem(node, resource, sorted(drivers), len(offered), pods, claimed)


def _requests(pod: Pod, resource: str) -> bool:
    """Return whether a pod has units of the device plugin; devices may serve the resource as well."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    amounts = (each.resources.requests.get(resource) for each in containers)
    return resource not in served_resources(pod) and any(
        each is not None and not each.is_zero() for each in amounts
    )


def _problem(
    node: Node, resource: str, drivers: list[str], offered: int, pods: list[Pod], claimed: list[HeldDevice]
) -> CheckProblem:
    units = node.status.allocatable[resource]
    driver = ", ".join(drivers)
    message = f"advertises {resource} ({units}) and {format_count(offered, 'device')} of {driver}"
    evidence = [f"Pod/{pod.metadata.full_name} requests {resource}" for pod in pods]
    evidence += [f"ResourceClaim/{held.name} holds {held.id}" for held in claimed]
    if pods and claimed:
        message += (
            f", and both are in use: by {format_count(len(pods), 'pod')} and as "
            f"{format_count(len(claimed), 'allocated device')}; which units the pods have is not in the API, "
            "so one may be given out twice"
        )
    return CheckProblem(
        f"Node/{node.metadata.name}",
        message,
        list_first(evidence),
        key=resource,
        severity=Severity.ERROR if pods and claimed else Severity.WARNING,
    )


CHECKS = {
    "PLM035": find_mixed_advertisers,
}
