"""Every exception Plimsoll raises.

Exceptions mean bad input or a bug. An expected refusal (a pod that does not fit, a selector that does not
match, a field that fails validation) is a value, never an exception.

    PlimsollError
      InputError               something a user gave us is wrong; the message says what and how to mend it
        QuantityError          a text that is no Kubernetes quantity (kind: format, suffix, numeric)
        DecodeError            JSON that is not the object it claims to be (field: where)
        FormError              a node-allocatable field that cannot be written in the form asked for
        GateError              an unknown feature gate, or a set of gates that contradict each other
        CelError               a device selector
          CelCompileError      it does not parse, type-check or fit the environment
          CelRuntimeError      it failed on this device
            CelCostError       it went past its run-time cost limit
            CelFatalError      it failed in a way that && and || do not swallow
            CelPatternError    a text that is no regular expression
        ApiError               a call to the Kubernetes API that was refused (code, reason: as in its Status)
          UnreachableError     it got no answer: no connection, a broken one, or too late (code 0)
        PatchError             a patch that is malformed, or does not fit the object it is for
        ConfigError            a kubeconfig, certificate, token file or server setting that cannot be used
      LeaseLostError           leader election: the lease is not ours any more, so nothing may be written
      StoreError               the store's file is corrupt, locked, full or cannot be written
      StateError               a device released that is not held: the caller's bug
      LedgerError              a pod booked twice, or taken off the books it is not on: the caller's bug
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PlimsollError(Exception):
    """Root of the tree: catch this to catch everything of ours."""


class InputError(PlimsollError):
    """Something given from outside is wrong; the text names the place and the fix."""


class QuantityError(InputError):
    """A text that is no Kubernetes quantity."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text if len(text) <= 80 else text[:77] + "..."
        super().__init__(_QUANTITY_TEXTS[kind].format(self.text))


_QUANTITY_TEXTS = {
    "format": "{!r} is not a quantity: write a number with an optional suffix, such as 500m, 2, 1.5Gi or 1e3",
    "suffix": "{!r} has an unknown suffix: use n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent (e3)",
    "numeric": "{!r} is no number in range: give at least one digit, and no more than 1e1000",
}


class DecodeError(InputError):
    """JSON that is not the object it claims to be."""

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(f"{field}: {message}" if field else message)


class FormError(InputError):
    """A node-allocatable field that cannot be written in the form asked for without losing something."""

    def __init__(self, form: str, losses: tuple[str, ...]) -> None:
        self.form = form
        self.losses = losses
        super().__init__(f"cannot be written in the {form} form without losing: {'; '.join(losses)}")


class GateError(InputError):
    """An unknown feature gate, or gates that contradict each other."""


class CelError(InputError):
    """A device selector that does not compile or fails on a device."""


class CelCompileError(CelError):
    """The expression does not parse, type-check or fit the environment."""

    def __init__(self, message: str, position: int = 0) -> None:
        self.position = position
        super().__init__(message)


class CelRuntimeError(CelError):
    """The expression failed on this device."""


class CelCostError(CelRuntimeError):
    """The expression went past its run-time cost limit."""


class CelFatalError(CelRuntimeError):
    """A failure that `&&` and `||` do not swallow: it ends the evaluation whatever stands beside it."""


class CelPatternError(CelRuntimeError):
    """A text that is no regular expression."""


class ApiError(InputError):
    """A refused call to the Kubernetes API: what its Status object says, on either end of the wire."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.headers = dict(headers or {})
        super().__init__(message)


class UnreachableError(ApiError):
    """A call that got no answer; `sent` says that the server may have carried it out all the same."""

    def __init__(self, message: str, *, sent: bool, reason: str = "Unreachable") -> None:
        self.sent = sent
        super().__init__(0, reason, message)


class PatchError(InputError):
    """A patch that cannot be applied; `code` is the HTTP status: 400 if malformed, 422 if it does not fit."""

    def __init__(self, message: str, *, malformed: bool = False, code: int = 0) -> None:
        self.malformed = malformed
        self.code = code or (400 if malformed else 422)
        super().__init__(message)


class ConfigError(InputError):
    """A kubeconfig, certificate, token file or server setting that cannot be used."""


class LeaseLostError(PlimsollError):
    """The lease of a leader was lost, or not renewed in time: its work must end at once."""


class StoreError(PlimsollError):
    """The store's file is corrupt, locked by another process, full, or cannot be written."""


class StateError(PlimsollError):
    """A device is released that is not held: the caller's books are not in order."""


class LedgerError(PlimsollError):
    """A pod is booked twice, or taken off books it is not on: the caller has lost count."""


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error for all that a group ended with: ours before others, so that people get a line of use."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, PlimsollError)), flat[0])
