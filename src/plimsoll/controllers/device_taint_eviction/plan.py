"""Eviction of pods that use tainted devices: deadlines and causes (KEP-5055).

A NoExecute taint, published in a ResourceSlice or set by a DeviceTaintRule, evicts the pods that use the
device unless their allocation tolerates it. `tolerationSeconds` counts from `timeAdded`. Of several taints
and devices the earliest deadline applies, and all of them are causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from plimsoll.api.core import Pod
from plimsoll.api.device_taints import tolerates
from plimsoll.api.identity import DeviceId
from plimsoll.api.meta import ObjectReference
from plimsoll.api.pod_claims import claim_for_entry, is_generated_for, is_reserved_for
from plimsoll.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from plimsoll.api.timestamps import parse_time
from plimsoll.client.endpoints import PODS
from plimsoll.client.event_recorder import EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan, DeleteAction
from plimsoll.controllers.pod_utils import plan_disruption_condition

COMPONENT = "device-taint-eviction-controller"
EVICTION = "DeviceTaintManagerEviction"
NO_EXECUTE, NO_EFFECT = "NoExecute", "None"


class EvictionCause(NamedTuple):
    """Taint that causes an eviction, of a rule or of a published device, in reporting order."""

    published: bool
    rule: str = ""
    rule_uid: str = ""
    device: DeviceId = DeviceId("", "", "")
    taint_index: int = 0


class PlannedEviction(NamedTuple):
    """Deadline of an eviction and its causes."""

    when: float
    causes: tuple[EvictionCause, ...]


#: Lookup of the NoExecute taints of a device, each with its cause and the time it was added.
TaintLookup = Callable[[DeviceRequestAllocationResult], Iterable[tuple[EvictionCause, DeviceTaint, float]]]


# -- taints


def published_taints(
    slices: Iterable[ResourceSlice],
) -> dict[str, list[tuple[EvictionCause, DeviceTaint, float]]]:
    """Return the NoExecute taints of each device in the newest generation of one pool's slices."""
    slices = sorted(slices, key=lambda item: item.metadata.name)
    newest = max((item.spec.pool.generation for item in slices), default=0)
    found: dict[str, list[tuple[EvictionCause, DeviceTaint, float]]] = {}
    seen: set[str] = set()
    for item in slices:
        if item.spec.pool.generation != newest:
            continue
        for device in item.spec.devices or ():
            if device.name in seen:
                continue
            seen.add(device.name)
            for taint_index, taint in enumerate(device.taints):
                if taint.effect == NO_EXECUTE:
                    name = DeviceId(item.spec.driver, item.spec.pool.name, device.name)
                    cause = EvictionCause(True, device=name, taint_index=taint_index)
                    added = _added_at(taint, item.metadata.creation_timestamp)
                    found.setdefault(device.name, []).append((cause, taint, added))
    return found


def rule_taints(
    rules: Iterable[DeviceTaintRule], result: DeviceRequestAllocationResult
) -> Iterator[tuple[EvictionCause, DeviceTaint, float]]:
    """Yield the NoExecute taints that rules set on an allocated device, whether it is published or not."""
    for rule in rules:
        if rule.spec.taint.effect == NO_EXECUTE and selects_device(rule, DeviceId.of(result)):
            cause = EvictionCause(False, rule.metadata.name, rule.metadata.uid)
            yield cause, rule.spec.taint, _added_at(rule.spec.taint, rule.metadata.creation_timestamp)


def _added_at(taint: DeviceTaint, created: str | None) -> float:
    """Return when a taint was added; without `timeAdded`, the creation time of the object that holds it."""
    return parse_time(taint.time_added) or parse_time(created) or 0.0


def selects_device(rule: DeviceTaintRule, device: DeviceId) -> bool:
    """Return whether a rule selects a device; a rule without a selector selects none."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    wanted = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(wanted, device, strict=True))


# -- deadlines


def claim_eviction(claim: ResourceClaim, tainting: TaintLookup) -> PlannedEviction | None:
    """Return the eviction of the pods that use a claim, or None."""
    if claim.status.allocation is None:
        return None
    times: list[float] = []
    causes: set[EvictionCause] = set()
    for result in claim.status.allocation.devices.results:
        for cause, taint, added in tainting(result):
            seconds = _toleration_seconds(result.tolerations, taint)
            if seconds is not None:
                times.append(added + seconds)
                causes.add(cause)
    return PlannedEviction(min(times), tuple(sorted(causes))) if times else None


def _toleration_seconds(tolerations: Sequence[DeviceToleration], taint: DeviceTaint) -> int | None:
    """Return the shortest time for which a taint is tolerated; None if without limit."""
    seconds = []
    for toleration in tolerations:
        if toleration.effect == NO_EXECUTE and tolerates(toleration, taint):
            if toleration.toleration_seconds is None:
                return None
            seconds.append(max(0, toleration.toleration_seconds))
    return min(seconds, default=0)


def pod_eviction(
    pod: Pod, claims: Mapping[str, ResourceClaim], tainting: TaintLookup
) -> PlannedEviction | None:
    """Return the eviction of a pod: the earliest deadline and the causes of all its claims; None if it may
    stay.
    """
    if not pod.spec.node_name:
        return None
    found = []
    for entry in pod.spec.resource_claims:
        named = claim_for_entry(pod, entry)
        claim = claims.get(named.name) if named.name is not None else None
        if claim is None or (named.generated and not is_generated_for(claim, pod)):
            continue
        if is_reserved_for(claim, pod):
            eviction = claim_eviction(claim, tainting)
            if eviction is not None:
                found.append(eviction)
    if not found:
        return None
    causes = {cause for eviction in found for cause in eviction.causes}
    return PlannedEviction(min(eviction.when for eviction in found), tuple(sorted(causes)))


# -- actions


def plan_eviction(pod: Pod, now: float) -> ActionPlan:
    """Plan the eviction of a pod: event, DisruptionTarget condition, deletion; `pod` is the live object."""
    if pod.metadata.deletion_timestamp is not None:
        return EMPTY_PLAN
    actions: list[Action] = [
        EventRecord(ObjectReference.to(pod.metadata, "Pod"), EVICTION, "Marking for deletion", COMPONENT)
    ]
    mark = plan_disruption_condition(
        pod,
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
        now,
        observed=False,
    )
    if mark is not None:
        actions.append(mark)
    metadata = pod.metadata
    actions.append(DeleteAction(PODS, metadata.name, metadata.namespace, uid=metadata.uid))
    return ActionPlan(tuple(actions))


def cancellation_event(pod: Pod) -> EventRecord:
    """Build the event for an eviction that was cancelled."""
    return EventRecord(ObjectReference.to(pod.metadata, "Pod"), EVICTION, "Cancelling deletion", COMPONENT)
