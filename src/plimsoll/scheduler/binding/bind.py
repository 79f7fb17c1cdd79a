"""Binding a pod: write its claims, charges and node to the API, and undo them on failure.

The order is kube-scheduler's: for each claim the finalizer, then allocation and reservation in one write; the
pod's charges, or placeholders for them (`placeholders.py`); its volumes (`volumes.py`); the conditions of
devices that name some; the binding itself.
Guarantees:

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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, read_pod
from plimsoll.api.pod_claims import find_requesting_pod, resolve_claim_names
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from plimsoll.errors import InputError
from plimsoll.ledger.status import build_status_entries
from plimsoll.scheduler.binding.attempts import (
    ClaimHold,
    OnClaim,
    WriteAttempts,
    is_conflict,
    is_missing,
    make_failure,
)
from plimsoll.scheduler.binding.binding_conditions import (
    DeviceBindingFailure,
    check_binding_conditions,
    has_binding_conditions,
)
from plimsoll.scheduler.binding.extended_claim import ExtendedClaimSteps
from plimsoll.scheduler.binding.permit import BindPermit
from plimsoll.scheduler.binding.placeholders import PlaceholderBinder
from plimsoll.scheduler.binding.pod_conditions import BindError
from plimsoll.scheduler.binding.result import BindFailure, BindPoint, BindStep, BindSuccess
from plimsoll.scheduler.binding.volumes import VolumeBinder
from plimsoll.scheduler.binding.writer import FINALIZER, BindingWriter
from plimsoll.scheduler.extended_resources import is_in_memory, rename_charges
from plimsoll.scheduler.result import Placement

OnPoint = Callable[[BindPoint, BindFailure | None], None]
#: Returns a device of these claims that other claims hold, too, or "".
FindConflict = Callable[[Sequence[ResourceClaim]], str]
Waiting = Callable[[], AbstractContextManager[None]]


async def bind_pod(
    placement: Placement,
    writer: BindingWriter,
    on_claim: OnClaim,
    *,
    find_conflict: FindConflict = lambda claims: "",
    volumes: VolumeBinder | None = None,
    placeholders: PlaceholderBinder | None = None,
    on_point: OnPoint = lambda point, failed: None,
    permit: BindPermit | None = None,
    waiting: Waiting = nullcontext,
) -> BindSuccess | BindFailure:
    """Write a placement to the API; on failure undo what was written.

    `on_claim` receives every claim in a response, so that the snapshot is current at once; `on_point` is
    called at the end of each extension point. `volumes` and `placeholders` are those of the pod, if any. With
    a `permit`, the pod is bound together with others. Within `waiting`, the binding waits for others and
    writes nothing.
    """
    binding = BindTransaction(placement.pod_info.stored, writer, on_claim, placement.node)
    if permit is not None:
        binding.group_consumers = permit.group_consumers
    failed = await _permit(permit.await_claims(placement), waiting) if permit is not None else None
    failed = failed or await _pre_bind(binding, placement, find_conflict, volumes, placeholders, waiting)
    on_point(BindPoint.PRE_BIND, failed)
    if failed is None and permit is not None:
        failed = await _permit(permit.await_group(placement), waiting)
    elif failed is not None and permit is not None:
        permit.fail(placement, failed.error)
    if failed is None:
        failed = await binding.bind(placement.node, binding.entries)
        on_point(BindPoint.BIND, failed)
    if failed is None:
        return BindSuccess(placement.node, tuple(hold.claim for hold in binding.holds))
    if placeholders is not None:
        await placeholders.undo()
    settled = await binding.undo()
    on_point(BindPoint.UNRESERVE, None if settled else failed)
    return replace(failed, settled=settled and failed.settled)


async def _permit(permission: Awaitable[str], waiting: Waiting) -> BindFailure | None:
    with waiting():
        error = await permission
    return BindFailure(BindStep.PERMIT, error) if error else None


async def _pre_bind(
    binding: BindTransaction,
    placement: Placement,
    find_conflict: FindConflict,
    volumes: VolumeBinder | None,
    placeholders: PlaceholderBinder | None,
    waiting: Waiting,
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
    binding.entries = _status_entries(placement, binding.created)
    built = placement.pod_info.pod.status.extended_resource_claim_status
    return (
        await binding.write_claim_status(binding.claim_status(built))
        or await binding.write_charges(binding.entries)
        or (await placeholders.create(binding.pod, waiting) if placeholders is not None else None)
        # Volumes are requested once the claims are written, and become ready together with the devices.
        or (await volumes.write() if volumes is not None else None)
        or await binding.wait_for_devices(placement.pod_info.profile.binding_timeout_ms, waiting)
        or (await _wait_for_volumes(volumes, waiting) if volumes is not None else None)
        or binding.check_device_conflicts(find_conflict)
    )


async def _wait_for_volumes(volumes: VolumeBinder, waiting: Waiting) -> BindFailure | None:
    with waiting():
        return await volumes.wait_until_bound()


async def _take_claim(
    binding: BindTransaction, placement: Placement, claim: ResourceClaim
) -> BindFailure | None:
    if claim.status.allocation is not None:
        return await binding.reserve(claim)
    allocation = placement.allocations[claim.metadata.name]
    if is_in_memory(claim):
        created = await binding.create_claim(claim)
        if isinstance(created, BindFailure):
            return created
        claim = created
    return await binding.allocate(claim, allocation)


def _status_entries(placement: Placement, created: ResourceClaim | None) -> tuple[ClaimCharge, ...]:
    """Return the charges for the pod's status, with the name of the claim that was created."""
    charged = placement.charged_claims
    for claim in placement.pod_info.claims:
        if created is not None and is_in_memory(claim):
            charged = rename_charges(charged, claim, created.metadata.name)
    return build_status_entries(charged)


class BindTransaction(ExtendedClaimSteps):
    """State of one pod's binding in progress."""

    def __init__(self, pod: Pod, writer: BindingWriter, on_claim: OnClaim, node: str = "") -> None:
        super().__init__(pod, writer, on_claim, node)
        #: Charges of the claims, once all claims have their names.
        self.entries: tuple[ClaimCharge, ...] = ()
        self._charged = False
        self._claim_names = _claim_names(pod)

    # -- claims

    async def allocate(self, claim: ResourceClaim, allocation: AllocationResult) -> BindFailure | None:
        """Write the finalizer, then allocation and reservation under the claim's resourceVersion."""
        name = claim.metadata.full_name
        attempts = WriteAttempts()
        while True:
            step, error_kind = BindStep.ALLOCATION, BindError.ADD_ALLOCATION
            try:
                if FINALIZER not in claim.metadata.finalizers:
                    step, error_kind = BindStep.FINALIZER, BindError.ADD_FINALIZER
                    claim = self._observe(await self._retry(self.writer.add_finalizer, claim))
                    step, error_kind = BindStep.ALLOCATION, BindError.ADD_ALLOCATION
                    if claim.status.allocation is not None:
                        return self._adopt_allocation(claim, allocation, step)
                written = await self._retry(
                    self.writer.write_allocation, claim, allocation, self.consumer_for(claim)
                )
                self.holds.append(ClaimHold(self._observe(written), allocated_here=True))
                return None
            except InputError as error:
                failed = make_failure(step, error_kind, error, claim=name, error=error)
                if not self._is_uncertain(error):
                    return failed
            # The claim was changed by another writer, or the outcome of our write is unknown.
            fresh = await self._settle_claim(claim)
            if fresh is None or fresh.metadata.deletion_timestamp is not None:
                return make_failure(step, BindError.CLAIM_GONE, failed.cause, claim=name)
            if fresh.status.allocation is not None:
                return self._adopt_allocation(fresh, allocation, step)
            if failed.cause is None or not is_conflict(failed.cause):
                return failed
            if not attempts.may_repeat(fresh.metadata.resource_version, failed.cause):
                return failed
            claim = fresh

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
            return make_failure(step, BindError.CLAIM_TAKEN, None, claim=claim.metadata.full_name)
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
            return make_failure(BindStep.RESERVATION, BindError.CLAIM_RELEASED, None, claim=name)
        self.holds.append(ClaimHold(fresh, allocated_here=allocated_here))
        if fresh.status.allocation is None:
            return make_failure(BindStep.RESERVATION, BindError.CLAIM_RELEASED, None, claim=name)
        if allocation is not None and _device_ids(fresh.status.allocation) != _device_ids(allocation):
            return make_failure(BindStep.RESERVATION, BindError.CLAIM_TAKEN, None, claim=name)
        return None

    async def _add_consumer(self, claim: ResourceClaim) -> ResourceClaim | BindFailure:
        name, attempts = claim.metadata.full_name, WriteAttempts()
        while True:
            try:
                return self._observe(await self._retry(self.writer.reserve, claim, self.consumer_for(claim)))
            except InputError as error:
                failure = error
            failed = make_failure(
                BindStep.RESERVATION, BindError.ADD_RESERVATION, failure, claim=name, error=failure
            )
            if not self._is_uncertain(failure):
                return failed
            fresh = await self._settle_claim(claim)
            if fresh is None:
                return make_failure(BindStep.RESERVATION, BindError.CLAIM_GONE, failure, claim=name)
            if self._has_reserved(fresh):
                return fresh
            if not is_conflict(failure) or not attempts.may_repeat(fresh.metadata.resource_version, failure):
                return failed
            claim = fresh

    async def _confirm_reservation(self, claim: ResourceClaim) -> ResourceClaim | BindFailure:
        name = claim.metadata.full_name
        try:
            fresh = await self._retry(self.writer.fence_claim, claim)
        except InputError as error:
            return make_failure(
                BindStep.RESERVATION, BindError.ADD_RESERVATION, error, claim=name, error=error
            )
        if fresh is None:
            return make_failure(BindStep.RESERVATION, BindError.CLAIM_GONE, None, claim=name)
        return self._observe(fresh)

    async def wait_for_devices(self, timeout_ms: int, waiting: Waiting) -> BindFailure | None:
        """Wait until devices with binding conditions are ready."""
        for hold in self.holds:
            if not has_binding_conditions(hold.claim.status.allocation):
                continue
            name = hold.claim.metadata.name
            try:
                with waiting():
                    fresh = await self._retry(self.writer.wait_for, hold.claim, _is_decided, timeout_ms)
            except InputError as error:
                return make_failure(BindStep.CONDITIONS, BindError.BINDING, error, error=error)
            if fresh is None:
                return make_failure(
                    BindStep.CONDITIONS, BindError.CLAIM_GONE, None, claim=hold.claim.metadata.full_name
                )
            hold.claim = self._observe(fresh)
            if fresh.status.allocation is None:
                return make_failure(
                    BindStep.CONDITIONS, BindError.CLAIM_RELEASED, None, claim=hold.claim.metadata.full_name
                )
            verdict = check_binding_conditions(fresh)
            if verdict is not True:
                hold.allocated_here = True  # failed devices are always released
            if isinstance(verdict, DeviceBindingFailure):
                fields = {"reason": verdict.reason, "message": verdict.message}
                return make_failure(BindStep.CONDITIONS, BindError.DEVICES_FAILED, None, name=name, **fields)
            if not verdict:
                return make_failure(BindStep.CONDITIONS, BindError.DEVICES_LATE, None, name=name)
        return None

    def check_device_conflicts(self, find_conflict: FindConflict) -> BindFailure | None:
        """Fail if another claim holds one of the devices."""
        device = find_conflict([hold.claim for hold in self.holds])
        return make_failure(BindStep.BINDING, BindError.DEVICE_HELD, None, device=device) if device else None

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
        failed = make_failure(BindStep.CHARGES, BindError.CHARGES, error, pod=pod, error=error)
        return replace(failed, final=is_missing(error))

    async def _write_or_clear_charges(self, pod: Pod, entries: Sequence[ClaimCharge]) -> Pod:
        if not entries:
            return await self.writer.clear_charges(pod)
        return await self.writer.write_charges(pod, entries, self.node)

    async def bind(self, node: str, entries: Sequence[ClaimCharge]) -> BindFailure | None:
        """Bind the pod; succeeds if it is on this node already.

        DIFF: a pod whose generated claims have other names than those that were allocated is not bound
        (test_a_pod_whose_claims_were_replaced_is_not_bound); kube-scheduler binds it with a claim that is not
        allocated.
        """
        attempts = WriteAttempts()
        while True:
            if _claim_names(self.pod) != self._claim_names:
                pod = self.pod.metadata.full_name
                return make_failure(BindStep.BINDING, BindError.CLAIMS_CHANGED, None, pod=pod)
            try:
                await self._retry(self.writer.bind, self.pod, node, entries)
                return None
            except InputError as error:
                failed = make_failure(BindStep.BINDING, BindError.BINDING, error, error=error)
                if not self._is_uncertain(error):
                    return replace(failed, final=is_missing(error))
            before = self.pod
            fresh = await self._settle_pod()
            if fresh is None:
                gone = self._not_found_error()
                failed = make_failure(BindStep.BINDING, BindError.BINDING, failed.cause, error=gone)
                return replace(failed, final=True)
            self.pod = fresh
            if fresh.spec.node_name == node:
                return None
            if fresh.spec.node_name:
                # Another scheduler recorded its own charges, unless they are still ours.
                self._charged = self._charged and read_pod(fresh) == tuple(entries)
                return replace(failed, final=True)
            version = fresh.metadata.resource_version
            if (
                failed.cause is None
                or not is_conflict(failed.cause)
                or fresh.metadata.deletion_timestamp is not None
                or version == before.metadata.resource_version
                or not attempts.may_repeat(version, failed.cause)
            ):
                return failed  # the conflict is not about the version: retrying is useless
            refused = await self.write_claim_status(self._wanted_status)
            if refused is not None:
                return refused
            if self._charged and read_pod(fresh) != tuple(entries):
                refused = await self.write_charges(entries)
                if refused is not None:
                    return refused

    # -- undo

    async def undo(self) -> bool:
        """Undo what was written, in reverse order; return whether all of it is gone."""
        settled = await self._clear_charges() if self._charged else True
        if self.created is not None:
            failed = await self.write_claim_status(None)
            settled = (failed is None or failed.final) and settled
        for hold in reversed(self.holds):
            if hold.claim.metadata.uid in self.group_consumers:
                continue  # other pods of the group may use it
            if self.created is None or hold.claim.metadata.uid != self.created.metadata.uid:
                settled = await self.release(hold) and settled
        return await self.delete_created() and settled

    async def _clear_charges(self) -> bool:
        error = await self._write_pod(self.writer.clear_charges)
        return error is None or is_missing(error)

    async def release(self, hold: ClaimHold) -> bool:
        """Remove the pod from a claim's consumers, and the allocation if it was made for this pod.

        A claim that meanwhile has another allocation is not changed. DIFF: a claim that was allocated for
        this pod and is reserved for no other is deallocated when the binding fails
        (test_a_failed_binding_releases_its_devices); upstream leaves it allocated without consumers, so that
        its devices are unavailable even if no pod ever uses the claim.
        """
        claim = hold.claim
        taken = claim.status.allocation
        attempts = WriteAttempts()
        while True:
            if claim.status.allocation is None or claim.status.allocation != taken:
                return True
            consumer = self.consumer_for(claim)
            alone = all(each.uid == consumer.uid for each in claim.status.reserved_for)
            deallocate = hold.allocated_here and alone
            if not deallocate and not self._has_reserved(claim):
                return True
            try:
                self._observe(
                    await self._retry(self.writer.unreserve, claim, consumer, deallocate=deallocate)
                )
                return True
            except InputError as error:
                failure = error
            if is_missing(failure) and not self._uncertain:
                return True
            if not self._is_uncertain(failure):
                return False
            fresh = await self._settle_claim(claim)
            if fresh is None:
                return True
            claim = fresh
            if not attempts.may_repeat(claim.metadata.resource_version, failure):
                return False


# -- helpers


def _claim_names(pod: Pod) -> dict[str, str]:
    """Return the claims of a pod by its names for them, without the one for extended resources."""
    return {entry: name for entry, name in resolve_claim_names(pod).items() if entry}


def _device_ids(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    results = allocation.devices.results
    return [(each.request, each.driver, each.pool, each.device, each.share_id) for each in results]


def _is_decided(claim: ResourceClaim) -> bool:
    """Return whether waiting for a claim's devices is over: ready, failed, or deallocated."""
    return claim.status.allocation is None or check_binding_conditions(claim) is not False


async def release_claim(claim: ResourceClaim, pod: Pod, writer: BindingWriter, on_claim: OnClaim) -> bool:
    """Deallocate a claim that is reserved for no other pod, or delete it if it was created for extended
    resources; return whether it succeeded.
    """
    binding = BindTransaction(pod, writer, on_claim)
    if find_requesting_pod(claim) is not None:
        return await binding.delete_claim(claim)
    return await binding.release(ClaimHold(claim, allocated_here=True))


async def release_group_claim(
    claim: ResourceClaim,
    consumer: ResourceClaimConsumerReference,
    pod: Pod,
    writer: BindingWriter,
    on_claim: OnClaim,
) -> bool:
    """Remove the reservation of a claim for a PodGroup, and its allocation if there is no other."""
    binding = BindTransaction(pod, writer, on_claim)
    binding.group_consumers = {claim.metadata.uid: consumer}
    return await binding.release(ClaimHold(claim, allocated_here=True))
