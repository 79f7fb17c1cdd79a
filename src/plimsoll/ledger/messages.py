"""Messages for reasons, as users see them in events and conditions.

Upstream's texts where upstream has the case (docs/spec/accounting.md, "Scheduler" and "Changes in 1.37"), our
own for accounting policies. All such texts are formatted here.
"""

from __future__ import annotations

from dataclasses import fields

from plimsoll.ledger.verdict import Cause, Reason, Verdict

_TEXTS = {
    Cause.INSUFFICIENT: "Insufficient {resource}",
    Cause.TOO_MANY_PODS: "Too many pods",
    Cause.POOL_EXHAUSTED: "Insufficient {resource} in claim {claim}",
    Cause.SHARED_BY_SEVERAL: "node allocatable resource claim {claim} shared by multiple pods",
    Cause.USED_BY_ANOTHER: "node allocatable resource claim {claim} is already used by another pod",
    Cause.MAPPED_DEVICE_SHARED: (
        "node allocatable resource claim {claim} has a mapped device and cannot be shared across pods"
    ),
    Cause.UNREFERENCED: (
        "claim {claim}: node-allocatable resource claim not referenced by any container within the pod"
    ),
    Cause.DEVICE_NOT_IN_POOL: (
        "claim {namespace}/{claim}, device {device}: device {device} not found in pool {pool}"
    ),
    Cause.DEVICE_NOT_OF_DRIVER: (
        "claim {namespace}/{claim}, device {device}, driver {driver}: "
        "device {device} not found in pool {pool} for driver {driver}"
    ),
    Cause.NO_CONSUMED_CAPACITY: (
        "claim {namespace}/{claim}, device {device}: ConsumedCapacity is nil, "
        "but Capacity key '{key}' is set in {detail} for resource {resource}"
    ),
    Cause.NO_POLICY: "claim {claim}, device {device}: no accounting policy for {resource}",
    Cause.UNKNOWN_POLICY: "claim {claim}, device {device}: unknown accounting policy {policy} for {resource}",
    Cause.BAD_ANNOTATION: "claim {claim}, device {device}: {detail}",
    Cause.TWO_POLICIES: "claim {claim}: devices with different accounting policies for {resource}: {detail}",
    Cause.MIXED_DRIVERS: (
        "container {container}: claims with accounting policy {policy} for {resource} "
        "from different drivers: {detail}"
    ),
    Cause.MAX_WITH_POOL: (
        "container {container}: claims with accounting policies Max and ConsumeFrom for {resource}: {detail}"
    ),
    Cause.POOL_UNDER_POD_LEVEL: (
        "claim {claim}: accounting policy ConsumeFrom for {resource} "
        "does not go together with a pod level request for {resource}"
    ),
    Cause.POD_LEVEL_REQUEST: (
        "pod level request for {resource} is insufficient to cover "
        "the aggregated container and node-allocatable DRA requests"
    ),
    Cause.POD_LEVEL_LIMIT: (
        "pod level limit for {resource} is insufficient to cover "
        "the aggregated container and node-allocatable DRA limits"
    ),
    Cause.POD_LEVEL_CONTAINER_LIMIT: (
        "pod level limit for {resource} is insufficient to cover "
        "the limit and DRA overhead for container {container}"
    ),
}
_NAMES = tuple(field.name for field in fields(Reason))


def format_reason(reason: Reason) -> str:
    """Format one reason as it appears in an event."""
    return _TEXTS[reason.cause].format_map({name: getattr(reason, name) for name in _NAMES})


def format_reasons(verdict: Verdict) -> tuple[str, ...]:
    """Format all reasons of a verdict, in order."""
    return tuple(map(format_reason, verdict.reasons))


def format_admission_message(reason: Reason) -> str:
    """Format a shortage as the kubelet's admission message, including numbers."""
    name = "pods" if reason.cause is Cause.TOO_MANY_PODS else reason.resource
    if reason.cause is Cause.POOL_EXHAUSTED:
        name = f"{name} in claim {reason.claim}"
    return (
        f"Node didn't have enough resource: {name}, requested: {reason.wanted}, "
        f"used: {(reason.capacity or 0) - (reason.had or 0)}, capacity: {reason.capacity}"
    )
