"""Release of one claim on behalf of an administrator (`plimsoll driver cpu forget`).

For claims that will not be unprepared, such as one of a CDI file that another driver left behind. A claim
that a container uses is never released; one that the cluster has allocated, or may have, only with `force`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.drivers.plugin import ClaimError
from plimsoll.errors import ApiError
from plimsoll.protocols.dra import ClaimRef


@dataclass(frozen=True, slots=True)
class ForgottenClaim:
    """Claim that was released, with the CPUs it had."""

    ref: ClaimRef
    cpus: CpuSet


def find_claim(allocations: Iterable[ClaimAllocation], claim: str) -> ClaimAllocation | ClaimError:
    """Find a claim by UID, NAMESPACE/NAME, or a name that only one claim has."""
    known = list(allocations)
    for key in (lambda ref: ref.uid, str, lambda ref: ref.name):
        found = [allocation for allocation in known if claim and key(allocation.ref) == claim]
        if len(found) > 1:
            listed = ", ".join(sorted(str(allocation.ref) for allocation in found))
            return ClaimError(f"{claim}: several claims have this name: {listed}", "Ambiguous")
        if found:
            return found[0]
    return ClaimError(f"{claim}: no such claim has CPUs of this driver", "NotFound")


async def forget_claim(
    allocation: ClaimAllocation,
    enforcer: Enforcer,
    *,
    is_allocated: Callable[[ClaimRef], Awaitable[bool]],
    release: Callable[[ClaimRef], Awaitable[ClaimError | None]],
    force: bool = False,
) -> ForgottenClaim | ClaimError:
    """Release a claim unless it is, or may be, in use."""
    ref = allocation.ref
    label = f"{ref} ({ref.uid})" if ref.name else ref.uid
    users = sorted(view.where for view in enforcer.containers() if ref.uid in view.claims)
    if users:
        return ClaimError(f"claim {label} is used by container {users[0]}: delete its pod", "InUse")
    if not force:
        if not enforcer.linked:
            why = f"containers are not known: {enforcer.link_error}"
            return ClaimError(f"claim {label}: {why}; --force releases it nevertheless", "Unknown")
        try:
            allocated = await is_allocated(ref)
        except ApiError as error:
            return ClaimError(
                f"claim {label} cannot be looked up: {error}; --force releases it nevertheless", "Unknown"
            )
        if allocated:
            return ClaimError(
                f"claim {label} is allocated in the cluster: delete its pods, or use --force", "Allocated"
            )
    refusal = await release(ref)
    return refusal if refusal is not None else ForgottenClaim(ref, allocation.cpus)
