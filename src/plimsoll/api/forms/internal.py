"""Internal form of node-allocatable data, and losses when converting to a wire form.

The types used everywhere else: device rules, claim charges, class policies. They can represent all wire
forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec import field as struct_field

from plimsoll.api.meta import ObjectReference
from plimsoll.api.quantity import Quantity
from plimsoll.errors import FormError

T = TypeVar("T")


class Form(Enum):
    """A generation of the wire format."""

    V1_36 = "1.36"
    V1_37 = "1.37"
    DRAFT = "draft"


class AccountingPolicy(Enum):
    """Rule for combining a claim's amount with the requests in the pod spec (KEP-5517)."""

    ADD_PER_CLAIM = "AddPerClaim"
    ADD_PER_REFERENCE = "AddPerReference"
    MAX = "Max"
    CONSUME_FROM = "ConsumeFrom"


POLICIES = tuple(policy.value for policy in AccountingPolicy)


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """Charge of one allocated device to one node resource.

    The mapping is the consumed amount of `capacity_key` times `multiplier`, or `multiplier` per allocated
    device without a key. `mapped` is False for a device with overhead only. `policy` keeps the original text,
    so that unknown policies are preserved.
    """

    capacity_key: str | None = None
    multiplier: Quantity | None = None
    mapped: bool = True
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    policy: str = ""


class ResourceCharge(Struct, frozen=True):
    """Charge of one claim to one resource of a pod."""

    quantity: Quantity | None = None
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    policy: str = ""
    drawn: Quantity | None = None  #: under ConsumeFrom: amount the pod draws from the claim's pool


class ClaimCharge(Struct, frozen=True):
    """Charge of one claim to a pod, and the containers that refer to it."""

    claim: str
    containers: tuple[str, ...] = ()
    resources: Mapping[str, ResourceCharge] = struct_field(default_factory=dict)
    reference: ObjectReference | None = None  #: the draft's claimInfo beyond the name


@dataclass(frozen=True, slots=True)
class ClassPolicy:
    """Accounting of a DeviceClass.

    `rules` apply to its devices without mappings of their own. `problem` is the error in its annotation; its
    devices then cannot be charged and must not be allocated.
    """

    manages: bool = False
    policies: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, DeviceRule] = field(default_factory=dict)
    problem: str = ""

    @property
    def charges(self) -> bool:
        """True if devices without mappings of their own may charge node resources."""
        return bool(self.rules or self.problem)


@dataclass(frozen=True, slots=True)
class FormWriteResult(Generic[T]):
    """A view in the requested form, and what the form cannot express (empty: lossless)."""

    view: T
    losses: tuple[str, ...] = ()

    def lossless(self, form: Form) -> T:
        """Return the view; raises FormError if anything would be lost."""
        if self.losses:
            raise FormError(form.value, self.losses)
        return self.view


# -- helpers of the writers


def record_loss(what: object, text: str, losses: list[str]) -> None:
    if what:
        losses.append(text)


def record_overhead_loss(
    per_pod: Quantity | None, per_container: Quantity | None, where: str, losses: list[str]
) -> None:
    if per_pod is not None:
        losses.append(f"{where}: overhead of {per_pod} per pod")
    if per_container is not None:
        losses.append(f"{where}: overhead of {per_container} per container")


def add_optional(a: Quantity | None, b: Quantity | None) -> Quantity | None:
    return b if a is None else a if b is None else a + b
