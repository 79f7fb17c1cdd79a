"""Resource names and quantities in nodes, quotas and pods.

Defines the unqualified resource names, where each can be used, and which quantities must be integers.
"""

from __future__ import annotations

from plimsoll.api.names import label_key
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid
from plimsoll.apiserver.validation.name_formats import is_extended_resource, validate_label_key
from plimsoll.errors import QuantityError

NOT_NEGATIVE = "must be greater than or equal to 0"
NOT_INTEGER = "must be an integer"

_COMPUTE = frozenset(("cpu", "memory", "ephemeral-storage"))
_COUNTED = frozenset(
    (
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_QUOTA = (
    _COMPUTE
    | _COUNTED
    | {f"{side}.{name}" for side in ("requests", "limits") for name in _COMPUTE}
    | {"requests.storage"}
)
_STANDARD = _QUOTA | {"storage"}


def is_huge_page_resource(name: str) -> bool:
    return name.startswith("hugepages-")


def is_standard_container_resource(name: str) -> bool:
    return name in _COMPUTE or is_huge_page_resource(name)


def is_quota_resource(name: str) -> bool:
    """Report whether an unqualified name can be limited by a quota."""
    return name in _QUOTA or name.startswith(("hugepages-", "requests.hugepages-"))


def is_integer_resource(name: str) -> bool:
    return name in _COUNTED or is_extended_resource(name)


def validate_resource(name: str, path: FieldPath) -> FieldErrors:
    """Validate a resource name: a standard one, or a qualified name."""
    if label_key(name):
        yield from validate_label_key(name, path)
    elif "/" not in name and not (name in _STANDARD or is_quota_resource(name)):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def validate_quota_resource(name: str, path: FieldPath) -> FieldErrors:
    yield from validate_resource(name, path)
    if "/" not in name and not is_quota_resource(name):
        yield invalid(path, name, "must be a standard resource for quota")


def validate_resource_quantity(name: str, amount: Quantity, path: FieldPath) -> FieldErrors:
    """Validate a quantity: not negative, and an integer for counted resources."""
    if amount.sign() < 0:
        yield invalid(path, amount, NOT_NEGATIVE)
    if is_integer_resource(name) and amount.milli() % 1000:
        yield invalid(path, amount, NOT_INTEGER)


def is_huge_page_multiple(name: str, amount: Quantity) -> bool:
    """Report whether a quantity is a multiple of the huge page size in the name."""
    try:
        size = Quantity.parse(name.removeprefix("hugepages-"))
    except QuantityError:
        return False
    if size.sign() <= 0 or size.milli() % 1000:
        return False
    return amount.value() % size.value() == 0
