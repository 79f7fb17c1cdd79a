"""Writing a placement down, step by step: claims, charges, conditions, binding.

Owns `bind_pod`, the story of a binding against a small `Writer`; `release` is its reverse. The order is
kube-scheduler's: for each claim the finalizer, then allocation and reservation in one write under its
resourceVersion; the pod's charges; the conditions of devices that name some; the binding itself. Promises:
every step may be repeated, so that a binding that broke off anywhere can be made again from what the API
says; a write whose answer is lost is made again until there is one, for only an answer tells that the first
cannot arrive later; what was written is taken back in reverse order when a later step fails; nothing is
forgotten before it is known what the API holds.

Document 000, "Reserve" to "PreBind Stage"; section 3 of the accounting semantics, "Who writes what, when".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, read_pod
from plimsoll.api.resource import AllocationResult, ClaimConsumer, ResourceClaim
from plimsoll.errors import ApiError, InputError, UnreachableError
from plimsoll.ledger.status import status_entries
from plimsoll.schedule.binding.conditions import Mishap, explain_mishap
from plimsoll.schedule.binding.readiness import Failure, judge_devices, waits_for_devices
from plimsoll.schedule.placement import Placement

T = TypeVar("T")
Hear = Callable[[ResourceClaim], None]

#: What keeps a claim from vanishing while its devices are in use.
FINALIZER = "resource.kubernetes.io/delete-protection"
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


class Writer(Protocol):
    """The writes of a binding. Each is made once; refusals and lost answers raise ApiError."""

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Add `FINALIZER`; whatever else the claim has stays."""

    async def write_allocation(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ClaimConsumer
    ) -> ResourceClaim:
        """Give a claim devices and reserve it, in one write, if it is still as `claim` shows it."""

    async def reserve(self, claim: ResourceClaim, consumer: ClaimConsumer) -> ResourceClaim:
        """Add a consumer to those of an allocated claim."""

    async def unreserve(
        self, claim: ResourceClaim, consumer: ClaimConsumer, *, deallocate: bool = False
    ) -> ResourceClaim:
        """Take a consumer away; with `deallocate` its devices, too, if it is still as `claim` shows it."""

    async def write_charges(self, pod: Pod, entries: Sequence[ClaimCharge]) -> None:
        """Record what claims charge to a pod."""

    async def clear_charges(self, pod: Pod) -> None:
        """Take that record away."""

    async def bind(self, pod: Pod, node: str, entries: Sequence[ClaimCharge]) -> None:
        """Bind a pod; `entries` are for a record of charges that is made along with it."""

    async def read_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        """A claim as it is now; None if it is gone, or another one has its name."""

    async def read_pod(self, pod: Pod) -> Pod | None:
        """A pod as it is now; None if it is gone, or another one has its name."""

    async def wait_for(
        self, claim: ResourceClaim, predicate: Callable[[ResourceClaim], bool], timeout_ms: int
    ) -> ResourceClaim | None:
        """A claim once it is as wanted, or as it is when the time since its allocation is over."""

    async def gather(self, jobs: Sequence[Awaitable[T]]) -> list[T]:
        """Do jobs side by side; all of them come to an end."""

    async def pause(self, attempt: int, error: ApiError) -> None:
        """Wait before a call is made again."""


async def bind_pod(
    placement: Placement, writer: Writer, heard: Hear, *, timeout_ms: int = CONDITIONS_MS
) -> Bound | Failed:
    """Write a placement down; on failure take back what was written.

    `heard` is told every claim that an answer shows, so that the snapshot knows it at once.
    """
    binding = Binding(placement.task.pod, writer, heard)
    failed = await _write(binding, placement, timeout_ms)
    if failed is None:
        return Bound(placement.node, tuple(hold.claim for hold in binding.holds))
    settled = await binding.undo()
    return replace(failed, settled=settled and failed.settled)


async def _write(binding: Binding, placement: Placement, timeout_ms: int) -> Failed | None:
    claims = placement.task.claims
    if len(claims) == 1:
        outcomes = [await _take(binding, placement, claims[0])]
    else:
        jobs = [_take(binding, placement, claim) for claim in claims]
        outcomes = await binding.writer.gather(jobs) if jobs else []
    failed = next((each for each in outcomes if isinstance(each, Failed)), None)
    if failed is not None:
        return failed
    entries = status_entries(placement.bills)
    return (
        await binding.charge(entries)
        or await binding.await_devices(timeout_ms)
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
        self._unsure = False  # an answer was lost: what a later one says need not be about the first try

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
            # Somebody was faster, or the server does not know what became of it: look.
            fresh = await self._look(claim)
            if isinstance(fresh, Failed):
                return replace(fresh, step=step)
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
        """Join the consumers of a claim that has devices; one that is reserved already counts as ours."""
        name, allocation = full_name(claim), claim.status.allocation
        if self._has_reserved(claim):
            self.holds.append(Hold(claim, ours=True))
            return None
        fresh = await self._join(claim)
        if isinstance(fresh, Failed):
            return fresh
        self.holds.append(Hold(fresh, ours=False))
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
        fresh = await self._look(claim)
        if isinstance(fresh, Failed):
            return replace(fresh, step=Step.RESERVATION)
        return fresh if self._has_reserved(fresh) else failed

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

    # -- the pod

    async def charge(self, entries: Sequence[ClaimCharge]) -> Failed | None:
        """Record what the claims charge; what an earlier attempt has left there goes."""
        if not entries and not read_pod(self.pod):
            return None
        self._charged = True
        try:
            if entries:
                await self._insist(self.writer.write_charges, self.pod, entries)
            else:
                await self._insist(self.writer.clear_charges, self.pod)
        except InputError as error:
            pod = f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"
            failed = _fail(Step.CHARGES, Mishap.CHARGES, error, pod=pod, error=error)
            return replace(failed, over=await self._is_gone(error))
        return None

    async def bind(self, node: str, entries: Sequence[ClaimCharge]) -> Failed | None:
        """The binding itself; a pod that is on this node already is bound."""
        try:
            await self._insist(self.writer.bind, self.pod, node, entries)
        except InputError as error:
            failed = _fail(Step.BINDING, Mishap.BINDING, error, error=error)
            if not self._is_doubtful(error):
                return replace(failed, over=_is_missing(error))
            try:
                fresh = await self._insist(self.writer.read_pod, self.pod, forever=True)
            except InputError:
                return replace(failed, settled=False)
            if fresh is None:
                return replace(failed, over=True)
            if fresh.spec.node_name == node:
                return None
            if fresh.spec.node_name:
                # Whoever bound it recorded its own charges, unless they are still what we wrote.
                self._charged = self._charged and read_pod(fresh) == tuple(entries)
                return replace(failed, over=True)
            return failed
        return None

    # -- taking back

    async def undo(self) -> bool:
        """Take back what was written, last things first; whether all of it is gone."""
        settled = await self._uncharge() if self._charged else True
        for hold in reversed(self.holds):
            settled = await self.give_back(hold) and settled
        return settled

    async def _uncharge(self) -> bool:
        for _ in range(TRIES):
            try:
                await self._insist(self.writer.clear_charges, self.pod)
                return True
            except InputError as error:
                if await self._is_gone(error):
                    return True
                if not _is_conflict(error):
                    return False
        return False

    async def _is_gone(self, error: InputError) -> bool:
        """Whether the pod is gone, now that a write to it was refused; another may have its name."""
        if not _is_conflict(error):
            return _is_missing(error)
        try:
            return await self._insist(self.writer.read_pod, self.pod, forever=True) is None
        except InputError:
            return False

    async def give_back(self, hold: Hold) -> bool:
        """Take the pod out of a claim's consumers, and the devices with it if they were chosen for it.

        DIFF: a claim whose devices were chosen for this pod, and which nobody else has reserved, loses them
        when the binding fails (test_devices_go_back_when_binding_fails); upstream leaves the claim allocated
        but reserved for nobody, and so keeps its devices from others even if no pod ever uses it again.
        """
        claim = hold.claim
        for _ in range(TRIES):
            if claim.status.allocation is None:
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
                if _is_missing(error):
                    return True
                if not self._is_doubtful(error):
                    return False
            fresh = await self._look(claim)
            if isinstance(fresh, Failed):
                return fresh.settled
            claim = fresh
        return False

    # -- asking until there is an answer

    async def _insist(
        self, call: Callable[..., Awaitable[T]], *args: object, forever: bool = False, **named: object
    ) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call(*args, **named)
            except ApiError as error:
                lost = isinstance(error, UnreachableError)
                busy = error.code == 429 or error.code >= 500
                if not lost and not (busy and (forever or attempt < TRIES)):
                    raise
                self._unsure = True
                await self.writer.pause(attempt, error)

    async def _look(self, claim: ResourceClaim) -> ResourceClaim | Failed:
        """A claim as it is now; however long it takes, for devices must not be given twice."""
        name = full_name(claim)
        try:
            fresh = await self._insist(self.writer.read_claim, claim, forever=True)
        except InputError as error:
            failed = _fail(Step.ALLOCATION, Mishap.ADD_ALLOCATION, error, claim=name, error=error)
            return replace(failed, settled=False)
        if fresh is None:
            return _fail(Step.ALLOCATION, Mishap.CLAIM_GONE, None, claim=name)
        return self._note(fresh)

    def _is_doubtful(self, error: InputError) -> bool:
        """Whether only a look can tell what became of a write: somebody was faster, or an answer is lost."""
        return self._unsure or (isinstance(error, ApiError) and (error.code == 409 or error.code >= 500))

    def _note(self, claim: ResourceClaim) -> ResourceClaim:
        self.heard(claim)
        return claim

    def _has_reserved(self, claim: ResourceClaim) -> bool:
        return any(each.uid == self.consumer.uid for each in claim.status.reserved_for)


# -- small words


def consumer_of(pod: Pod) -> ClaimConsumer:
    """A pod as it stands among the consumers of a claim."""
    return ClaimConsumer(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


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
