"""Patches: JSON patch, merge patch, strategic merge patch, and server-side apply with its managed fields."""

from __future__ import annotations

from plimsoll.cluster.patch.applying import (
    Applied,
    Conflict,
    apply_owned,
    conflict_causes,
    conflict_message,
)
from plimsoll.cluster.patch.json_patch import apply_json_patch
from plimsoll.cluster.patch.merge import settle
from plimsoll.cluster.patch.merge_patch import apply_merge_patch
from plimsoll.cluster.patch.resets import Filter, excluding, including
from plimsoll.cluster.patch.strategic import apply_strategic_patch
from plimsoll.cluster.patch.tracking import Convert, keep_idle_times, track_update

__all__ = [
    "Applied",
    "Conflict",
    "Convert",
    "Filter",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_owned",
    "apply_strategic_patch",
    "conflict_causes",
    "conflict_message",
    "excluding",
    "including",
    "keep_idle_times",
    "settle",
    "track_update",
]
