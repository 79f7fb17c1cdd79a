"""Claim for the extended resources of a pod, in a binding: created, named in the pod's status, deleted.

The claim is created with the finalizer, so that its allocation is the next write, and under a name chosen
here, so that a creation without a response can be repeated. The pod owns it: whatever happens to this
process, the claim ends with the pod, or is deleted before the next attempt to schedule the pod
(`PodInfo.stale_claim`).
"""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as with_fields

from plimsoll.api.core import ExtendedResourceClaimStatus, Pod
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import InputError
from plimsoll.scheduler.binding.attempts import (
    MAX_ATTEMPTS,
    BindAttempts,
    OnClaim,
    WriteAttempts,
    is_conflict,
    is_missing,
    make_failure,
)
from plimsoll.scheduler.binding.pod_conditions import BindError
from plimsoll.scheduler.binding.result import BindFailure, BindStep
from plimsoll.scheduler.binding.writer import FINALIZER, BindingWriter, retry_until_answered


class ExtendedClaimSteps(BindAttempts):
    """Steps of a binding for the claim of a pod's extended resources."""

    def __init__(self, pod: Pod, writer: BindingWriter, on_claim: OnClaim, node: str = "") -> None:
        super().__init__(pod, writer, on_claim, node)
        self.created: ResourceClaim | None = None
        self._wanted_status = pod.status.extended_resource_claim_status

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim | BindFailure:
        """Create the claim that was built in memory.

        DIFF: the finalizer is part of the creation; upstream adds it by a second write
        (test_a_claim_for_extended_resources_is_created_with_its_finalizer).
        """
        if self.pod.status.extended_resource_claim_status is not None:
            # A quota counts a claim that is not the one in the pod's status in addition to the pod.
            refused = await self.write_claim_status(None)
            if refused is not None:
                return refused
        for attempt in range(1, MAX_ATTEMPTS + 1):
            named = self.writer.name_claim(claim)
            try:
                created = await self._retry(self.writer.create_claim, named)
            except InputError as error:
                name = named.metadata.full_name
                failed = make_failure(BindStep.CREATION, BindError.CREATE, error, claim=name, error=error)
                if not self._is_uncertain(error):
                    return failed
                found = await retry_until_answered(self.writer, self.writer.find_claim, named)
                if found is None or not self._is_ours(found):
                    if not is_conflict(error) or attempt == MAX_ATTEMPTS:
                        return failed
                    continue  # the name is taken
                created = found
            self.created = self._observe(created)
            return created
        raise AssertionError("the last attempt returns")

    def _is_ours(self, claim: ResourceClaim) -> bool:
        owner = find_requesting_pod(claim)
        return owner is not None and owner.uid == self.pod.metadata.uid

    async def write_claim_status(self, status: ExtendedResourceClaimStatus | None) -> BindFailure | None:
        """Write the claim and its request mappings to the status of the pod, or (None) remove them.

        DIFF: what an earlier attempt wrote is removed when it fails, and if the pod needs no claim on its
        node; upstream leaves it, so that a kubelet waits for a claim that does not exist
        (test_a_failed_binding_leaves_no_claim_status).
        """
        self._wanted_status = status
        if status == self.pod.status.extended_resource_claim_status:
            return None
        error = await self._write_pod(self.writer.write_claim_status, status)
        stored = self.pod.status.extended_resource_claim_status
        if self.pod.spec.node_name or stored == status:
            return None  # `bind` handles a pod that turned out to be bound
        pod = self.pod.metadata.full_name
        if error is None:
            return make_failure(BindStep.CLAIM_STATUS, BindError.CLAIM_STATUS_DROPPED, None, pod=pod)
        failed = make_failure(BindStep.CLAIM_STATUS, BindError.CLAIM_STATUS, error, pod=pod, error=error)
        return replace(failed, final=is_missing(error))

    def claim_status(self, built: ExtendedResourceClaimStatus | None) -> ExtendedResourceClaimStatus | None:
        """Return the status with the name of the created claim."""
        if built is None or self.created is None:
            return None
        return with_fields(built, resource_claim_name=self.created.metadata.name)

    # -- undo

    async def delete_created(self) -> bool:
        """Delete the claim that this binding created; return whether it is gone."""
        return self.created is None or await self.delete_claim(self.created)

    async def delete_claim(self, claim: ResourceClaim) -> bool:
        """Remove the finalizer of a claim for extended resources and delete it; return whether it is gone."""
        attempts = WriteAttempts()
        while True:
            try:
                if FINALIZER in claim.metadata.finalizers:
                    claim = self._observe(await self._retry(self.writer.remove_finalizer, claim))
                await self._retry(self.writer.delete_claim, claim)
                return True
            except InputError as error:
                failure = error
            if is_missing(failure):
                return True
            if not self._is_uncertain(failure):
                return False
            fresh = await self._settle_claim(claim)
            if fresh is None:
                return True
            claim = fresh
            if not attempts.may_repeat(claim.metadata.resource_version, failure):
                return False
