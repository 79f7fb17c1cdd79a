"""The API writes of a binding, as an interface: `bind.py` decides, an implementation sends.

Every write that takes or releases something is conditional on the resourceVersion of its object. Fencing an
object gives it a new one, so that conditional writes sent before are refused, however late they arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from plimsoll.errors import ApiError

T = TypeVar("T")

#: The finalizer that keeps a claim from vanishing while its devices are in use.
FINALIZER = "resource.kubernetes.io/delete-protection"


class Writer(Protocol):
    """The writes of a binding. Each is made once; refusals and lost answers raise ApiError."""

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Add `FINALIZER`; whatever else the claim has stays."""

    async def write_allocation(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ResourceClaimConsumerReference
    ) -> ResourceClaim:
        """Give a claim devices and reserve it, in one write, if it is still as `claim` shows it."""

    async def reserve(self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> ResourceClaim:
        """Add a consumer to those of an allocated claim."""

    async def unreserve(
        self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference, *, deallocate: bool = False
    ) -> ResourceClaim:
        """Remove a consumer, with `deallocate` the devices too, if the claim is still as `claim` shows it."""

    async def fence_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Give a claim a new resourceVersion, so that earlier conditional writes are refused; None: gone."""

    async def write_charges(self, pod: Pod, entries: Sequence[ClaimCharge]) -> Pod:
        """Record what claims charge to a pod, if it is still as `pod` shows it; returns its new version."""

    async def clear_charges(self, pod: Pod) -> Pod:
        """Remove that record, if the pod is still as `pod` shows it; returns its new version."""

    async def bind(self, pod: Pod, node: str, entries: Sequence[ClaimCharge]) -> None:
        """Bind a pod if it is still as `pod` shows it; `entries` are recorded along with it if need be."""

    async def fence_pod(self, pod: Pod) -> Pod | None:
        """Give a pod a new resourceVersion, so that earlier conditional writes are refused; None: gone."""

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


async def ask_until_answered(writer: Writer, call: Callable[[T], Awaitable[T | None]], thing: T) -> T | None:
    """Read or fence an object, again and again until it is answered; None if the object is gone."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return await call(thing)
        except ApiError as error:
            await writer.pause(attempt, error)
