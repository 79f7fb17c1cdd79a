"""Writes of a binding until their outcome is certain: retries, fresh reads and fences.

A write without a response is repeated until there is one. Before a binding is abandoned, every object whose
write may still be in flight is read at a newer version or fenced, so that a delayed write is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.errors import ApiError, InputError, UnreachableError
from plimsoll.scheduler.binding.pod_conditions import BindError, format_bind_error
from plimsoll.scheduler.binding.result import BindFailure, BindStep
from plimsoll.scheduler.binding.writer import BindingWriter, retry_until_answered

T = TypeVar("T")
OnClaim = Callable[[ResourceClaim], None]

#: Attempts of a write on server errors, and on conflicts with an object that has not changed.
MAX_ATTEMPTS = 5
#: Attempts of a write whose object others keep changing.
_MAX_CONFLICTS = 500


class WriteAttempts:
    """Attempts of one write: a few on one version of its object, many as long as others change it.

    A pod or claim that a controller patches all the time is read and written again within the binding, until
    a write gets in between two patches.
    """

    def __init__(self) -> None:
        self._version = ""
        self._on_version = self._total = 0

    def may_repeat(self, version: str, failure: InputError | None) -> bool:
        """Return whether to make a failed write again, to the object at this version."""
        is_new = version != self._version and failure is not None and is_conflict(failure)
        self._version = version
        self._on_version = 1 if is_new else self._on_version + 1
        self._total += 1
        return self._on_version < MAX_ATTEMPTS and self._total < _MAX_CONFLICTS


@dataclass(slots=True)
class ClaimHold:
    """Claim that is reserved for the pod; `allocated_here` if this binding allocated it."""

    claim: ResourceClaim
    allocated_here: bool


class BindAttempts:
    """Pod that is being bound, and the writes of its binding."""

    def __init__(self, pod: Pod, writer: BindingWriter, on_claim: OnClaim, node: str = "") -> None:
        self.pod = pod
        self.node = node
        self.writer = writer
        self.on_claim = on_claim
        self.consumer = consumer_of(pod)
        #: Consumers of claims that the pod shares with its PodGroup, by the claim's UID.
        self.group_consumers: Mapping[str, ResourceClaimConsumerReference] = {}
        self.holds: list[ClaimHold] = []
        self._uncertain = False  # a write without a definite response: it may still be in flight

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

    def consumer_for(self, claim: ResourceClaim) -> ResourceClaimConsumerReference:
        """Return what a claim is reserved for: the pod, or its PodGroup."""
        return self.group_consumers.get(claim.metadata.uid, self.consumer)

    def _has_reserved(self, claim: ResourceClaim) -> bool:
        return any(each.uid == self.consumer_for(claim).uid for each in claim.status.reserved_for)

    async def _write_pod(self, write: Callable[..., Awaitable[Pod]], *args: object) -> InputError | None:
        """Write to the pod at its current version, unless it gets bound; return the error.

        A 404 means that the pod is gone, or that another one has its name.
        """
        attempts = WriteAttempts()
        while True:
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
            if bound or not is_conflict(failure):
                return failure
            if not attempts.may_repeat(fresh.metadata.resource_version, failure):
                return failure

    def _not_found_error(self) -> ApiError:
        meta = self.pod.metadata
        return ApiError(404, "NotFound", f'pod "{meta.name}" with UID {meta.uid} not found')


# -- helpers


def consumer_of(pod: Pod) -> ResourceClaimConsumerReference:
    """Return the `reservedFor` entry of a pod."""
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def is_conflict(error: InputError) -> bool:
    """Return whether a write was refused because the object has changed."""
    return isinstance(error, ApiError) and error.code == 409


def is_missing(error: InputError) -> bool:
    """Return whether the object does not exist."""
    return isinstance(error, ApiError) and error.code == 404


def make_failure(
    step: BindStep, error_kind: BindError, cause: InputError | None, **fields: object
) -> BindFailure:
    """Return the failure of a step, with the message of the error."""
    return BindFailure(step, format_bind_error(error_kind, **fields), cause=cause)
