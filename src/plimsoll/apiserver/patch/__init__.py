"""Patches: JSON patch, merge patch, strategic merge patch, and server-side apply with managed fields."""

from __future__ import annotations

from plimsoll.apiserver.patch.apply import (
    ApplyConflict,
    ApplyResult,
    conflict_causes,
    conflict_message,
    server_side_apply,
)
from plimsoll.apiserver.patch.json_patch import apply_json_patch
from plimsoll.apiserver.patch.merge import drop_nulls
from plimsoll.apiserver.patch.merge_patch import apply_merge_patch
from plimsoll.apiserver.patch.reset_fields import Filter, excluding, including
from plimsoll.apiserver.patch.strategic_merge import apply_strategic_patch
from plimsoll.apiserver.patch.tracking import Convert, keep_times_if_unchanged, track_update

__all__ = [
    "ApplyConflict",
    "ApplyResult",
    "Convert",
    "Filter",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_strategic_patch",
    "conflict_causes",
    "conflict_message",
    "drop_nulls",
    "excluding",
    "including",
    "keep_times_if_unchanged",
    "server_side_apply",
    "track_update",
]
