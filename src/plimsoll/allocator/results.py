"""Allocation results for the status of claims.

docs/spec/allocator.md, "Building the result": device results, configuration of classes and claim, and the
node selector of the allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll.allocator.devices.capacity import Consumption
from plimsoll.allocator.devices.node_devices import DeviceEntry, NodeDevices
from plimsoll.allocator.input_errors import NODE_SELECTOR_TERMS, AllocationFault
from plimsoll.allocator.request_matching import RequestPlan, RequestSet
from plimsoll.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from plimsoll.api.node_selection import NAME_FIELD
from plimsoll.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)

FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"


def device_result(
    plan: RequestPlan, entry: DeviceEntry, share_id: str | None
) -> DeviceRequestAllocationResult:
    """Return the result for one device, or a share of one, as recorded in the claim's status."""
    consumed = plan.consumptions[entry.capacity] if entry.shareable else None
    device = entry.device
    return DeviceRequestAllocationResult(
        request=plan.name,
        driver=entry.id.driver,
        pool=entry.id.pool,
        device=entry.id.device,
        admin_access=True if plan.admin else None,
        tolerations=plan.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share_id,
        consumed_capacity=dict(consumed.amounts) if isinstance(consumed, Consumption) else {},
        skip_node_operations=entry.view.slice.spec.skip_node_operations,
    )


def build_results(
    order: RequestSet,
    picks: Sequence[tuple[RequestPlan, int]],
    chosen: Sequence[RequestPlan],
    devices: NodeDevices,
    new_id: Callable[[], str],
) -> list[AllocationResult] | AllocationFault:
    """Build one allocation per claim; `chosen` is the plan that served each step."""
    allocations = []
    for number, claim in enumerate(order.claims):
        mine = [(plan, devices.entries[device]) for plan, device in picks if plan.claim == number]
        selector = _node_selector(claim, [entry for _, entry in mine], devices.node.metadata.name)
        if isinstance(selector, AllocationFault):
            return selector
        results = [device_result(plan, entry, new_id() if entry.shareable else None) for plan, entry in mine]
        plans = [plan for plan in chosen if plan.claim == number]
        made = DeviceAllocationResult(results=tuple(results), config=_configuration(claim, plans))
        allocations.append(AllocationResult(devices=made, node_selector=selector))
    return allocations


def _configuration(
    claim: ResourceClaim, plans: Sequence[RequestPlan]
) -> tuple[DeviceAllocationConfiguration, ...]:
    """Return the configuration: of each class once, then the claim's for the requests that were served."""
    configured = claim.spec.devices.config
    if not configured and not any(plan.device_class.spec.config for plan in plans):
        return ()
    made: list[DeviceAllocationConfiguration] = []
    users: dict[str, list[str]] = {}
    for plan in plans:
        users.setdefault(plan.device_class.metadata.name, []).append(plan.name)
    for plan in plans:
        requests = users.pop(plan.device_class.metadata.name, None)
        if requests is not None:
            made += [
                DeviceAllocationConfiguration(
                    source=FROM_CLASS, requests=tuple(requests), opaque=config.opaque
                )
                for config in plan.device_class.spec.config
            ]
    # DIFF: Kubernetes 1.36 lists a claim's configuration once per request it names; 1.37 and Plimsoll once.
    # Test: test_claim_configuration_is_listed_once
    made += [
        DeviceAllocationConfiguration(source=FROM_CLAIM, requests=config.requests, opaque=config.opaque)
        for config in configured
        if not config.requests or any(_names(config.requests, plan) for plan in plans)
    ]
    # DIFF: Kubernetes 1.36 lists the requests even if they are all; 1.37 and Plimsoll leave the list empty.
    # Test: test_configuration_for_all_requests_names_none
    return tuple(
        DeviceAllocationConfiguration(source=config.source, opaque=config.opaque)
        if config.requests and all(_names(config.requests, plan) for plan in plans)
        else config
        for config in made
    )


def _names(requests: Sequence[str], plan: RequestPlan) -> bool:
    """Return whether a list of requests names this plan, as a request or a subrequest."""
    return (plan.parent or plan.name) in requests or plan.name in requests


def _node_selector(
    claim: ResourceClaim, entries: Sequence[DeviceEntry], node_name: str
) -> NodeSelector | AllocationFault | None:
    """Return the node selector: this node, the terms of the devices, or none."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for entry in entries:
        spec = entry.view.slice.spec
        source = entry.device if spec.per_device_node_selection else spec
        if source.node_name is not None or entry.device.binds_to_node:
            requirement = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=(node_name,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))
        if source.node_selector is None:
            continue
        terms = source.node_selector.node_selector_terms
        if len(terms) > 1:
            return AllocationFault(NODE_SELECTOR_TERMS, {"claim": claim.metadata.name, "terms": len(terms)})
        for term in terms:
            _merge(fields, term.match_fields)
            _merge(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(expressions))
    return NodeSelector(node_selector_terms=(term,))


def _merge(known: list[NodeSelectorRequirement], more: Sequence[NodeSelectorRequirement]) -> None:
    for new in more:
        if not any(
            old.key == new.key and old.operator == new.operator and set(old.values) == set(new.values)
            for old in known
        ):
            known.append(new)
