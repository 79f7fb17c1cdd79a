"""Writes of a pod's claim charges: to its status as far as the server takes and keeps them.

Servers differ in the form of the status field, in the entries they accept (1.36 rejects a claim that no
container refers to, and resources other than its own) and in the fields of an entry that they drop
(accounting policies, draws, overhead). Nothing of this is concluded from an earlier pod: every write is
compared with the server's response, and a charge that the response does not contain completely goes into an
annotation of the Binding, which costs no extra request. `plimsoll.api.forms.read_pod` combines both.

Only that a server drops a whole form is remembered, for a minute, to save requests.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod, PodStatus
from plimsoll.api.forms import (
    POD_KEY,
    ClaimCharge,
    Form,
    format_charges_annotation,
    read_status,
    write_status,
)
from plimsoll.client.transport import Reply
from plimsoll.errors import ApiError

LOG = logging.getLogger("plimsoll.scheduler")

#: Field of the pod's status that holds charges, by form.
_FIELDS = {
    Form.V1_36: "nodeAllocatableResourceClaimStatuses",
    Form.V1_37: "nodeAllocatableResourceClaimStatuses",
    Form.DRAFT: "nativeResourceClaimStatus",
}
_NO_STATUS = PodStatus()
#: Seconds before a form that the server dropped is tried again.
RETRY_SECONDS = 60.0
#: Entry, and resource if there is one, that a field path of a validation error names.
_REJECTED = re.compile(r"^status\.\w+\[(\d+)\](?:\.resources\[([^\]]+)\])?")

#: Patches the status subresource of a pod, with its UID and resourceVersion as preconditions.
PatchStatus = Callable[[Pod, dict[str, Any], dict[str, Any]], Awaitable[Reply]]


class ChargeForm(Enum):
    """Form in which charges are written: a version of the status field, an annotation, or auto-detection."""

    AUTO = "auto"
    V1_36 = "1.36"
    V1_37 = "1.37"
    DRAFT = "draft"
    ANNOTATION = "annotation"


class ChargeWriter:
    """Writer of claim charges over a function that patches the status of a pod."""

    def __init__(
        self,
        form: ChargeForm,
        patch_status: PatchStatus,
        clock: Callable[[], float] = time.monotonic,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a writer; `on_dropped` is called when the server turns out to drop a form."""
        self.form = form
        self._on_dropped = on_dropped
        self._patch_status = patch_status
        self._clock = clock
        self._dropped: dict[Form, float] = {}  # forms that the server drops, and when that was seen

    async def write(self, pod: Pod, entries: Sequence[ClaimCharge], *, newest_first: bool = False) -> Pod:
        """Write charges to the status of a pod; return the pod as the server has it.

        With `newest_first` the 1.37 form is preferred: the node reads it, and pods with such charges can be
        resized.
        """
        for form in self._choose_forms(entries, newest_first):
            found = await self._write_form(pod, entries, form)
            if found is None:
                if newest_first and form is Form.V1_37:
                    self._dropped[form] = self._clock()
                continue
            pod = found
            if any(charge.resources for charge in read_status(pod.status)):
                self._dropped.pop(form, None)
                break
            if form not in self._dropped:
                LOG.info("the server drops claim charges in the %s form from pod statuses", form.value)
                self._on_dropped()
            self._dropped[form] = self._clock()
        return pod

    def _choose_forms(self, entries: Sequence[ClaimCharge], newest_first: bool) -> Iterable[Form]:
        """Return the forms to try in order.

        The first is the 1.37 form if it is preferred, else the oldest one that can express the entries.
        """
        if self.form is ChargeForm.ANNOTATION:
            return ()
        if self.form is not ChargeForm.AUTO:
            form = Form(self.form.value)
            lossy = form is not Form.V1_37 and bool(write_status(_NO_STATUS, entries, form).losses)
            return (Form.V1_37, form) if lossy else (form,)
        lossy = bool(write_status(_NO_STATUS, entries, Form.V1_36).losses)
        forms = (Form.V1_37, Form.V1_36) if lossy or newest_first else (Form.V1_36, Form.V1_37)
        now = self._clock()
        return [form for form in forms if now - self._dropped.get(form, -RETRY_SECONDS) >= RETRY_SECONDS]

    async def _write_form(self, pod: Pod, entries: Sequence[ClaimCharge], form: Form) -> Pod | None:
        """Write the entries in a form, without those that the server rejects; None if it rejects all."""
        while entries:
            status = write_status(_NO_STATUS, entries, form).view
            try:
                reply = await self._patch_status(pod, {}, codec.to_tree(status))
            except ApiError as error:
                if error.code != 422:
                    raise
                accepted = _without_rejected(entries, error, _FIELDS[form])
                if accepted is None:
                    raise
                LOG.debug("the server rejects claim charges in the %s form: %s", form.value, error)
                entries = accepted
                continue
            # Decoded, because the field's name is in managedFields even if the server drops the field.
            return codec.decode(reply.body, Pod)
        return None

    async def clear(self, pod: Pod) -> Pod:
        """Remove all charges from a pod; return the pod as the server has it."""
        annotations = {POD_KEY: None} if POD_KEY in pod.metadata.annotations else {}
        status: dict[str, Any] = {}
        if self.form is not ChargeForm.ANNOTATION or read_status(pod.status):
            status[_FIELDS[Form.V1_37]] = None
            if self.form is ChargeForm.DRAFT or pod.status.native_resource_claim_status:
                status[_FIELDS[Form.DRAFT]] = None
        if not annotations and not status:
            return pod
        metadata = {"annotations": annotations} if annotations else {}
        return codec.decode((await self._patch_status(pod, metadata, status)).body, Pod)

    def annotate_binding(self, pod: Pod, entries: Sequence[ClaimCharge]) -> dict[str, str]:
        """Return the annotations of the Binding: the charges, unless the status holds all of them.

        An annotation that the pod has already is overwritten, so that its creator cannot set charges.
        """
        if read_status(pod.status) != tuple(entries):
            return {POD_KEY: format_charges_annotation(entries)}
        return {POD_KEY: "[]"} if POD_KEY in pod.metadata.annotations else {}


def _without_rejected(
    entries: Sequence[ClaimCharge], error: ApiError, field: str
) -> tuple[ClaimCharge, ...] | None:
    """Return the entries without what a validation error names; None if it is about something else."""
    causes = error.details.get("causes")
    rejected: dict[int, set[str | None]] = {}
    for cause in causes if isinstance(causes, list) else ():
        path = str(cause.get("field", "")) if isinstance(cause, dict) else ""
        match = _REJECTED.match(path)
        if match is None or not path.startswith(f"status.{field}[") or int(match[1]) >= len(entries):
            return None
        rejected.setdefault(int(match[1]), set()).add(match[2])
    if not rejected:
        return None
    accepted = []
    for place, charge in enumerate(entries):
        names = rejected.get(place, set())
        kept = {name: amount for name, amount in charge.resources.items() if name not in names}
        if None not in names and (kept or not names):
            accepted.append(replace(charge, resources=kept))
    return tuple(accepted)
