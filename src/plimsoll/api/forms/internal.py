"""The one internal form of node-allocatable data, and the account of what a change of form loses.

Owns the types the rest of Plimsoll thinks in: a device's rules, a claim's charges, a class's policies. They
hold everything any of the wire forms can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

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
    """How a claim's amount is put together with the requests in the pod spec (document 000)."""

    ADD_PER_CLAIM = "AddPerClaim"
    ADD_PER_REFERENCE = "AddPerReference"
    MAX = "Max"
    CONSUME_FROM = "ConsumeFrom"


POLICIES = tuple(policy.value for policy in AccountingPolicy)


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """What one allocated device charges to one node resource.

    The mapping is the consumed amount of `capacity_key` times `multiplier`, or `multiplier` per allocated
    device where there is no key. `mapped` is False for a device that has overhead only. `policy` keeps the
    text as given, so that a policy from the future survives.
    """

    capacity_key: str | None = None
    multiplier: Quantity | None = None
    mapped: bool = True
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    policy: str = ""


@dataclass(frozen=True, slots=True)
class ResourceCharge:
    """What one claim charges to one resource of a pod."""

    quantity: Quantity | None = None
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    policy: str = ""
    drawn: Quantity | None = None  #: under ConsumeFrom: what the pod takes out of the claim's pool


@dataclass(frozen=True, slots=True)
class ClaimCharge:
    """What one claim charges to a pod, and which containers refer to it."""

    claim: str
    containers: tuple[str, ...] = ()
    resources: Mapping[str, ResourceCharge] = field(default_factory=dict)
    reference: ObjectReference | None = None  #: what the draft's claimInfo says beyond the name


@dataclass(frozen=True, slots=True)
class ClassPolicy:
    """What a DeviceClass says about node resources.

    `rules` hold for its devices that say nothing themselves. `problem` is why what it says cannot be used;
    then none of its devices can be charged, and none may be handed out.
    """

    manages: bool = False
    policies: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, DeviceRule] = field(default_factory=dict)
    problem: str = ""

    @property
    def charges(self) -> bool:
        """Whether devices that say nothing themselves have to do with node resources."""
        return bool(self.rules or self.problem)


@dataclass(frozen=True, slots=True)
class WriteResult(Generic[T]):
    """A view in the form asked for, and what that form has no room for (empty: nothing is lost)."""

    view: T
    losses: tuple[str, ...] = ()

    def whole(self, form: Form) -> T:
        """The view, or FormError if anything would be lost."""
        if self.losses:
            raise FormError(form.value, self.losses)
        return self.view


# -- for the writers of the forms


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
