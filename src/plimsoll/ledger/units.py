"""Integer units of resources, as in kube-scheduler's NodeInfo.

Converts exact quantities to integers: millicores for cpu, units otherwise, rounded up once per pod and
resource (docs/spec/accounting.md, "Scheduler"). Resources that nodes do not account for (neither cpu, memory,
ephemeral-storage nor scalar resources) are omitted, as in Kubernetes. Unlike there, nothing wraps: single
amounts saturate at int64, sums are unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from plimsoll.api.names import label_key
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE
from plimsoll.api.quantity import Format, Quantity
from plimsoll.ledger.amounts import Amounts, is_huge_page

#: Read-only integer amounts: millicores for cpu, units otherwise.
Units: TypeAlias = Mapping[str, int]

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
#: Resources of every node, in the order of shortage messages.
STANDARD_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)

_NATIVE = "kubernetes.io/"
_REQUESTS = "requests."
_VOLUMES = "attachable-volumes-"


@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Return whether a resource is an extended resource (`example.com/gpu`)."""
    if "/" not in name or _NATIVE in name or name.startswith(_REQUESTS):
        return False
    return not label_key(_REQUESTS + name)


def is_dra_extended_resource(name: str) -> bool:
    """Return whether device classes can serve a resource: an extended one, or the implicit one of a class."""
    return is_extended_resource(name) or name.startswith(DEVICE_CLASS_RESOURCE)


@lru_cache(maxsize=4096)
def is_accounted(name: str) -> bool:
    """Return whether nodes account for this resource (`pods` is counted separately)."""
    return (
        name in STANDARD_RESOURCES
        or is_huge_page(name)
        or is_extended_resource(name)
        or _NATIVE in name
        or name.startswith(_VOLUMES)
    )


def to_unit(name: str, amount: Quantity) -> int:
    """Convert one amount to an integer, rounded up."""
    return amount.milli() if name == CPU else amount.value()


def to_units(amounts: Amounts) -> dict[str, int]:
    """Convert the amounts that nodes account for to integers."""
    return {name: to_unit(name, amount) for name, amount in amounts.items() if is_accounted(name)}


def from_units(name: str, units: int) -> Quantity:
    """Convert an integer amount of a resource to a quantity."""
    if name == CPU:
        return Quantity.of(units, scale=-3)
    return Quantity.of(units, Format.DECIMAL_SI if is_extended_resource(name) else Format.BINARY_SI)


def units_to_nano(name: str, units: int) -> int:
    """Convert an integer amount of a resource to nano-units."""
    return units * (10**6 if name == CPU else 10**9)


def add_units(total: dict[str, int], units: Units, sign: int = 1) -> None:
    """Add integer amounts to a total, or subtract them; existing names remain, possibly with zero."""
    for name, amount in units.items():
        total[name] = total.get(name, 0) + sign * amount
