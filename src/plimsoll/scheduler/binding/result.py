"""Results of binding a pod, and the step at which a binding failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import InputError


class BindStep(Enum):
    """Steps of a binding, in order."""

    CREATION = "creation"
    FINALIZER = "finalizer"
    ALLOCATION = "allocation"
    RESERVATION = "reservation"
    CLAIM_STATUS = "claim status"
    CHARGES = "charges"
    PLACEHOLDERS = "placeholders"
    VOLUMES = "volumes"
    CONDITIONS = "conditions"
    PERMIT = "permit"
    BINDING = "binding"


class BindPoint(Enum):
    """Extension points of a binding, as kube-scheduler names them."""

    PRE_BIND = "PreBind"
    BIND = "Bind"
    UNRESERVE = "Unreserve"


@dataclass(frozen=True, slots=True)
class BindSuccess:
    """Pod was bound; claims as the API has them now."""

    node: str
    claims: tuple[ResourceClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class BindFailure:
    """Pod was not bound: the failed step, the error, and what remains."""

    step: BindStep
    error: str  #: message for the event
    settled: bool = True  #: False: something could not be undone; `on_claim` received it
    final: bool = False  #: not to be retried: the pod is gone, or on another node
    cause: InputError | None = None
