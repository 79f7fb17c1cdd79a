"""Binding a pod: write its claims, charges and node to the API, and undo them on failure.

The order is kube-scheduler's: for each claim the finalizer, then allocation and reservation in one write; the
pod's charges; the conditions of devices that name some; the binding itself. Guarantees:

- Every write that takes or releases something is conditional on the resourceVersion of its object, so that it
  can land at most once and never after the object has changed.
- A write without an answer is repeated until there is one. Before the binding is given up, every object whose
  write may still be under way is read at a newer version, or given one (`Writer.fence_claim`, `fence_pod`):
  from then on the write is refused wherever it was delayed, and nothing it could take is given to others
  before.
- What was written is undone in reverse order when a later step fails. A release names the allocation that it
  undoes: a claim that has another one by then is left alone.
- Before the pod is bound, its devices are checked against their current holders.

Document 000, "Reserve" to "PreBind Stage"; section 3 of the accounting semantics, "Who writes what, when".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, read_pod
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from plimsoll.errors import ApiError, InputError, UnreachableError
from plimsoll.ledger.status import build_status_entries
from plimsoll.scheduler.binding.binding_conditions import Failure, judge_devices, waits_for_devices
from plimsoll.scheduler.binding.pod_conditions import Mishap, explain_mishap
from plimsoll.scheduler.binding.writes import FINALIZER, Writer, ask_until_answered
from plimsoll.scheduler.result import Placement

T = TypeVar("T")
Hear = Callable[[ResourceClaim], None]
#: Returns the device of these claims that somebody else holds, too, or "" if there is none.
FindConflict = Callable[[Sequence[ResourceClaim]], str]

#: How long devices may take to become ready, counted from their allocation.
CONDITIONS_MS = 600_000
#: How often a write is tried that others get in the way of, or that the server fails at.
TRIES = 5


class Step(Enum):
    """What a binding is made of, in order."""

    FINALIZER = "finalizer"
    ALLOCATION = "allocation"
    RESERVATION = "reservation"
    CHARGES = "charges"
    CONDITIONS = "conditions"
    BINDING = "binding"


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod is on its node; its claims as the API has them now."""

    node: str
    claims: tuple[ResourceClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The pod is not bound: at which step, why, and what was left behind."""

    step: Step
    error: str  #: a sentence for the event
    settled: bool = True  #: False: something could not be taken back; `heard` was told what
    over: bool = False  #: there is nothing to try again: the pod is gone, or on another node
    cause: InputError | None = None


async def bind_pod(
    placement: Placement,
    writer: Writer,
    heard: Hear,
    *,
    find_conflict: FindConflict = lambda claims: "",
    timeout_ms: int = CONDITIONS_MS,
) -> Bound | Failed:
    """Write a placement to the API; on failure undo what was written.

    `heard` receives every claim that an answer shows, so that the snapshot has it at once.
    """
    binding = Binding(placement.pod_info.pod, writer, heard)
    failed = await _write(binding, placement, find_conflict, timeout_ms)
    if failed is None:
        return Bound(placement.node, tuple(hold.claim for hold in binding.holds))
    settled = await binding.undo()
    return replace(failed, settled=settled and failed.settled)


async def _write(
    binding: Binding, placement: Placement, find_conflict: FindConflict, timeout_ms: int
) -> Failed | None:
    claims = placement.pod_info.claims
    if len(claims) == 1:
        outcomes = [await _take(binding, placement, claims[0])]
    else:
        jobs = [_take(binding, placement, claim) for claim in claims]
        outcomes = await binding.writer.gather(jobs) if jobs else []
    failed = next((each for each in outcomes if isinstance(each, Failed)), None)
    if failed is not None:
        return failed
    entries = build_status_entries(placement.charged_claims)
    return (
        await binding.charge(entries)
        or await binding.await_devices(timeout_ms)
        or binding.check_holders(find_conflict)
        or await binding.bind(placement.node, entries)
    )


async def _take(binding: Binding, placement: Placement, claim: ResourceClaim) -> Failed | None:
    if claim.status.allocation is not None:
        return await binding.reserve(claim)
    return await binding.allocate(claim, placement.allocations[claim.metadata.name])


@dataclass(slots=True)
class Hold:
    """A claim that is reserved for the pod; `ours` if its devices were chosen for this pod."""

    claim: ResourceClaim
    ours: bool


class Binding:
    """One pod's binding while it is being written: what it holds by now."""

    def __init__(self, pod: Pod, writer: Writer, heard: Hear) -> None:
        self.pod = pod
        self.writer = writer
        self.heard = heard
        self.consumer = consumer_of(pod)
        self.holds: list[Hold] = []
        self._charged = False
        self._unsure = False  # a write got no definite answer: it may still be under way

    # -- claims

    async def allocate(self, claim: ResourceClaim, allocation: AllocationResult) -> Failed | None:
        """Finalizer, then allocation and reservation under the claim's resourceVersion."""
        name = full_name(claim)
        for attempt in range(1, TRIES + 1):
            step, mishap = Step.ALLOCATION, Mishap.ADD_ALLOCATION
            try:
                if FINALIZER not in claim.metadata.finalizers:
                    step, mishap = Step.FINALIZER, Mishap.ADD_FINALIZER
                    claim = self._note(await self._insist(self.writer.add_finalizer, claim))
                    step, mishap = Step.ALLOCATION, Mishap.ADD_ALLOCATION
                    if claim.status.allocation is not None:
                        return self._found(claim, allocation, step)
                written = await self._insist(self.writer.write_allocation, claim, allocation, self.consumer)
                self.holds.append(Hold(self._note(written), ours=True))
                return None
            except InputError as error:
                failed = _fail(step, mishap, error, claim=name, error=error)
                if not self._is_doubtful(error):
                    return failed
            # Somebody else wrote the claim, or nobody knows what became of our write.
            fresh = await self._settle_claim(claim)
            if fresh is None:
                return _fail(step, Mishap.CLAIM_GONE, failed.cause, claim=name)
            if fresh.metadata.deletion_timestamp is not None:
                return _fail(step, Mishap.CLAIM_GONE, failed.cause, claim=name)
            if fresh.status.allocation is not None:
                return self._found(fresh, allocation, step)
            if failed.cause is None or not _is_conflict(failed.cause) or attempt == TRIES:
                return failed
            claim = fresh
        raise AssertionError("the last attempt returns")

    def _found(self, claim: ResourceClaim, allocation: AllocationResult, step: Step) -> Failed | None:
        """A claim turns out to have devices: those we meant, from a write unheard of, or somebody else's."""
        written = claim.status.allocation
        if written is None or not self._has_reserved(claim) or _devices(written) != _devices(allocation):
            return _fail(step, Mishap.CLAIM_TAKEN, None, claim=full_name(claim))
        self.holds.append(Hold(claim, ours=True))
        return None

    async def reserve(self, claim: ResourceClaim) -> Failed | None:
        """Join the consumers of a claim that has devices; one that is reserved already counts as ours.

        A claim that is reserved already (by an earlier attempt, perhaps of another process) is written all
        the same: only a write proves that it still is, and ends a release that may be under way.
        """
        name, allocation = full_name(claim), claim.status.allocation
        ours = self._has_reserved(claim)
        fresh = await self._confirm(claim) if ours else await self._join(claim)
        if isinstance(fresh, Failed):
            return fresh
        if ours and not self._has_reserved(fresh):
            return _fail(Step.RESERVATION, Mishap.CLAIM_RELEASED, None, claim=name)
        self.holds.append(Hold(fresh, ours=ours))
        if fresh.status.allocation is None:
            return _fail(Step.RESERVATION, Mishap.CLAIM_RELEASED, None, claim=name)
        if allocation is not None and _devices(fresh.status.allocation) != _devices(allocation):
            return _fail(Step.RESERVATION, Mishap.CLAIM_TAKEN, None, claim=name)
        return None

    async def _join(self, claim: ResourceClaim) -> ResourceClaim | Failed:
        try:
            return self._note(await self._insist(self.writer.reserve, claim, self.consumer))
        except InputError as error:
            name = full_name(claim)
            failed = _fail(Step.RESERVATION, Mishap.ADD_RESERVATION, error, claim=name, error=error)
            if not self._is_doubtful(error):
                return failed
        fresh = await self._settle_claim(claim)
        if fresh is None:
            return _fail(Step.RESERVATION, Mishap.CLAIM_GONE, failed.cause, claim=name)
        return fresh if self._has_reserved(fresh) else failed

    async def _confirm(self, claim: ResourceClaim) -> ResourceClaim | Failed:
        name = full_name(claim)
        try:
            fresh = await self._insist(self.writer.fence_claim, claim)
        except InputError as error:
            return _fail(Step.RESERVATION, Mishap.ADD_RESERVATION, error, claim=name, error=error)
        if fresh is None:
            return _fail(Step.RESERVATION, Mishap.CLAIM_GONE, None, claim=name)
        return self._note(fresh)

    async def await_devices(self, timeout_ms: int) -> Failed | None:
        """Wait until devices that name binding conditions are ready."""
        for hold in self.holds:
            if not waits_for_devices(hold.claim.status.allocation):
                continue
            name = hold.claim.metadata.name
            try:
                fresh = await self._insist(self.writer.wait_for, hold.claim, _is_settled, timeout_ms)
            except InputError as error:
                return _fail(Step.CONDITIONS, Mishap.BINDING, error, error=error)
            if fresh is None:
                return _fail(Step.CONDITIONS, Mishap.CLAIM_GONE, None, claim=full_name(hold.claim))
            hold.claim = self._note(fresh)
            if fresh.status.allocation is None:
                return _fail(Step.CONDITIONS, Mishap.CLAIM_RELEASED, None, claim=full_name(hold.claim))
            verdict = judge_devices(fresh)
            if verdict is not True:
                hold.ours = True  # such devices are given up, whoever chose them: others may do better
            if isinstance(verdict, Failure):
                facts = {"reason": verdict.reason, "message": verdict.message}
                return _fail(Step.CONDITIONS, Mishap.DEVICES_FAILED, None, name=name, **facts)
            if not verdict:
                return _fail(Step.CONDITIONS, Mishap.DEVICES_LATE, None, name=name)
        return None

    def check_holders(self, find_conflict: FindConflict) -> Failed | None:
        """Refuse to bind a pod to devices that somebody else turns out to hold."""
        device = find_conflict([hold.claim for hold in self.holds])
        return _fail(Step.BINDING, Mishap.DEVICE_HELD, None, device=device) if device else None

    # -- the pod

    async def charge(self, entries: Sequence[ClaimCharge]) -> Failed | None:
        """Record what the claims charge, instead of what an earlier attempt has left there."""
        if not entries and not read_pod(self.pod):
            return None
        self._charged = True
        error = await self._write_pod(self._record, entries)
        if error is None or self.pod.spec.node_name:
            return None  # if it turned out to be bound, `bind` finds out what that means
        pod = f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"
        failed = _fail(Step.CHARGES, Mishap.CHARGES, error, pod=pod, error=error)
        return replace(failed, over=_is_missing(error))

    async def _record(self, pod: Pod, entries: Sequence[ClaimCharge]) -> Pod:
        return await (self.writer.write_charges(pod, entries) if entries else self.writer.clear_charges(pod))

    async def _write_pod(self, write: Callable[..., Awaitable[Pod]], *args: object) -> InputError | None:
        """Write to the pod, under whatever version it has, unless somebody binds it; returns why not.

        A 404 in the answer says that the pod is gone, or that another one has its name.
        """
        for _ in range(TRIES):
            try:
                self.pod = await self._insist(write, self.pod, *args)
                return None
            except InputError as error:
                refusal = error
            if not self._is_doubtful(refusal):
                return refusal
            fresh = await self._settle_pod()
            if fresh is None:
                return self._gone()
            bound = fresh.spec.node_name != self.pod.spec.node_name
            self.pod = fresh
            if bound or not _is_conflict(refusal):
                return refusal
        return refusal

    def _gone(self) -> ApiError:
        meta = self.pod.metadata
        return ApiError(404, "NotFound", f'pod "{meta.name}" with UID {meta.uid} not found')

    async def bind(self, node: str, entries: Sequence[ClaimCharge]) -> Failed | None:
        """The binding itself; a pod that is on this node already is bound."""
        for attempt in range(1, TRIES + 1):
            try:
                await self._insist(self.writer.bind, self.pod, node, entries)
                return None
            except InputError as error:
                failed = _fail(Step.BINDING, Mishap.BINDING, error, error=error)
                if not self._is_doubtful(error):
                    return replace(failed, over=_is_missing(error))
            before = self.pod
            fresh = await self._settle_pod()
            if fresh is None:
                return replace(
                    _fail(Step.BINDING, Mishap.BINDING, failed.cause, error=self._gone()), over=True
                )
            self.pod = fresh
            if fresh.spec.node_name == node:
                return None
            if fresh.spec.node_name:
                # Whoever bound it recorded its own charges, unless they are still what we wrote.
                self._charged = self._charged and read_pod(fresh) == tuple(entries)
                return replace(failed, over=True)
            if (
                attempt == TRIES
                or failed.cause is None
                or not _is_conflict(failed.cause)
                or fresh.metadata.deletion_timestamp is not None
                or fresh.metadata.resource_version == before.metadata.resource_version
            ):
                return failed  # the conflict is not about the version: it would be refused again
            if self._charged and read_pod(fresh) != tuple(entries):
                refused = await self.charge(entries)
                if refused is not None:
                    return refused
        raise AssertionError("the last attempt returns")

    # -- taking back

    async def undo(self) -> bool:
        """Take back what was written, last things first; whether all of it is gone."""
        settled = await self._uncharge() if self._charged else True
        for hold in reversed(self.holds):
            settled = await self.give_back(hold) and settled
        return settled

    async def _uncharge(self) -> bool:
        error = await self._write_pod(self.writer.clear_charges)
        return error is None or _is_missing(error)

    async def give_back(self, hold: Hold) -> bool:
        """Remove the pod from a claim's consumers, and the devices with it if they were chosen for it.

        A claim that has another allocation than `hold` by now is not the one that was taken, and stays as it
        is. DIFF: a claim whose devices were chosen for this pod, and which nobody else has reserved, loses
        them when the binding fails (test_devices_go_back_when_binding_fails); upstream leaves the claim
        allocated but reserved for nobody, and so keeps its devices from others even if no pod ever uses it
        again.
        """
        claim = hold.claim
        taken = claim.status.allocation
        for _ in range(TRIES):
            if claim.status.allocation is None or claim.status.allocation != taken:
                return True
            alone = all(each.uid == self.consumer.uid for each in claim.status.reserved_for)
            deallocate = hold.ours and alone
            if not deallocate and not self._has_reserved(claim):
                return True
            try:
                self._note(
                    await self._insist(self.writer.unreserve, claim, self.consumer, deallocate=deallocate)
                )
                return True
            except InputError as error:
                if _is_missing(error) and not self._unsure:
                    return True
                if not self._is_doubtful(error):
                    return False
            fresh = await self._settle_claim(claim)
            if fresh is None:
                return True
            claim = fresh
        return False

    # -- asking until there is an answer

    async def _insist(self, call: Callable[..., Awaitable[T]], *args: object, **named: object) -> T:
        """Repeat a call until it is answered, and a few times where the answer is that the server failed."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call(*args, **named)
            except ApiError as error:
                lost = isinstance(error, UnreachableError)
                busy = error.code == 429 or error.code >= 500
                if lost or error.code >= 500:
                    self._unsure = True
                if not lost and not (busy and attempt < TRIES):
                    raise
                await self.writer.pause(attempt, error)

    async def _settle_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        """The claim at a version at which no earlier write of ours can land any more; None if it is gone.

        However long it takes: until then the devices must not be given to others.
        """
        fresh = await ask_until_answered(self.writer, self.writer.read_claim, claim)
        version = claim.metadata.resource_version
        if fresh is not None and self._unsure and fresh.metadata.resource_version == version:
            fresh = await ask_until_answered(self.writer, self.writer.fence_claim, claim)
        return None if fresh is None else self._note(fresh)

    async def _settle_pod(self) -> Pod | None:
        """The pod at a version at which no earlier write of ours can land any more; None if it is gone."""
        fresh = await ask_until_answered(self.writer, self.writer.read_pod, self.pod)
        version = self.pod.metadata.resource_version
        if fresh is not None and self._unsure and fresh.metadata.resource_version == version:
            fresh = await ask_until_answered(self.writer, self.writer.fence_pod, self.pod)
        return fresh

    def _is_doubtful(self, error: InputError) -> bool:
        """Return whether the outcome of a write is known only by reading the object again."""
        if self._unsure or not isinstance(error, ApiError):
            return True
        return error.code == 409 or error.code >= 500

    def _note(self, claim: ResourceClaim) -> ResourceClaim:
        self.heard(claim)
        return claim

    def _has_reserved(self, claim: ResourceClaim) -> bool:
        return any(each.uid == self.consumer.uid for each in claim.status.reserved_for)


# -- helpers


def consumer_of(pod: Pod) -> ResourceClaimConsumerReference:
    """A pod as it stands among the consumers of a claim."""
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def full_name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _is_conflict(error: InputError) -> bool:
    return isinstance(error, ApiError) and error.code == 409


def _is_missing(error: InputError) -> bool:
    return isinstance(error, ApiError) and error.code == 404


def _fail(step: Step, mishap: Mishap, cause: InputError | None, **facts: object) -> Failed:
    return Failed(step, explain_mishap(mishap, **facts), cause=cause)


def _devices(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    results = allocation.devices.results
    return [(each.request, each.driver, each.pool, each.device, each.share_id) for each in results]


def _is_settled(claim: ResourceClaim) -> bool:
    """Whether waiting for a claim's devices is over: ready, failed, or taken away."""
    return claim.status.allocation is None or judge_devices(claim) is not False


async def release_claim(claim: ResourceClaim, pod: Pod, writer: Writer, heard: Hear) -> bool:
    """Take the devices of a claim away that is reserved for nobody, or for this pod alone; whether it was."""
    return await Binding(pod, writer, heard).give_back(Hold(claim, ours=True))
