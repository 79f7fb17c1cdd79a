"""Fine-grained authorization of ResourceClaim status writes (docs/spec/api.md, end of "ResourceClaim
status").

Defines the permissions that a status write needs in addition to updating the claim, with the gate
DRAResourceClaimGranularStatusAuthorization. The resources are synthetic: `resourceclaims/binding` for
allocation and reservations, `resourceclaims/driver`, named after the driver, for device status. The caller
provides the function that checks them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.api.gates import Gates
from plimsoll.api.names import dns_subdomain
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceClaimStatus
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, forbidden

_GATE = "DRAResourceClaimGranularStatusAuthorization"
_STATUS = FieldPath("status")


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission: a verb on a subresource of claims, for one name or (empty) all names."""

    verb: str
    subresource: str
    namespace: str = ""
    name: str = ""

    def refusal(self, user: str) -> str:
        """Return the message that a user lacks this permission, in the words of a forbidden request."""
        target = f' "{self.name}"' if self.name else ""
        what = f'{self.verb} resource "resourceclaims/{self.subresource}" in API group "resource.k8s.io"'
        scope = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'resourceclaims.resource.k8s.io{target} is forbidden: User "{user}" cannot {what} {scope}'


PermissionCheck: TypeAlias = Callable[[Permission], bool]


@dataclass(frozen=True, slots=True)
class Caller:
    """The writer of a status: its permissions, its verb (update or patch), and the node of a bound service
    account.
    """

    permits: PermissionCheck
    verb: str = "update"
    node: str = ""
    user: str = ""


def validate_permissions(
    claim: ResourceClaim, old: ResourceClaim, caller: Caller, gates: Gates
) -> FieldErrors:
    """Reject changes to the parts of the status that this caller must not write."""
    if not gates.enabled(_GATE):
        return
    status, before = claim.status, old.status
    if not semantic_equal(before.allocation, status.allocation) or not semantic_equal(
        before.reserved_for, status.reserved_for
    ):
        binding = Permission(caller.verb, "binding")
        if not caller.permits(binding):
            needed = f'resource="resourceclaims/binding", verb="{caller.verb}" permission'
            detail = f"changing status.allocation or status.reservedFor requires {needed}"
            yield forbidden(_STATUS.child("allocation"), f"{detail}: {binding.refusal(caller.user)}")
    if gates.enabled("DRAResourceClaimDeviceStatus") and status.allocation is not None:
        prefixes = (
            ["associated-node", "arbitrary-node"]
            if _is_local(caller, status.allocation)
            else ["arbitrary-node"]
        )
        for driver in sorted(_touched_drivers(status, before)):
            rights = [
                Permission(f"{prefix}:{caller.verb}", "driver", claim.metadata.namespace, driver)
                for prefix in prefixes
            ]
            if not any(map(caller.permits, rights)):
                verbs = " ".join(right.verb for right in rights)
                needed = f'resource="resourceclaims/driver", verb="[{verbs}]" permission'
                detail = f"changing status.devices requires {needed}: {rights[0].refusal(caller.user)}"
                yield forbidden(_STATUS.child("devices"), detail)


def _touched_drivers(status: ResourceClaimStatus, old: ResourceClaimStatus) -> set[str]:
    """Return the drivers of the entries that were added, removed or changed."""

    def entries(of: ResourceClaimStatus) -> dict[tuple[str, ...], object]:
        return {(d.driver, d.pool, d.device, d.share_id or ""): d for d in of.devices}

    now, before = entries(status), entries(old)
    return {key[0] for key in now.keys() | before.keys() if not semantic_equal(before.get(key), now.get(key))}


def _is_local(caller: Caller, allocation: AllocationResult) -> bool:
    """Report whether the caller is bound to the node that the claim is allocated for."""
    selector = allocation.node_selector
    if not caller.node or dns_subdomain(caller.node) or selector is None:
        return False
    if len(selector.node_selector_terms) != 1:
        return False
    term = selector.node_selector_terms[0]
    if term.match_expressions or len(term.match_fields) != 1:
        return False
    field = term.match_fields[0]
    return field.key == "metadata.name" and field.operator == "In" and field.values == (caller.node,)
