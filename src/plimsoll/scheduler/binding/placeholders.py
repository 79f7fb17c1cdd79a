"""Placeholders of a pod: created, and admitted by the kubelet, before the pod is bound.

On a server that drops the charges of claims, only the kubelet knows whether there is still room for them,
because other schedulers place pods at the same time. A kubelet that admits a placeholder counts it from
then on; one that rejects it was full, and the pod is tried elsewhere. See `ledger/placeholders.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from plimsoll.api.core import Pod
from plimsoll.api.forms import read_status
from plimsoll.errors import InputError
from plimsoll.ledger.placeholders import OwnerKind, placeholder_owner
from plimsoll.scheduler.binding.attempts import BindAttempts, make_failure
from plimsoll.scheduler.binding.pod_conditions import BindError
from plimsoll.scheduler.binding.result import BindFailure, BindStep
from plimsoll.scheduler.binding.writer import BindingWriter, retry_until_answered
from plimsoll.scheduler.result import Placement

#: Time within which a kubelet must have decided about a placeholder.
ADMISSION_TIMEOUT_MS = 30_000
_FAILED, _RUNNING = "Failed", "Running"
#: Conditions that the kubelet sets when it first syncs a pod that it has admitted.
_SYNCED = frozenset(("Initialized", "ContainersReady", "Ready"))


class PlaceholderWriter(Protocol):
    """Writes of placeholders. Each is made once; errors and lost responses raise ApiError."""

    async def create(self, placeholder: Pod) -> Pod:
        """Create a placeholder, or return the existing one if it is the same."""

    async def delete(self, placeholder: Pod) -> None:
        """Delete a placeholder, if it exists."""

    async def wait_for_admission(self, placeholder: Pod, timeout_ms: int) -> Pod | None:
        """Return a placeholder once its kubelet has decided, or when the time is over; None if it is gone."""


def find_refusal(placeholder: Pod | None) -> str:
    """Return why a placeholder does not count on its node; "" if the kubelet has admitted it."""
    if placeholder is None:
        return "it was deleted"
    status = placeholder.status
    if status.phase == _FAILED:
        return f"{status.reason}: {status.message}" if status.message else status.reason or "it failed"
    if placeholder.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    return "" if is_admitted(placeholder) else "the kubelet has not admitted it in time"


def is_admitted(placeholder: Pod) -> bool:
    """Return whether the kubelet has admitted a placeholder: from then on it reports conditions.

    The start time alone does not show it. A kubelet that has just started reports it, in phase Pending, also
    for pods that it has rejected.
    """
    status = placeholder.status
    if status.start_time is None or status.phase == _FAILED:
        return False
    return status.phase == _RUNNING or any(each.type in _SYNCED for each in status.conditions)


class PlaceholderBinder(BindAttempts):
    """Placeholders of one pod in the course of its binding."""

    def __init__(
        self,
        placement: Placement,
        placeholders: Sequence[Pod],
        writer: BindingWriter,
        placeholder_writer: PlaceholderWriter,
    ) -> None:
        super().__init__(placement.pod_info.stored, writer, lambda claim: None, placement.node)
        self._placeholders = placeholders
        self._placeholder_writer = placeholder_writer
        self._created: list[Pod] = []

    async def create(
        self, pod: Pod, waiting: Callable[[], AbstractContextManager[None]]
    ) -> BindFailure | None:
        """Create the placeholders of a pod and wait for the kubelet, unless its status has the charges."""
        if read_status(pod.status):
            return None
        refusals = await self.writer.gather([self._create(each, waiting) for each in self._placeholders])
        return next((each for each in refusals if each is not None), None)

    async def _create(
        self, placeholder: Pod, waiting: Callable[[], AbstractContextManager[None]]
    ) -> BindFailure | None:
        name = placeholder.metadata.full_name
        try:
            created = await self._retry(self._placeholder_writer.create, placeholder)
        except InputError as error:
            return make_failure(
                BindStep.PLACEHOLDERS, BindError.CREATE_PLACEHOLDER, error, name=name, error=error
            )
        self._created.append(created)
        try:
            with waiting():
                decided = await self._retry(
                    self._placeholder_writer.wait_for_admission, created, ADMISSION_TIMEOUT_MS
                )
        except InputError as error:
            return make_failure(
                BindStep.PLACEHOLDERS, BindError.CREATE_PLACEHOLDER, error, name=name, error=error
            )
        refusal = find_refusal(decided)
        if not refusal:
            return None
        return make_failure(
            BindStep.PLACEHOLDERS,
            BindError.PLACEHOLDER_REFUSED,
            None,
            name=name,
            node=self.node,
            refusal=refusal,
        )

    async def undo(self) -> None:
        """Delete the placeholders of the pod; others may use those of claims, which the keeper deletes."""
        for placeholder in self._created:
            owner = placeholder_owner(placeholder)
            if owner is not None and owner.kind is OwnerKind.POD:
                await retry_until_answered(self.writer, self._placeholder_writer.delete, placeholder)
