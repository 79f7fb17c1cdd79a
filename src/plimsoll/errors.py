"""Exceptions raised by Plimsoll.

Exceptions mean invalid input or a bug. An expected refusal (a pod that does not fit, a selector that does not
match, a field that fails validation) is a value, never an exception.

    PlimsollError
      InputError               invalid input; the message names the problem and the fix
        QuantityError          not a Kubernetes quantity (kind: format, suffix, numeric)
        DecodeError            JSON that does not match its type (field: the path)
        FormError              node-allocatable data that the requested form cannot express
        GateError              an unknown feature gate, or an inconsistent set of gates
        CelError               a device selector
          CelCompileError      it does not parse, type-check or fit the environment
          CelRuntimeError      it failed on a device
            CelCostError       it exceeded its run-time cost limit
            CelFatalError      it failed in a way that && and || do not absorb
            CelPatternError    not a regular expression
            CelBudgetError     expressions of an admission policy exceeded their cost budget together
            MatchConditionError  match conditions of an admission policy failed
        ApiError               a Kubernetes API call that was rejected (code, reason: as in its Status)
          UnreachableError     no response: connection failed, broken, or timed out (code 0)
        PolicyParamError       parameters of an admission policy that cannot be read
        MutationError          a mutation of an admission policy that cannot be applied
        PatchError             a patch that is malformed, or does not apply to the object
          PatchTestError       a test operation of a JSON patch failed
        ConfigError            an invalid kubeconfig, certificate, token file or server setting
      SpdyProtocolError        bytes of a peer that are not SPDY/3.1, or exceed a limit
      RuntimeCallError         a call of the container runtime failed (code: gRPC's)
      LeaseLostError           leader election: the lease is lost, so nothing may be written
      StoreError               the store's file is corrupt, locked, full or not writable
      StateError               release of a device that is not allocated: a bug in the caller
      LedgerError              a pod added twice, or removed without an entry: a bug in the caller
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PlimsollError(Exception):
    """Base class of all exceptions of Plimsoll."""


class InputError(PlimsollError):
    """Invalid input; the text names the place and the fix."""


class QuantityError(InputError):
    """A text that is not a Kubernetes quantity."""

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
    """JSON that does not match its type."""

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        self.problem = message
        super().__init__(f"{field}: {message}" if field else message)


class FormError(InputError):
    """Node-allocatable data that the requested form cannot express without loss."""

    def __init__(self, form: str, losses: tuple[str, ...]) -> None:
        self.form = form
        self.losses = losses
        super().__init__(f"cannot be written in the {form} form without losing: {'; '.join(losses)}")


class GateError(InputError):
    """An unknown feature gate, or inconsistent gates."""


class CelError(InputError):
    """A device selector that does not compile or fails on a device."""


class CelCompileError(CelError):
    """The expression does not parse, type-check or fit the environment.

    The message is that of the first error of the text; `others` are the further ones, if they are known.
    """

    def __init__(self, message: str, position: int = 0, others: tuple[CelCompileError, ...] = ()) -> None:
        self.position = position
        self.others = others
        super().__init__(message)


class CelRuntimeError(CelError):
    """The expression failed on a device."""


class CelCostError(CelRuntimeError):
    """The expression exceeded its run-time cost limit."""


class CelFatalError(CelRuntimeError):
    """An error that `&&` and `||` do not absorb: it ends the evaluation."""


class CelPatternError(CelRuntimeError):
    """A text that is not a regular expression."""


class CelBudgetError(CelRuntimeError):
    """The expressions of one step of an admission policy exceeded their cost budget together."""


class PolicyCostError(PlimsollError):
    """The admission policies of a request cost more than may be spent in the event loop."""


class MatchConditionError(CelRuntimeError):
    """The match conditions of an admission policy that fails closed could not be evaluated."""


class ApiError(InputError):
    """A rejected Kubernetes API call, with the contents of its Status; used by client and server."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        list_metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.headers = dict(headers or {})
        self.list_metadata = dict(list_metadata or {})
        super().__init__(message)


class UnreachableError(ApiError):
    """A call without a response; `sent` means that the server may have processed it."""

    def __init__(self, message: str, *, sent: bool, reason: str = "Unreachable") -> None:
        self.sent = sent
        super().__init__(0, reason, message)


class PolicyParamError(InputError):
    """The parameters of an admission policy cannot be read: a configuration error."""


class MutationError(InputError):
    """A mutation of an admission policy cannot be applied."""


class PatchError(InputError):
    """A patch that cannot be applied; `code` is the HTTP status: 400 if malformed, 422 if it does not
    apply.
    """

    def __init__(self, message: str, *, malformed: bool = False, code: int = 0) -> None:
        self.malformed = malformed
        self.code = code or (400 if malformed else 422)
        super().__init__(message)


class PatchTestError(PatchError):
    """A JSON patch with a test operation that failed."""


class ConfigError(InputError):
    """An invalid kubeconfig, certificate, token file or server setting."""


class SpdyProtocolError(PlimsollError):
    """Bytes of a peer that are not SPDY/3.1, or exceed a limit."""


class RuntimeCallError(PlimsollError):
    """A call of the container runtime that failed; `code` is gRPC's name of the status."""

    def __init__(self, method: str, code: str, message: str) -> None:
        self.method = method
        self.code = code
        self.message = message
        super().__init__(f"{method}: rpc error: code = {code} desc = {message}")


class LeaseLostError(PlimsollError):
    """The lease of a leader was lost or not renewed in time: its work must stop."""


class StoreError(PlimsollError):
    """The store's file is corrupt, locked by another process, full, or not writable."""


class StateError(PlimsollError):
    """Release of a device that is not allocated: a bug in the caller."""


class LedgerError(PlimsollError):
    """A pod added twice, or removed without an entry: a bug in the caller."""


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return one error for an exception group: Plimsoll's own first, because its text is useful."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, PlimsollError)), flat[0])
