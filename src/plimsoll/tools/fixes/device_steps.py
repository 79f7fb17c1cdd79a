"""Steps for refusals by devices: counts, selectors, classes, constraints, capacities, taints, pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, Refusal
from plimsoll.allocator.devices.capacity import OFF_STEP, UNDEFINED, round_down
from plimsoll.allocator.devices.node_devices import DeviceEntry, NodeDevices, bit_numbers
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.allocator.input_errors import TOO_MANY_DEVICES
from plimsoll.allocator.reasons.refusal import CapacityShortage, RefusalRule, RequestRefusal
from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.identity import DeviceId
from plimsoll.api.pod_claims import device_requests, resolve_claim_names
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    MAX_ALLOCATION_RESULTS,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceSelector,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
    expressions_of,
)
from plimsoll.ledger.units import from_units
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.devices.exact import is_usable_on
from plimsoll.scheduler.extended_resources import is_in_memory
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.amounts import format_quantity
from plimsoll.tools.claim_users import users_of
from plimsoll.tools.columns import format_count
from plimsoll.tools.fixes.edits import Edit, FieldPath, add_item, create, remove_item, set_field
from plimsoll.tools.fixes.fix import FixKind, FixStep
from plimsoll.tools.fixes.node_steps import shrink, use_resource
from plimsoll.tools.fixes.selector_values import OTHER_FORM, replaced_values, value_distance
from plimsoll.tools.fixes.similar import is_similar, is_similar_resource
from plimsoll.tools.fixes.trial import FixTrial, RequestBody
from plimsoll.tools.node_terms import taint_text

#: Devices of a node whose values are proposed for a selector.
_MAX_NEAREST = 256
#: Characters of a selector that are shown.
_SHOWN = 100
_ALL = "All"
#: Rules of selectors: no other rule matters to a device that they exclude.
_SELECTORS = (RefusalRule.CLASS_SELECTOR, RefusalRule.REQUEST_SELECTOR, RefusalRule.FAILED)
#: Causes for which a claim of its own helps a pod.
_SHARED = (
    Cause.SHARED_BY_SEVERAL,
    Cause.USED_BY_ANOTHER,
    Cause.MAPPED_DEVICE_SHARED,
    Cause.POOL_EXHAUSTED,
)
#: Harm of a class with another name, and of one with devices of another size.
_OTHER_NAME, _OTHER_SIZE = 15, 30


def propose_for_devices(trial: FixTrial, reasons: Sequence[NodeReason]) -> Iterator[FixStep]:
    """Yield the steps that may resolve a refusal by the device search."""
    for reason in reasons:
        cause = reason.cause
        if isinstance(cause, Refusal):
            for request, claim, body in trial.unserved(cause):
                if is_in_memory(claim):
                    yield from _extended_steps(trial, request, claim, body)
                else:
                    groups = {group.had for group in cause.groups if request.request in group.requests}
                    yield from RequestProposals(trial, claim, request.request, body).steps(request, groups)
                    if cause.together:
                        yield from RequestProposals(trial, claim, request.request, body).without_capacities()
            yield from _pool_steps(trial)
        elif isinstance(cause, Reason):
            yield from _sharing_steps(trial, cause)
            yield from _charge_steps(trial, cause)
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
        devices = tuple(str(DeviceId.of(result)) for result in claim.allocation_results)
        facts = {"claim": claim.metadata.full_name, "devices": devices}
        yield FixStep(FixKind.RELEASE_CLAIM, facts, (set_field(claim, ResourceClaimStatus(), "status"),))


def _sharing_steps(trial: FixTrial, cause: Reason) -> Iterator[FixStep]:
    """Propose a claim of its own for a pod that cannot share one."""
    names = {claim for entry, claim in resolve_claim_names(trial.pod).items() if entry}
    claim = trial.cluster_state.objects.find(ResourceClaim, cause.namespace, cause.claim)
    if cause.cause in _SHARED and cause.claim in names and claim is not None:
        name = f"{cause.claim}-copy"
        metadata = replace(claim.metadata, name=name, uid=f"fix/{name}", owner_references=())
        copy = replace(claim, metadata=metadata, status=ResourceClaimStatus())
        edits = create(copy, like=cause.claim), *use_claim(trial.pod, cause.claim, name)
        yield FixStep(FixKind.OWN_CLAIM, {"claim": claim.metadata.full_name}, edits)


def use_claim(pod: Pod, old: str, new: str) -> Iterator[Edit]:
    """Yield the edits that let a pod refer to another claim."""
    names = resolve_claim_names(pod)
    for at, each in enumerate(pod.spec.resource_claims):
        if names.get(each.name) == old:
            entry = PodResourceClaim(name=each.name, resource_claim_name=new)
            yield set_field(pod, entry, "spec", "resourceClaims", at)


def _charge_steps(trial: FixTrial, cause: Reason) -> Iterator[FixStep]:
    """Propose claims that charge less of a node resource: lower capacities, as if one unit of them charged
    one of the resource, and lower counts. If that is not enough, the new refusal leads to still lower ones.
    """
    wanted = cause.wanted or 0
    excess = wanted - (cause.had or 0)
    if cause.cause is not Cause.INSUFFICIENT or excess <= 0:
        return
    for claim in trial.pod_info.unallocated_claims:
        for name, body in () if is_in_memory(claim) else device_requests(claim):
            proposals = RequestProposals(trial, claim, name, body)
            for key, amount in body.capacity.requests.items() if body.capacity is not None else ():
                yield from proposals.with_capacity(key, amount, amount - from_units(cause.resource, excess))
            if body.count > 1:
                yield proposals.with_count(max(body.count - -(-excess * body.count // wanted), 1))


def _fault_steps(trial: FixTrial, fault: AllocationFault) -> Iterator[FixStep]:
    """Propose to remove the selectors of claims, one of which fails, or to request fewer devices."""
    for claim in trial.pod_info.unallocated_claims:
        requests = {} if is_in_memory(claim) else dict(device_requests(claim))
        excess = sum(max(body.count, 1) for body in requests.values()) - MAX_ALLOCATION_RESULTS
        for name, body in requests.items():
            proposals = RequestProposals(trial, claim, name, body)
            if fault.is_selector_error:
                yield from proposals.without_selectors()
            if fault.kind == TOO_MANY_DEVICES:
                takes_all = body.allocation_mode == _ALL
                count = MAX_ALLOCATION_RESULTS if takes_all else body.count - max(excess, 1)
                if count > 0:
                    yield proposals.with_count(count)
    yield from _pool_steps(trial)


def _extended_steps(
    trial: FixTrial, request: RequestRefusal, claim: ResourceClaim, body: RequestBody
) -> Iterator[FixStep]:
    """Propose a lower amount of the extended resources that a class serves, a similar one, or a class
    with other values.
    """
    served = trial.pod_info.extended_classes.items()
    names = [name for name, device_class in served if device_class == body.device_class_name]
    for name in names if request.left < request.wanted else ():
        yield from shrink(trial, name, request.wanted - request.left)
    if trial.devices is None or any(each.rule is not RefusalRule.CLASS_SELECTOR for each in request.removals):
        return
    known = {each.spec.extended_resource_name or "" for each in trial.snapshot.classes.values()}
    for name in names:
        for near in sorted(known.difference(names), key=partial(value_distance, name)):
            if is_similar_resource(name, near):
                facts = {"resource": name, "near": near}
                yield FixStep(FixKind.CHANGE_RESOURCE, facts, (*use_resource(trial.pod, name, near),))
    yield from RequestProposals(trial, claim, request.request, body).class_selector_steps(trial.devices)


# -- requests


def request_path(claim: ResourceClaim, name: str) -> FieldPath:
    """Return the path of a request or subrequest (`request/subrequest`)."""
    head, _, tail = name.partition("/")
    requests = claim.spec.devices.requests
    at = next(at for at, each in enumerate(requests) if each.name == head)
    place: FieldPath = ("exactly",)
    if tail:
        alternatives = [each.name for each in requests[at].first_available]
        place = ("firstAvailable", alternatives.index(tail))
    return ("spec", "devices", "requests", at, *place)


class RequestProposals:
    """Steps for one request of a claim that a node cannot serve."""

    def __init__(self, trial: FixTrial, claim: ResourceClaim, name: str, body: RequestBody) -> None:
        self._trial, self._claim, self._name, self._body = trial, claim, name, body
        self._path = request_path(claim, name)
        others = (each for each in trial.pod_info.claims if each is not claim)
        is_unique = not any(name in dict(device_requests(each)) for each in others)
        self._label = name if is_unique else f"{name} of claim {claim.metadata.name}"
        found = trial.snapshot.classes.get(body.device_class_name)
        self._class = found
        self._class_selectors = expressions_of(found.spec.selectors if found is not None else ())
        self._selectors = expressions_of(body.selectors)

    def steps(self, request: RequestRefusal, counts: set[int]) -> Iterator[FixStep]:
        """Yield the steps for the refusal of the request; `counts` are amounts that would be served."""
        yield from self._count_steps(request, counts)
        yield from self._constraint_steps()
        devices = self._trial.devices
        if devices is None:
            return
        if not request.devices or any(each.rule in _SELECTORS for each in request.removals):
            yield from self._selector_steps(devices)
            yield from self._class_steps(devices)
        for removal in request.removals:
            if isinstance(removal.detail, CapacityShortage):
                yield from self._capacity_steps(removal.detail, _entry_of(devices, removal.device))
            elif removal.rule is RefusalRule.TAINT:
                yield from self._taint_steps(devices)

    def _step(self, kind: FixKind, *edits: Edit, more: int = 0, **facts: object) -> FixStep:
        facts = {"request": self._label, "claim": self._claim.metadata.name, **facts}
        return FixStep(kind, facts, edits, more)

    def _set(self, value: object, *path: str | int) -> Edit:
        return set_field(self._claim, value, *self._path, *path)

    def _count_steps(self, request: RequestRefusal, also: set[int]) -> Iterator[FixStep]:
        """Propose to request fewer devices: as many as could be allocated, one less, or one."""
        takes_all = self._body.allocation_mode == _ALL
        most = min(request.devices if takes_all else request.wanted - 1, MAX_ALLOCATION_RESULTS)
        counts = {request.left, request.largest_group or 0, request.wanted - 1, most, 1, *also}
        for count in sorted((each for each in counts if 1 <= each <= most), reverse=True):
            yield self.with_count(count)

    def with_count(self, count: int) -> FixStep:
        """Return the step that requests fewer devices; losing more harms more."""
        wanted = 0 if self._body.allocation_mode == _ALL else max(self._body.count, 1)
        edits = self._set("ExactCount", "allocationMode"), self._set(count, "count")
        more = max(20 * (wanted - count) // max(wanted, 1), 0)
        facts: dict[str, Any] = {"had": format_count(count, "device"), "wanted": wanted or "all devices"}
        return self._step(FixKind.LOWER_COUNT, *edits, more=more, **facts)

    def _constraint_steps(self) -> Iterator[FixStep]:
        """Propose to remove each constraint over the request."""
        head, given = self._name.partition("/")[0], self._claim.spec.devices
        for constraint in given.constraints:
            covered = {name.partition("/")[0] for name in constraint.requests}
            if not covered or head in covered:
                names = constraint.requests or tuple(each.name for each in given.requests)
                attribute = constraint.match_attribute or constraint.distinct_attribute or ""
                drop = remove_item(self._claim, constraint, "spec", "devices", "constraints")
                facts = {"requests": names, "attribute": attribute, "claim": self._claim.metadata.name}
                yield FixStep(FixKind.DROP_CONSTRAINT, facts, (drop,))

    def _selector_steps(self, devices: NodeDevices) -> Iterator[FixStep]:
        """Propose values that devices of the class have, or no selector."""
        nearest = _entries(devices, self._class_selectors)
        for old in self._body.selectors:
            for new, attribute, wanted, had in replaced_values(old.expression, nearest):
                edits = _swap(self._claim, old, new, *self._path, "selectors")
                facts: dict[str, Any] = {"attribute": attribute, "wanted": wanted, "had": had}
                yield self._step(FixKind.CHANGE_SELECTOR, *edits, **facts)
        yield from self.without_selectors()

    def without_selectors(self) -> Iterator[FixStep]:
        for selector in self._body.selectors:
            shown = " ".join(selector.expression.split())
            shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 4]} ..."
            drop = remove_item(self._claim, selector, *self._path, "selectors")
            yield self._step(FixKind.DROP_SELECTOR, drop, expression=shown)

    def _class_steps(self, devices: NodeDevices) -> Iterator[FixStep]:
        """Propose other classes of the same kind of device, or other values in the class."""
        old = self._body.device_class_name
        drivers = {each.spec.driver for each in self._trial.snapshot.all(ResourceSlice)}
        drivers = {driver for driver in drivers if any(driver in each for each in self._class_selectors)}
        mine = _entries(devices, self._class_selectors)
        for near, each in sorted(self._trial.snapshot.classes.items()):
            here = _entries(devices, expressions_of(each.spec.selectors)) if near != old else []
            similar = is_similar(old, near)
            if drivers.isdisjoint(entry.id.driver for entry in here) if drivers else not (similar and here):
                continue
            sizes = sorted((_size(devices, here[0]), _size(devices, mine[0]) if mine else 1.0))
            more = (0 if similar else _OTHER_NAME) + round(_OTHER_SIZE * (1 - sizes[0] / (sizes[1] or 1)))
            edit = self._set(near, "deviceClassName")
            yield self._step(FixKind.CHANGE_CLASS, edit, more=more, near=near, device_class=old)
        if not mine:
            yield from self.class_selector_steps(devices)

    def class_selector_steps(self, devices: NodeDevices) -> Iterator[FixStep]:
        """Propose values that devices have in the selectors of the class."""
        if self._class is None:
            return
        old = self._body.device_class_name
        named = [each for each in devices.entries if any(each.id.driver in e for e in self._class_selectors)]
        for selector in self._class.spec.selectors:
            for new, attribute, wanted, had in replaced_values(selector.expression, named[:_MAX_NEAREST]):
                facts = {"device_class": old, "attribute": attribute, "wanted": wanted, "had": had}
                edits = _swap(self._class, selector, new, "spec", "selectors")
                given = _entries(devices, (new,))
                is_near = value_distance(wanted, had) < OTHER_FORM
                more = 0 if is_near or not given else round(_OTHER_SIZE * (1 - _size(devices, given[0])))
                yield FixStep(FixKind.CHANGE_CLASS_SELECTOR, facts, edits, more)

    def _capacity_steps(self, short: CapacityShortage, entry: DeviceEntry) -> Iterator[FixStep]:
        if short.rule == UNDEFINED or short.had.nano <= 0:
            yield from self.without_capacities(short.name)
        elif short.rule == OFF_STEP:
            rounded = Quantity(short.wanted.nano - short.wanted.nano % short.had.nano)
            yield from self.with_capacity(short.name, short.wanted, rounded, FixKind.STEP_CAPACITY)
        else:
            capacity = entry.device.capacity[short.name]
            asked = self._body.capacity.requests.get(short.name) if self._body.capacity is not None else None
            yield from self.with_capacity(short.name, asked or short.wanted, round_down(short.had, capacity))

    def without_capacities(self, only: str = "") -> Iterator[FixStep]:
        """Propose to leave out each of the capacities, or one, so that the default amount is used."""
        for name in self._body.capacity.requests if self._body.capacity is not None else ():
            if only in ("", name):
                drop = self._set(None, "capacity", "requests", name)
                yield self._step(FixKind.DROP_CAPACITY, drop, name=name)

    def with_capacity(
        self, name: str, wanted: Quantity, had: Quantity, kind: FixKind = FixKind.LOWER_CAPACITY
    ) -> Iterator[FixStep]:
        """Yield the step that requests less of a capacity, if there is less."""
        edit = self._set(had, "capacity", "requests", name)
        if self._body.capacity is None:  # the amount was a default
            edit = self._set(CapacityRequirements(requests={name: had}), "capacity")
        facts: dict[str, Any] = {"name": name, "had": format_quantity(had), "wanted": format_quantity(wanted)}
        if 0 < had.nano < wanted.nano:
            yield self._step(kind, edit, **facts)

    def _taint_steps(self, devices: NodeDevices) -> Iterator[FixStep]:
        mask = devices.select(self._class_selectors, self._selectors).mask
        for taints, tainted in devices.taint_masks.items():
            for number in bit_numbers(mask & tainted)[:1]:
                for taint in taints:
                    more = DeviceToleration(
                        key=taint.key, operator="Equal", value=taint.value, effect=taint.effect
                    )
                    facts: dict[str, Any] = {"taint": taint_text(taint)}
                    facts["device"] = str(devices.entries[number].id)
                    if more not in self._body.tolerations:
                        add = add_item(self._claim, more, *self._path, "tolerations")
                        yield self._step(FixKind.TOLERATE_DEVICE, add, **facts)


def _swap(thing: object, old: DeviceSelector, new: str, *path: str | int) -> tuple[Edit, Edit]:
    changed = DeviceSelector(cel=CELDeviceSelector(new))
    return remove_item(thing, old, *path), add_item(thing, changed, *path)


def _entries(devices: NodeDevices, class_selectors: tuple[str, ...]) -> list[DeviceEntry]:
    mask = devices.select(class_selectors, ()).mask
    return [devices.entries[number] for number in bit_numbers(mask)[:_MAX_NEAREST]]


def _size(devices: NodeDevices, entry: DeviceEntry) -> float:
    """Return the mean share of a device's capacities in the largest of its driver on the node."""
    most = _largest(devices, entry.id.driver)
    shares = [amount / most[name] for name, amount in _amounts(entry)]
    return sum(shares) / len(shares) if shares else 1.0


@lru_cache(maxsize=64)
def _largest(devices: NodeDevices, driver: str) -> dict[str, int]:
    """Return the largest capacities of a driver's devices on a node."""
    most: dict[str, int] = {}
    for each in devices.entries:
        for name, amount in _amounts(each) if each.id.driver == driver else ():
            most[name] = max(most.get(name, 1), amount)
    return most


def _amounts(entry: DeviceEntry) -> Iterator[tuple[str, int]]:
    for name, capacity in entry.device.capacity.items():
        if capacity.value is not None:
            yield name, capacity.value.nano


# -- pools


def _pool_steps(trial: FixTrial) -> Iterator[FixStep]:
    """Propose to take the known slices of incomplete pools as all there are."""
    for pool in trial.devices.pools if trial.devices is not None else ():
        if pool.status is not PoolStatus.INCOMPLETE:
            continue
        slices = [
            each
            for each in trial.snapshot.all(ResourceSlice)
            if (each.spec.driver, each.spec.pool.name) == (pool.id.driver, pool.id.pool)
        ]
        newest = max((each.spec.pool.generation for each in slices), default=0)
        known = [each for each in slices if each.spec.pool.generation == newest]
        edits = tuple(set_field(each, len(known), "spec", "pool", "resourceSliceCount") for each in known)
        yield FixStep(FixKind.COMPLETE_POOL, {"pool": str(pool.id), "why": pool.reason}, edits)


def _entry_of(devices: NodeDevices, id: DeviceId) -> DeviceEntry:
    return devices.entries[devices.index[id.pool_id][id.device]]
