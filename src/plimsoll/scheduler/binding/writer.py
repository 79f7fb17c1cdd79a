"""Interface of the API writes of a binding; `process/api_writer.py` implements it.

Every write that takes or releases something is conditional on the resourceVersion of its object. Fencing an
object gives it a new one, so that conditional writes sent before are refused, however late they arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from plimsoll.api.core import ExtendedResourceClaimStatus, Pod
from plimsoll.api.forms import ClaimCharge
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from plimsoll.errors import ApiError

T = TypeVar("T")

#: Finalizer of allocated claims.
FINALIZER = "resource.kubernetes.io/delete-protection"


class BindingWriter(Protocol):
    """Writes of a binding. Each is made once; errors and lost responses raise ApiError."""

    def name_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """Return a claim for extended resources with a new name and `FINALIZER`, to be created."""

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim for extended resources under its name."""

    async def find_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return the current claim of this name, whatever its UID; None if there is none."""

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Remove `FINALIZER`, if the claim is unchanged; other finalizers stay."""

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Delete a claim."""

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Add `FINALIZER`; other finalizers stay."""

    async def write_allocation(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ResourceClaimConsumerReference
    ) -> ResourceClaim:
        """Allocate and reserve a claim in one write, if it is unchanged."""

    async def reserve(self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> ResourceClaim:
        """Add a consumer to an allocated claim."""

    async def unreserve(
        self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference, *, deallocate: bool = False
    ) -> ResourceClaim:
        """Remove a consumer, with `deallocate` the allocation too, if the claim is unchanged."""

    async def fence_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Give a claim a new resourceVersion, so that earlier conditional writes are refused; None: gone."""

    async def write_charges(self, pod: Pod, entries: Sequence[ClaimCharge], node: str) -> Pod:
        """Write the claim charges of a pod for a node, if it is unchanged; return its new version."""

    async def write_claim_status(self, pod: Pod, status: ExtendedResourceClaimStatus | None) -> Pod:
        """Write or (None) remove the claim for extended resources in a pod's status, if it is unchanged."""

    async def clear_charges(self, pod: Pod) -> Pod:
        """Remove the claim charges of a pod, if it is unchanged; return its new version."""

    async def bind(self, pod: Pod, node: str, entries: Sequence[ClaimCharge]) -> None:
        """Bind a pod if it is unchanged; `entries` are recorded with the binding if necessary."""

    async def fence_pod(self, pod: Pod) -> Pod | None:
        """Give a pod a new resourceVersion, so that earlier conditional writes are refused; None: gone."""

    async def read_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return the current claim; None if it is gone, or another one has its name."""

    async def read_pod(self, pod: Pod) -> Pod | None:
        """Return the current pod; None if it is gone, or another one has its name."""

    async def wait_for(
        self, claim: ResourceClaim, predicate: Callable[[ResourceClaim], bool], timeout_ms: int
    ) -> ResourceClaim | None:
        """Return a claim once it satisfies the predicate, or when the time since its allocation is over."""

    async def gather(self, jobs: Sequence[Awaitable[T]]) -> list[T]:
        """Run jobs concurrently; all of them end."""

    async def pause(self, attempt: int, error: ApiError) -> None:
        """Wait before a call is repeated."""


async def retry_until_answered(
    writer: BindingWriter, call: Callable[[T], Awaitable[T | None]], thing: T
) -> T | None:
    """Read or fence an object, repeated until there is a response; None if the object is gone."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return await call(thing)
        except ApiError as error:
            await writer.pause(attempt, error)
