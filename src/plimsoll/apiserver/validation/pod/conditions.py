"""Setting a condition in the status of a pod."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.apiserver.validation.object_trees import Tree


def set_condition(conditions: Sequence[Tree], condition: Tree, now: str) -> list[Tree]:
    """The conditions with this one set in its place, or at the end.

    It takes the place of the one of its type as a whole; the time of the last transition stays if the status
    does.
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
