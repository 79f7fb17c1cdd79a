"""Permit of a binding: where pods that are scheduled together wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from plimsoll.api.resource import ResourceClaimConsumerReference
from plimsoll.scheduler.result import Placement


class BindPermit(Protocol):
    """Permit shared by the bindings of one pod group."""

    #: Consumers of the claims that are reserved for the group, by the claim's UID.
    group_consumers: Mapping[str, ResourceClaimConsumerReference]

    async def await_claims(self, placement: Placement) -> str:
        """Wait until the claims that other pods of the group allocate are written; return an error or ""."""

    async def await_group(self, placement: Placement) -> str:
        """Wait until enough pods of the group can be bound; return an error or ""."""

    def fail(self, placement: Placement, error: str) -> None:
        """Report that a pod cannot be bound."""
