"""Patches: JSON patch, merge patch, strategic merge patch, and server-side apply with its managed fields."""

from __future__ import annotations

from plimsoll.apiserver.patch.apply import Applied, Conflict, apply_owned, conflict_causes, conflict_message
from plimsoll.apiserver.patch.json_patch import apply_json_patch
from plimsoll.apiserver.patch.merge import settle
from plimsoll.apiserver.patch.merge_patch import apply_merge_patch
from plimsoll.apiserver.patch.reset_fields import Filter, excluding, including
from plimsoll.apiserver.patch.strategic_merge import apply_strategic_patch
from plimsoll.apiserver.patch.tracking import Convert, keep_idle_times, track_update

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
