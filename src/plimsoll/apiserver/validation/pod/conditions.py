"""Setting a condition in the status of a pod."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.apiserver.validation.object_trees import Tree


def set_condition(conditions: Sequence[Tree], condition: Tree, now: str) -> list[Tree]:
    """Return the conditions with this one replaced or appended.

    The last transition time is kept if the status does not change.
    """
    condition = {**condition, "lastProbeTime": None, "lastTransitionTime": now}
    found = []
    placed = False
    for existing in conditions:
        if existing.get("type") == condition["type"] and not placed:
            if existing.get("status") == condition["status"] and "lastTransitionTime" in existing:
                condition["lastTransitionTime"] = existing["lastTransitionTime"]
            existing, placed = condition, True
        found.append(existing)
    return found if placed else [*found, condition]
