"""Device taints and what tolerates them (section 9 of the allocator semantics).

Only NoSchedule and NoExecute keep a device from being allocated. How long a taint is tolerated and since
when it is there do not matter for allocation.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.resource import DeviceTaint, DeviceToleration

_PREVENTING = ("NoSchedule", "NoExecute")


def is_tolerated(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether a device with these taints may be allocated."""
    return find_untolerated_taint(taints, tolerations) is None


def find_untolerated_taint(
    taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]
) -> DeviceTaint | None:
    """The first taint that prevents allocation."""
    known = tuple(tolerations)
    for taint in taints:
        if taint.effect in _PREVENTING and not any(tolerates(toleration, taint) for toleration in known):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
    return False
