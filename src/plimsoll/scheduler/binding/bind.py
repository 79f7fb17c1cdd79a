"""Binding a pod: write its claims, charges and node to the API, and undo them on failure.

The order is kube-scheduler's: for each claim the finalizer, then allocation and reservation in one write; the
pod's charges; the conditions of devices that name some; the binding itself. Guarantees:

- Every write that allocates or releases something is conditional on the resourceVersion of its object, so
  that it is applied at most once, and never after the object has changed.
- A write without a response is repeated until there is one. Before a binding is abandoned, every object whose
  write may still be in flight is read at a newer version or fenced (`BindingWriter.fence_claim`,
  `fence_pod`), so that a delayed write is refused. Only then are its devices given to other pods.
- If a step fails, earlier writes are undone in reverse order. A release applies only to the allocation that
  it undoes: a claim with another allocation is not changed.
- Before the pod is bound, its devices are checked against their current allocations.

See KEP-5517, "Reserve" to "PreBind Stage", and docs/spec/accounting.md, "Scheduler".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, read_pod
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from plimsoll.errors import ApiError, InputError, UnreachableError
from plimsoll.ledger.status import build_status_entries
from plimsoll.scheduler.binding.binding_conditions import (
    DeviceBindingFailure,
    check_binding_conditions,
    has_binding_conditions,
)
from plimsoll.scheduler.binding.pod_conditions import BindError, format_bind_error
from plimsoll.scheduler.binding.result import BindFailure, BindPoint, BindStep, BindSuccess
from plimsoll.scheduler.binding.writer import FINALIZER, BindingWriter, retry_until_answered
from plimsoll.scheduler.result import Placement

T = TypeVar("T")
OnClaim = Callable[[ResourceClaim], None]
OnPoint = Callable[[BindPoint, BindFailure | None], None]
#: Returns a device of these claims that other claims hold, too, or "".
FindConflict = Callable[[Sequence[ResourceClaim]], str]

#: Time for devices to become ready, counted from their allocation.
BINDING_TIMEOUT_MS = 600_000
#: Attempts of a write on conflicts and server errors.
MAX_ATTEMPTS = 5


async def bind_pod(
    placement: Placement,
    writer: BindingWriter,
    on_claim: OnClaim,
    *,
    find_conflict: FindConflict = lambda claims: "",
    timeout_ms: int = BINDING_TIMEOUT_MS,
    on_point: OnPoint = lambda point, failed: None,
) -> BindSuccess | BindFailure:
    """Write a placement to the API; on failure undo what was written.

    `on_claim` receives every claim in a response, so that the snapshot is current at once; `on_point` is
    called at the end of each extension point.
    """
    binding = BindTransaction(placement.pod_info.pod, writer, on_claim, placement.node)
    entries = build_status_entries(placement.charged_claims)
    failed = await _pre_bind(binding, placement, entries, find_conflict, timeout_ms)
    on_point(BindPoint.PRE_BIND, failed)
    if failed is None:
        failed = await binding.bind(placement.node, entries)
        on_point(BindPoint.BIND, failed)
    if failed is None:
        return BindSuccess(placement.node, tuple(hold.claim for hold in binding.holds))
    settled = await binding.undo()
    on_point(BindPoint.UNRESERVE, None if settled else failed)
    return replace(failed, settled=settled and failed.settled)


async def _pre_bind(
    binding: BindTransaction,
    placement: Placement,
    entries: Sequence[ClaimCharge],
    find_conflict: FindConflict,
    timeout_ms: int,
) -> BindFailure | None:
    claims = placement.pod_info.claims
    if len(claims) == 1:
        outcomes = [await _take_claim(binding, placement, claims[0])]
    else:
        jobs = [_take_claim(binding, placement, claim) for claim in claims]
        outcomes = await binding.writer.gather(jobs) if jobs else []
    failed = next((each for each in outcomes if isinstance(each, BindFailure)), None)
    if failed is not None:
        return failed
    return (
        await binding.write_charges(entries)
        or await binding.wait_for_devices(timeout_ms)
        or binding.check_device_conflicts(find_conflict)
    )


async def _take_claim(
    binding: BindTransaction, placement: Placement, claim: ResourceClaim
) -> BindFailure | None:
    if claim.status.allocation is not None:
        return await binding.reserve(claim)
    return await binding.allocate(claim, placement.allocations[claim.metadata.name])


@dataclass(slots=True)
class ClaimHold:
    """Claim that is reserved for the pod; `allocated_here` if this binding allocated it."""

    claim: ResourceClaim
    allocated_here: bool


class BindTransaction:
    """State of one pod's binding in progress."""

    def __init__(self, pod: Pod, writer: BindingWriter, on_claim: OnClaim, node: str = "") -> None:
        self.pod = pod
        self.node = node
        self.writer = writer
        self.on_claim = on_claim
        self.consumer = consumer_of(pod)
        self.holds: list[ClaimHold] = []
        self._charged = False
        self._uncertain = False  # a write without a definite response: it may still be in flight

    # -- claims

    async def allocate(self, claim: ResourceClaim, allocation: AllocationResult) -> BindFailure | None:
        """Write the finalizer, then allocation and reservation under the claim's resourceVersion."""
        name = claim.metadata.full_name
        for attempt in range(1, MAX_ATTEMPTS + 1):
            step, error_kind = BindStep.ALLOCATION, BindError.ADD_ALLOCATION
            try:
                if FINALIZER not in claim.metadata.finalizers:
                    step, error_kind = BindStep.FINALIZER, BindError.ADD_FINALIZER
                    claim = self._observe(await self._retry(self.writer.add_finalizer, claim))
                    step, error_kind = BindStep.ALLOCATION, BindError.ADD_ALLOCATION
                    if claim.status.allocation is not None:
                        return self._adopt_allocation(claim, allocation, step)
                written = await self._retry(self.writer.write_allocation, claim, allocation, self.consumer)
                self.holds.append(ClaimHold(self._observe(written), allocated_here=True))
                return None
            except InputError as error:
                failed = _failure(step, error_kind, error, claim=name, error=error)
                if not self._is_uncertain(error):
                    return failed
            # The claim was changed by another writer, or the outcome of our write is unknown.
            fresh = await self._settle_claim(claim)
            if fresh is None or fresh.metadata.deletion_timestamp is not None:
                return _failure(step, BindError.CLAIM_GONE, failed.cause, claim=name)
            if fresh.status.allocation is not None:
                return self._adopt_allocation(fresh, allocation, step)
            if failed.cause is None or not _is_conflict(failed.cause) or attempt == MAX_ATTEMPTS:
                return failed
            claim = fresh
        raise AssertionError("the last attempt returns")

    def _adopt_allocation(
        self, claim: ResourceClaim, allocation: AllocationResult, step: BindStep
    ) -> BindFailure | None:
        """Use an existing allocation if it is our own, from a write without a response; fail otherwise."""
        written = claim.status.allocation
        if (
            written is None
            or not self._has_reserved(claim)
            or _device_ids(written) != _device_ids(allocation)
        ):
            return _failure(step, BindError.CLAIM_TAKEN, None, claim=claim.metadata.full_name)
        self.holds.append(ClaimHold(claim, allocated_here=True))
        return None

    async def reserve(self, claim: ResourceClaim) -> BindFailure | None:
        """Add the pod to the consumers of an allocated claim.

        A claim that is already reserved (by an earlier attempt, perhaps of another process) is fenced: only a
        write proves that it still is, and prevents a release that may be in flight.
        """
        name, allocation = claim.metadata.full_name, claim.status.allocation
        allocated_here = self._has_reserved(claim)
        fresh = await self._confirm_reservation(claim) if allocated_here else await self._add_consumer(claim)
        if isinstance(fresh, BindFailure):
            return fresh
        if allocated_here and not self._has_reserved(fresh):
            return _failure(BindStep.RESERVATION, BindError.CLAIM_RELEASED, None, claim=name)
        self.holds.append(ClaimHold(fresh, allocated_here=allocated_here))
        if fresh.status.allocation is None:
            return _failure(BindStep.RESERVATION, BindError.CLAIM_RELEASED, None, claim=name)
        if allocation is not None and _device_ids(fresh.status.allocation) != _device_ids(allocation):
            return _failure(BindStep.RESERVATION, BindError.CLAIM_TAKEN, None, claim=name)
        return None

    async def _add_consumer(self, claim: ResourceClaim) -> ResourceClaim | BindFailure:
        try:
            return self._observe(await self._retry(self.writer.reserve, claim, self.consumer))
        except InputError as error:
            name = claim.metadata.full_name
            failed = _failure(BindStep.RESERVATION, BindError.ADD_RESERVATION, error, claim=name, error=error)
            if not self._is_uncertain(error):
                return failed
        fresh = await self._settle_claim(claim)
        if fresh is None:
            return _failure(BindStep.RESERVATION, BindError.CLAIM_GONE, failed.cause, claim=name)
        return fresh if self._has_reserved(fresh) else failed

    async def _confirm_reservation(self, claim: ResourceClaim) -> ResourceClaim | BindFailure:
        name = claim.metadata.full_name
        try:
            fresh = await self._retry(self.writer.fence_claim, claim)
        except InputError as error:
            return _failure(BindStep.RESERVATION, BindError.ADD_RESERVATION, error, claim=name, error=error)
        if fresh is None:
            return _failure(BindStep.RESERVATION, BindError.CLAIM_GONE, None, claim=name)
        return self._observe(fresh)

    async def wait_for_devices(self, timeout_ms: int) -> BindFailure | None:
        """Wait until devices with binding conditions are ready."""
        for hold in self.holds:
            if not has_binding_conditions(hold.claim.status.allocation):
                continue
            name = hold.claim.metadata.name
            try:
                fresh = await self._retry(self.writer.wait_for, hold.claim, _is_decided, timeout_ms)
            except InputError as error:
                return _failure(BindStep.CONDITIONS, BindError.BINDING, error, error=error)
            if fresh is None:
                return _failure(
                    BindStep.CONDITIONS, BindError.CLAIM_GONE, None, claim=hold.claim.metadata.full_name
                )
            hold.claim = self._observe(fresh)
            if fresh.status.allocation is None:
                return _failure(
                    BindStep.CONDITIONS, BindError.CLAIM_RELEASED, None, claim=hold.claim.metadata.full_name
                )
            verdict = check_binding_conditions(fresh)
            if verdict is not True:
                hold.allocated_here = True  # failed devices are always released
            if isinstance(verdict, DeviceBindingFailure):
                fields = {"reason": verdict.reason, "message": verdict.message}
                return _failure(BindStep.CONDITIONS, BindError.DEVICES_FAILED, None, name=name, **fields)
            if not verdict:
                return _failure(BindStep.CONDITIONS, BindError.DEVICES_LATE, None, name=name)
        return None

    def check_device_conflicts(self, find_conflict: FindConflict) -> BindFailure | None:
        """Fail if another claim holds one of the devices."""
        device = find_conflict([hold.claim for hold in self.holds])
        return _failure(BindStep.BINDING, BindError.DEVICE_HELD, None, device=device) if device else None

    # -- the pod

    async def write_charges(self, entries: Sequence[ClaimCharge]) -> BindFailure | None:
        """Write the charges of the claims, replacing those of an earlier attempt."""
        if not entries and not read_pod(self.pod):
            return None
        self._charged = True
        error = await self._write_pod(self._write_or_clear_charges, entries)
        if error is None or self.pod.spec.node_name:
            return None  # `bind` handles a pod that turned out to be bound
        pod = self.pod.metadata.full_name
        failed = _failure(BindStep.CHARGES, BindError.CHARGES, error, pod=pod, error=error)
        return replace(failed, final=_is_missing(error))

    async def _write_or_clear_charges(self, pod: Pod, entries: Sequence[ClaimCharge]) -> Pod:
        if not entries:
            return await self.writer.clear_charges(pod)
        return await self.writer.write_charges(pod, entries, self.node)

    async def _write_pod(self, write: Callable[..., Awaitable[Pod]], *args: object) -> InputError | None:
        """Write to the pod at its current version, unless it gets bound; return the error.

        A 404 means that the pod is gone, or that another one has its name.
        """
        for _ in range(MAX_ATTEMPTS):
            try:
                self.pod = await self._retry(write, self.pod, *args)
                return None
            except InputError as error:
                failure = error
            if not self._is_uncertain(failure):
                return failure
            fresh = await self._settle_pod()
            if fresh is None:
                return self._not_found_error()
            bound = fresh.spec.node_name != self.pod.spec.node_name
            self.pod = fresh
            if bound or not _is_conflict(failure):
                return failure
        return failure

    def _not_found_error(self) -> ApiError:
        meta = self.pod.metadata
        return ApiError(404, "NotFound", f'pod "{meta.name}" with UID {meta.uid} not found')

    async def bind(self, node: str, entries: Sequence[ClaimCharge]) -> BindFailure | None:
        """Bind the pod; succeeds if it is on this node already."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                await self._retry(self.writer.bind, self.pod, node, entries)
                return None
            except InputError as error:
                failed = _failure(BindStep.BINDING, BindError.BINDING, error, error=error)
                if not self._is_uncertain(error):
                    return replace(failed, final=_is_missing(error))
            before = self.pod
            fresh = await self._settle_pod()
            if fresh is None:
                gone = self._not_found_error()
                failed = _failure(BindStep.BINDING, BindError.BINDING, failed.cause, error=gone)
                return replace(failed, final=True)
            self.pod = fresh
            if fresh.spec.node_name == node:
                return None
            if fresh.spec.node_name:
                # Another scheduler recorded its own charges, unless they are still ours.
                self._charged = self._charged and read_pod(fresh) == tuple(entries)
                return replace(failed, final=True)
            if (
                attempt == MAX_ATTEMPTS
                or failed.cause is None
                or not _is_conflict(failed.cause)
                or fresh.metadata.deletion_timestamp is not None
                or fresh.metadata.resource_version == before.metadata.resource_version
            ):
                return failed  # the conflict is not about the version: retrying is useless
            if self._charged and read_pod(fresh) != tuple(entries):
                refused = await self.write_charges(entries)
                if refused is not None:
                    return refused
        raise AssertionError("the last attempt returns")

    # -- undo

    async def undo(self) -> bool:
        """Undo what was written, in reverse order; return whether all of it is gone."""
        settled = await self._clear_charges() if self._charged else True
        for hold in reversed(self.holds):
            settled = await self.release(hold) and settled
        return settled

    async def _clear_charges(self) -> bool:
        error = await self._write_pod(self.writer.clear_charges)
        return error is None or _is_missing(error)

    async def release(self, hold: ClaimHold) -> bool:
        """Remove the pod from a claim's consumers, and the allocation if it was made for this pod.

        A claim that meanwhile has another allocation is not changed. DIFF: a claim that was allocated for
        this pod and is reserved for no other is deallocated when the binding fails
        (test_a_failed_binding_releases_its_devices); upstream leaves it allocated without consumers, so that
        its devices are unavailable even if no pod ever uses the claim.
        """
        claim = hold.claim
        taken = claim.status.allocation
        for _ in range(MAX_ATTEMPTS):
            if claim.status.allocation is None or claim.status.allocation != taken:
                return True
            alone = all(each.uid == self.consumer.uid for each in claim.status.reserved_for)
            deallocate = hold.allocated_here and alone
            if not deallocate and not self._has_reserved(claim):
                return True
            try:
                self._observe(
                    await self._retry(self.writer.unreserve, claim, self.consumer, deallocate=deallocate)
                )
                return True
            except InputError as error:
                if _is_missing(error) and not self._uncertain:
                    return True
                if not self._is_uncertain(error):
                    return False
            fresh = await self._settle_claim(claim)
            if fresh is None:
                return True
            claim = fresh
        return False

    # -- retries

    async def _retry(self, call: Callable[..., Awaitable[T]], *args: object, **named: object) -> T:
        """Repeat a call until there is a response, and a few times on server errors."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call(*args, **named)
            except ApiError as error:
                unanswered = isinstance(error, UnreachableError)
                overloaded = error.code == 429 or error.code >= 500
                if unanswered or error.code >= 500:
                    self._uncertain = True
                if not unanswered and not (overloaded and attempt < MAX_ATTEMPTS):
                    raise
                await self.writer.pause(attempt, error)

    async def _settle_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return the claim at a version at which no earlier write can be applied; None if it is gone.

        Waits as long as necessary: until then the devices must not be given to other pods.
        """
        fresh = await retry_until_answered(self.writer, self.writer.read_claim, claim)
        version = claim.metadata.resource_version
        if fresh is not None and self._uncertain and fresh.metadata.resource_version == version:
            fresh = await retry_until_answered(self.writer, self.writer.fence_claim, claim)
        return None if fresh is None else self._observe(fresh)

    async def _settle_pod(self) -> Pod | None:
        """Return the pod at a version at which no earlier write can be applied; None if it is gone."""
        fresh = await retry_until_answered(self.writer, self.writer.read_pod, self.pod)
        version = self.pod.metadata.resource_version
        if fresh is not None and self._uncertain and fresh.metadata.resource_version == version:
            fresh = await retry_until_answered(self.writer, self.writer.fence_pod, self.pod)
        return fresh

    def _is_uncertain(self, error: InputError) -> bool:
        """Return whether the outcome of a write is known only by reading the object again."""
        if self._uncertain or not isinstance(error, ApiError):
            return True
        return error.code == 409 or error.code >= 500

    def _observe(self, claim: ResourceClaim) -> ResourceClaim:
        self.on_claim(claim)
        return claim

    def _has_reserved(self, claim: ResourceClaim) -> bool:
        return any(each.uid == self.consumer.uid for each in claim.status.reserved_for)


# -- helpers


def consumer_of(pod: Pod) -> ResourceClaimConsumerReference:
    """Return the `reservedFor` entry of a pod."""
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def _is_conflict(error: InputError) -> bool:
    return isinstance(error, ApiError) and error.code == 409


def _is_missing(error: InputError) -> bool:
    return isinstance(error, ApiError) and error.code == 404


def _failure(
    step: BindStep, error_kind: BindError, cause: InputError | None, **fields: object
) -> BindFailure:
    return BindFailure(step, format_bind_error(error_kind, **fields), cause=cause)


def _device_ids(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    results = allocation.devices.results
    return [(each.request, each.driver, each.pool, each.device, each.share_id) for each in results]


def _is_decided(claim: ResourceClaim) -> bool:
    """Return whether waiting for a claim's devices is over: ready, failed, or deallocated."""
    return claim.status.allocation is None or check_binding_conditions(claim) is not False


async def release_claim(claim: ResourceClaim, pod: Pod, writer: BindingWriter, on_claim: OnClaim) -> bool:
    """Deallocate a claim that is reserved for no other pod; return whether it succeeded."""
    return await BindTransaction(pod, writer, on_claim).release(ClaimHold(claim, allocated_here=True))
