"""Device taints and tolerations (docs/spec/allocator.md, "Taints, admin access, binding").

Only NoSchedule and NoExecute prevent allocation. `tolerationSeconds` and `timeAdded` do not matter for
allocation.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.resource import DeviceTaint, DeviceToleration

_PREVENTING = ("NoSchedule", "NoExecute")


def is_tolerated(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> bool:
    """Return whether a device with these taints may be allocated."""
    return find_untolerated_taint(taints, tolerations) is None


def find_untolerated_taint(
    taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]
) -> DeviceTaint | None:
    """Return the first taint that prevents allocation."""
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
