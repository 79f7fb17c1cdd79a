"""Pods whose devices are tainted: when they must go, and why.

Owns the decision (upstream's device taint eviction; document 001, "Device taints"): a taint with the effect
NoExecute, in a ResourceSlice or from a DeviceTaintRule, evicts the pods that use the device unless their
allocation tolerates it; a toleration for some seconds counts from when the taint was added. Of several taints
and devices the earliest time counts, and all are causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId
from plimsoll.api.meta import ObjectReference
from plimsoll.api.resource import (
    AllocationDevice,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from plimsoll.api.timestamps import parse_time
from plimsoll.client.endpoints import PODS
from plimsoll.client.event_recorder import Report
from plimsoll.controllers.actions import NOTHING, Action, Delete, Plan
from plimsoll.controllers.plans.pods import claim_of, is_made_for, is_reserved_for, mark_disrupted, reference

COMPONENT = "device-taint-eviction-controller"
EVICTION = "DeviceTaintManagerEviction"
NO_EXECUTE, NO_EFFECT = "NoExecute", "None"


class Cause(NamedTuple):
    """A taint that evicts: a rule's, or one of a published device; in the order they are told."""

    published: bool
    rule: str = ""
    rule_uid: str = ""
    device: DeviceId = DeviceId("", "", "")
    place: int = 0


class Eviction(NamedTuple):
    """When pods must go, and all the reasons."""

    when: float
    causes: tuple[Cause, ...]


#: The evicting taints of a device, each with its cause and the moment it was added.
Tainting = Callable[[AllocationDevice], Iterable[tuple[Cause, DeviceTaint, float]]]


# -- taints


def published_taints(slices: Iterable[ResourceSlice]) -> dict[str, list[tuple[Cause, DeviceTaint, float]]]:
    """Device -> evicting taints, for the slices of one pool; only its newest generation counts."""
    slices = sorted(slices, key=lambda item: item.metadata.name)
    newest = max((item.spec.pool.generation for item in slices), default=0)
    found: dict[str, list[tuple[Cause, DeviceTaint, float]]] = {}
    seen: set[str] = set()
    for item in slices:
        if item.spec.pool.generation != newest:
            continue
        for device in item.spec.devices or ():
            if device.name in seen:
                continue
            seen.add(device.name)
            for place, taint in enumerate(device.taints):
                if taint.effect == NO_EXECUTE:
                    name = DeviceId(item.spec.driver, item.spec.pool.name, device.name)
                    cause = Cause(True, device=name, place=place)
                    added = _added(taint, item.metadata.creation_timestamp)
                    found.setdefault(device.name, []).append((cause, taint, added))
    return found


def rule_taints(
    rules: Iterable[DeviceTaintRule], result: AllocationDevice
) -> Iterator[tuple[Cause, DeviceTaint, float]]:
    """The evicting taints that rules put on an allocated device, published or not."""
    for rule in rules:
        if rule.spec.taint.effect == NO_EXECUTE and selects(rule, DeviceId.of(result)):
            cause = Cause(False, rule.metadata.name, rule.metadata.uid)
            yield cause, rule.spec.taint, _added(rule.spec.taint, rule.metadata.creation_timestamp)


def _added(taint: DeviceTaint, created: str | None) -> float:
    """Servers write when a taint was added; one without a time is as old as what it stands in."""
    return parse_time(taint.time_added) or parse_time(created) or 0.0


def selects(rule: DeviceTaintRule, device: DeviceId) -> bool:
    """Whether a rule is for a device; one without a selector is for none."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    wanted = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(wanted, device, strict=True))


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


# -- when


def claim_eviction(claim: ResourceClaim, tainting: Tainting) -> Eviction | None:
    """When the pods that use a claim must go; None if they need not."""
    if claim.status.allocation is None:
        return None
    times: list[float] = []
    causes: set[Cause] = set()
    for result in claim.status.allocation.devices.results:
        for cause, taint, added in tainting(result):
            patience = _patience(result.tolerations, taint)
            if patience is not None:
                times.append(added + patience)
                causes.add(cause)
    return Eviction(min(times), tuple(sorted(causes))) if times else None


def _patience(tolerations: Sequence[DeviceToleration], taint: DeviceTaint) -> int | None:
    """For how many seconds a taint is tolerated, at the least; None means for ever."""
    seconds = []
    for toleration in tolerations:
        if toleration.effect == NO_EXECUTE and tolerates(toleration, taint):
            if toleration.toleration_seconds is None:
                return None
            seconds.append(max(0, toleration.toleration_seconds))
    return min(seconds, default=0)


def pod_eviction(pod: Pod, claims: Mapping[str, ResourceClaim], tainting: Tainting) -> Eviction | None:
    """When a pod must go: for the earliest of its claims, and for the reasons of all of them."""
    if not pod.spec.node_name:
        return None
    found = []
    for entry in pod.spec.resource_claims:
        named = claim_of(pod, entry)
        claim = claims.get(named.name) if named.name is not None else None
        if claim is None or (named.generated and not is_made_for(claim, pod)):
            continue
        if is_reserved_for(claim, pod):
            eviction = claim_eviction(claim, tainting)
            if eviction is not None:
                found.append(eviction)
    if not found:
        return None
    causes = {cause for eviction in found for cause in eviction.causes}
    return Eviction(min(eviction.when for eviction in found), tuple(sorted(causes)))


# -- what


def plan_eviction(pod: Pod, now: float) -> Plan:
    """Mark a pod, tell of it, delete it; `pod` is as the API has it now."""
    if pod.metadata.deletion_timestamp is not None:
        return NOTHING
    actions: list[Action] = [Report(_name_only(pod), EVICTION, "Marking for deletion", COMPONENT)]
    mark = mark_disrupted(
        pod,
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
        now,
        observed=False,
    )
    if mark is not None:
        actions.append(mark)
    metadata = pod.metadata
    actions.append(Delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid))
    return Plan(tuple(actions))


def report_cancelled(pod: Pod) -> Report:
    """Tell that a pod need not go after all."""
    return Report(_name_only(pod), EVICTION, "Cancelling deletion", COMPONENT)


def _name_only(pod: Pod) -> ObjectReference:
    """The pod without its revision, so that the same event is told once."""
    return codec.convert({**codec.to_tree(reference(pod)), "resourceVersion": ""}, ObjectReference)
