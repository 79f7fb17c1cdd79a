"""Steps for refusals by devices: counts, selectors, classes, constraints, capacities, taints, pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, Refusal
from plimsoll.allocator.devices.capacity import OFF_STEP, UNDEFINED
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.allocator.input_errors import TOO_MANY_DEVICES
from plimsoll.allocator.reasons.refusal import CapacityShortage, RefusalRule, RequestRefusal
from plimsoll.api.core import PodResourceClaim
from plimsoll.api.identity import PoolId
from plimsoll.api.pod_claims import device_requests, resolve_claim_names
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    MAX_ALLOCATION_RESULTS,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.devices.exact import is_usable_on
from plimsoll.scheduler.extended_resources import is_in_memory
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.amounts import format_quantity
from plimsoll.tools.claim_users import users_of
from plimsoll.tools.fixes.fix import FixKind, FixStep, FixTarget, ObjectChange, edits_claim
from plimsoll.tools.fixes.node_steps import shrink
from plimsoll.tools.fixes.selector_values import replaced_values
from plimsoll.tools.fixes.similar import is_similar
from plimsoll.tools.fixes.trial import FixTrial

RequestBody: TypeAlias = "ExactDeviceRequest | DeviceSubRequest"
#: Devices of a node whose values are proposed for a selector.
_MAX_NEAREST = 16
#: Characters of a selector that are shown.
_SHOWN = 100
_ALL = "All"
#: Rules after the selectors: devices of the class are there, but cannot be used.
_SELECTORS = (RefusalRule.CLASS_SELECTOR, RefusalRule.REQUEST_SELECTOR, RefusalRule.FAILED)


def propose_for_devices(trial: FixTrial, reasons: Sequence[NodeReason]) -> Iterator[FixStep]:
    """Yield the steps that may resolve a refusal by the device search."""
    for reason in reasons:
        cause = reason.cause
        if isinstance(cause, Refusal):
            yield from _refusal_steps(trial, cause)
        elif isinstance(cause, Reason):
            yield from _sharing_steps(trial, cause)
        elif isinstance(cause, AllocationFault):
            yield from _fault_steps(trial, cause)
    yield from _elsewhere_steps(trial)


# -- claims as a whole


def _elsewhere_steps(trial: FixTrial) -> Iterator[FixStep]:
    """Propose to allocate a claim again that only this pod uses and that is allocated on other nodes."""
    for claim in trial.pod_info.claims:
        name, namespace = claim.metadata.name, claim.metadata.namespace
        users = {user.uid for user in claim.status.reserved_for} - {trial.pod.metadata.uid}
        if is_usable_on(claim, trial.node) or users:
            continue
        if any(each.spec.node_name for each in users_of(trial.cluster_state, namespace, name)):
            continue
        devices = tuple(f"{each.driver}/{each.pool}/{each.device}" for each in claim.allocation_results)
        facts = {"claim": claim.metadata.full_name, "devices": devices}
        yield FixStep(FixKind.RELEASE_CLAIM, facts, edits_claim(name, _unallocated))


def _unallocated(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, status=ResourceClaimStatus())


def _sharing_steps(trial: FixTrial, cause: Reason) -> Iterator[FixStep]:
    """Propose a claim of its own for a pod that cannot share one."""
    shared = (
        Cause.SHARED_BY_SEVERAL,
        Cause.USED_BY_ANOTHER,
        Cause.MAPPED_DEVICE_SHARED,
        Cause.POOL_EXHAUSTED,
    )
    names = {claim for entry, claim in resolve_claim_names(trial.pod).items() if entry}
    if cause.cause in shared and cause.claim in names:
        facts = {"claim": f"{cause.namespace}/{cause.claim}"}
        yield FixStep(FixKind.OWN_CLAIM, facts, partial(_use_copy, cause.claim))


def _use_copy(name: str, target: FixTarget) -> None:
    claim = target.find(ResourceClaim, name)
    if claim is None:
        return
    metadata = replace(claim.metadata, name=f"{name}-copy", uid=f"fix/{name}", owner_references=())
    target.changes.set(replace(_unallocated(claim), metadata=metadata))
    use_claim(name, metadata.name, target)


def use_claim(old: str, new: str, target: FixTarget) -> None:
    """Let the pod refer to another claim."""
    entries = {entry for entry, claim in resolve_claim_names(target.pod).items() if claim == old}
    target.edit_spec(
        resource_claims=tuple(
            PodResourceClaim(name=each.name, resource_claim_name=new) if each.name in entries else each
            for each in target.pod.spec.resource_claims
        )
    )


def _fault_steps(trial: FixTrial, fault: AllocationFault) -> Iterator[FixStep]:
    """Propose to remove the selectors of claims, one of which fails, or to request fewer devices."""
    for claim in _own_claims(trial):
        requests = dict(device_requests(claim))
        excess = sum(max(body.count, 1) for body in requests.values()) - MAX_ALLOCATION_RESULTS
        for name, body in requests.items():
            if fault.is_selector_error:
                yield from _dropped_selectors(claim.metadata.name, name, body)
            if fault.kind == TOO_MANY_DEVICES:
                takes_all = body.allocation_mode == _ALL
                count = MAX_ALLOCATION_RESULTS if takes_all else body.count - max(excess, 1)
                if count > 0:
                    yield _count_step(claim.metadata.name, name, count, 0 if takes_all else body.count)
    yield from _pool_steps(trial)


def _own_claims(trial: FixTrial) -> list[ResourceClaim]:
    """Return the unallocated claims that can be edited."""
    return [claim for claim in trial.pod_info.unallocated_claims if not is_in_memory(claim)]


# -- requests


def _refusal_steps(trial: FixTrial, refusal: Refusal) -> Iterator[FixStep]:
    claims = {claim.metadata.full_name: claim for claim in trial.pod_info.at_node(trial.node).claims}
    devices = trial.snapshot.inventory.devices_for(trial.node)
    for request in refusal.requests:
        claim = claims.get(request.claim)
        body = dict(device_requests(claim)).get(request.request) if claim is not None else None
        if claim is None or body is None or (request.served and not refusal.together):
            continue
        if is_in_memory(claim):
            yield from _extended_count_steps(trial, request, body)
            continue
        proposals = RequestProposals(trial, claim.metadata.name, request, body)
        yield from proposals.count_steps(_counts_in_group(refusal, request))
        yield from proposals.constraint_steps(claim)
        if not isinstance(devices, AllocationFault):
            yield from proposals.steps_on(devices)
    yield from _pool_steps(trial)


def _counts_in_group(refusal: Refusal, request: RequestRefusal) -> set[int]:
    """Return how many devices satisfy a constraint over several requests."""
    return {group.had for group in refusal.groups if request.request in group.requests}


def _extended_count_steps(trial: FixTrial, request: RequestRefusal, body: RequestBody) -> Iterator[FixStep]:
    """Propose a lower amount of the extended resources that a class serves."""
    for name, device_class in trial.pod_info.extended_classes.items():
        if device_class == body.device_class_name and request.left < request.wanted:
            yield from shrink(trial, name, request.wanted - request.left)


class RequestProposals:
    """Steps for one request of a claim that a node cannot serve."""

    def __init__(self, trial: FixTrial, claim: str, request: RequestRefusal, body: RequestBody) -> None:
        self._trial, self._claim, self._request, self._body = trial, claim, request, body
        found = trial.snapshot.classes.get(body.device_class_name)
        self._class = found
        self._class_selectors = expressions_of(found.spec.selectors if found is not None else ())
        self._selectors = expressions_of(body.selectors)

    def _step(
        self,
        kind: FixKind,
        change: Callable[[RequestBody], RequestBody],
        more_harm: int = 0,
        **facts: object,
    ) -> FixStep:
        name = self._request.request
        edit = edits_claim(self._claim, partial(edit_request, name, change))
        return FixStep(kind, {"request": name, "claim": self._claim, **facts}, edit, more_harm)

    def count_steps(self, also: set[int]) -> Iterator[FixStep]:
        """Propose to request fewer devices: as many as could be allocated, one less, or one."""
        request = self._request
        takes_all = self._body.allocation_mode == _ALL
        most = min(request.devices if takes_all else request.wanted - 1, MAX_ALLOCATION_RESULTS)
        counts = {request.left, request.largest_group or 0, request.wanted - 1, most, 1, *also}
        for count in sorted((each for each in counts if 1 <= each <= most), reverse=True):
            yield _count_step(self._claim, request.request, count, 0 if takes_all else request.wanted)

    def constraint_steps(self, claim: ResourceClaim) -> Iterator[FixStep]:
        """Propose to remove each constraint over the request."""
        head = self._request.request.partition("/")[0]
        for constraint in claim.spec.devices.constraints:
            covered = {name.partition("/")[0] for name in constraint.requests}
            if covered and head not in covered:
                continue
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            names = constraint.requests or tuple(each.name for each in claim.spec.devices.requests)
            drop = edits_claim(self._claim, partial(_without_constraint, constraint))
            facts: dict[str, object] = {"requests": names, "attribute": attribute, "claim": self._claim}
            yield FixStep(FixKind.DROP_CONSTRAINT, facts, drop)

    def steps_on(self, devices: NodeDevices) -> Iterator[FixStep]:
        rules = {removal.rule for removal in self._request.removals}
        if rules.intersection(_SELECTORS) or not self._request.devices:
            yield from self._selector_steps(devices)
            yield from self._class_steps(devices)
        yield from self._capacity_steps()
        yield from self._taint_steps(devices)

    def _selector_steps(self, devices: NodeDevices) -> Iterator[FixStep]:
        """Propose values that devices of the class have, or no selector."""
        mask = devices.select(self._class_selectors, ()).mask
        nearest = [devices.entries[number] for number in bit_numbers(mask)[:_MAX_NEAREST]]
        for old in self._selectors:
            for new, attribute, wanted, had in replaced_values(old, nearest):
                change = partial(_with_selector, old, new)
                yield self._step(FixKind.CHANGE_SELECTOR, change, attribute=attribute, wanted=wanted, had=had)
        yield from _dropped_selectors(self._claim, self._request.request, self._body)

    def _class_steps(self, devices: NodeDevices) -> Iterator[FixStep]:
        """Propose other classes of the same kind of device, or other values in the class."""
        old = self._body.device_class_name
        drivers = _drivers_of(self._trial, self._class_selectors)
        for each in sorted(self._trial.snapshot.classes.values(), key=lambda each: each.metadata.name):
            name = each.metadata.name
            mask = devices.select(expressions_of(each.spec.selectors), ()).mask if name != old else 0
            here = {devices.entries[number].id.driver for number in bit_numbers(mask)[:_MAX_NEAREST]}
            if here and (not drivers.isdisjoint(here) or (not drivers and is_similar(old, name))):
                change = partial(_with_class, name)
                more = 0 if is_similar(old, name) else 15
                yield self._step(FixKind.CHANGE_CLASS, change, more, near=name, device_class=old)
        if self._class is None or devices.select(self._class_selectors, ()).mask:
            return
        nearest = [
            entry for entry in devices.entries if any(entry.id.driver in e for e in self._class_selectors)
        ]
        for expression in self._class_selectors:
            for new, attribute, wanted, had in replaced_values(expression, nearest[:_MAX_NEAREST]):
                facts = {"device_class": old, "attribute": attribute, "wanted": wanted, "had": had}
                edit = partial(_edit_class, old, expression, new)
                yield FixStep(FixKind.CHANGE_CLASS_SELECTOR, facts, edit)

    def _capacity_steps(self) -> Iterator[FixStep]:
        for removal in self._request.removals:
            detail = removal.detail
            if not isinstance(detail, CapacityShortage):
                continue
            name, wanted, had = detail.name, detail.wanted, detail.had
            kind = FixKind.LOWER_CAPACITY
            if detail.rule == UNDEFINED:
                yield self._step(FixKind.DROP_CAPACITY, partial(_with_capacity, name, None), name=name)
                continue
            if detail.rule == OFF_STEP:
                kind, had = FixKind.STEP_CAPACITY, Quantity(wanted.nano - wanted.nano % had.nano)
            if had.nano > 0:
                yield self._step(
                    kind,
                    partial(_with_capacity, name, had),
                    name=name,
                    wanted=format_quantity(wanted),
                    had=format_quantity(had),
                )

    def _taint_steps(self, devices: NodeDevices) -> Iterator[FixStep]:
        if not any(removal.rule is RefusalRule.TAINT for removal in self._request.removals):
            return
        mask = devices.select(self._class_selectors, self._selectors).mask
        for taints, tainted in devices.taint_masks.items():
            for number in bit_numbers(mask & tainted)[:1]:
                for taint in taints:
                    more = DeviceToleration(
                        key=taint.key, operator="Equal", value=taint.value, effect=taint.effect
                    )
                    value = f"={taint.value}" if taint.value else ""
                    text = f"{taint.key}{value}:{taint.effect}"
                    device = str(devices.entries[number].id)
                    change = partial(_tolerating, more)
                    if more not in self._body.tolerations:
                        yield self._step(FixKind.TOLERATE_DEVICE, change, taint=text, device=device)


def _count_step(claim: str, name: str, count: int, wanted: int) -> FixStep:
    """Return the step that requests fewer devices than wanted, 0 for all; losing more harms more."""
    facts = {"request": name, "claim": claim, "wanted": wanted or "all devices"}
    facts["had"] = f"{count} device{'s' if count > 1 else ''}"
    more = max(20 * (wanted - count) // max(wanted, 1), 0)
    edit = edits_claim(claim, partial(edit_request, name, partial(_with_count, count)))
    return FixStep(FixKind.LOWER_COUNT, facts, edit, more)


def _dropped_selectors(claim: str, name: str, body: RequestBody) -> Iterator[FixStep]:
    for expression in expressions_of(body.selectors):
        edit = edits_claim(claim, partial(edit_request, name, partial(_with_selector, expression, None)))
        shown = " ".join(expression.split())
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 4]} ..."
        facts = {"request": name, "claim": claim, "expression": shown}
        yield FixStep(FixKind.DROP_SELECTOR, facts, edit)


def _drivers_of(trial: FixTrial, class_selectors: tuple[str, ...]) -> set[str]:
    """Return the drivers that publish devices of a class, or else those that its selectors name."""
    drivers = {each.spec.driver for each in trial.snapshot.all(ResourceSlice)}
    return {driver for driver in drivers if any(driver in expression for expression in class_selectors)}


# -- changed requests


def expressions_of(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple(each.cel.expression if each.cel is not None else "" for each in selectors)


def edit_request(
    name: str, change: Callable[[RequestBody], RequestBody], claim: ResourceClaim
) -> ResourceClaim:
    """Return the claim with one request changed; subrequests are named `request/subrequest`."""
    head, _, tail = name.partition("/")
    requests = []
    for each in claim.spec.devices.requests:
        if each.name == head and not tail and each.exactly is not None:
            each = replace(each, exactly=change(each.exactly))
        elif each.name == head:
            subs = tuple(change(sub) if sub.name == tail else sub for sub in each.first_available)
            each = replace(each, first_available=subs)
        requests.append(each)
    devices = replace(claim.spec.devices, requests=tuple(requests))
    return replace(claim, spec=replace(claim.spec, devices=devices))


def _with_count(count: int, body: RequestBody) -> RequestBody:
    return replace(body, allocation_mode="ExactCount", count=count)


def _with_class(name: str, body: RequestBody) -> RequestBody:
    return replace(body, device_class_name=name)


def _with_selector(old: str, new: str | None, body: RequestBody) -> RequestBody:
    return replace(body, selectors=_replaced(body.selectors, old, new))


def _replaced(selectors: tuple[DeviceSelector, ...], old: str, new: str | None) -> tuple[DeviceSelector, ...]:
    changed = [
        DeviceSelector(cel=CELDeviceSelector(new)) if new and expression == old else each
        for each, expression in zip(selectors, expressions_of(selectors), strict=True)
        if new is not None or expression != old
    ]
    return tuple(changed)


def _edit_class(name: str, old: str, new: str, target: FixTarget) -> None:
    found = target.find(DeviceClass, name, "")
    if found is not None:
        selectors = _replaced(found.spec.selectors, old, new)
        target.changes.set(replace(found, spec=replace(found.spec, selectors=selectors)))


def _with_capacity(name: str, amount: Quantity | None, body: RequestBody) -> RequestBody:
    requests = dict(body.capacity.requests) if body.capacity is not None else {}
    requests.pop(name, None)
    if amount is not None:
        requests[name] = amount
    return replace(body, capacity=CapacityRequirements(requests=requests) if requests else None)


def _tolerating(toleration: DeviceToleration, body: RequestBody) -> RequestBody:
    return replace(body, tolerations=(*body.tolerations, toleration))


def _without_constraint(gone: object, claim: ResourceClaim) -> ResourceClaim:
    kept = tuple(each for each in claim.spec.devices.constraints if each != gone)
    devices = replace(claim.spec.devices, constraints=kept)
    return replace(claim, spec=replace(claim.spec, devices=devices))


# -- pools


def _pool_steps(trial: FixTrial) -> Iterator[FixStep]:
    """Propose to take the known slices of incomplete pools as all there are."""
    devices = trial.snapshot.inventory.devices_for(trial.node)
    pools = devices.pools if not isinstance(devices, AllocationFault) else ()
    for pool in pools:
        if pool.status is PoolStatus.INCOMPLETE:
            facts = {"pool": str(pool.id), "why": pool.reason}
            yield FixStep(FixKind.COMPLETE_POOL, facts, _complete(pool.id))


def _complete(pool: PoolId) -> ObjectChange:
    def apply(target: FixTarget) -> None:
        slices = [
            each
            for each in target.changes.cluster_state.objects.all(ResourceSlice)
            if (each.spec.driver, each.spec.pool.name) == (pool.driver, pool.pool)
        ]
        newest = max((each.spec.pool.generation for each in slices), default=0)
        known = [each for each in slices if each.spec.pool.generation == newest]
        for each in known:
            counted = replace(each.spec.pool, resource_slice_count=len(known))
            target.changes.set(replace(each, spec=replace(each.spec, pool=counted)))

    return apply
