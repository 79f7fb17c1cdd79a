"""Conversion of Events between core/v1 and events.k8s.io/v1.

Lossless in both directions: fields without a counterpart keep their name, and a round trip returns the same
tree (with the apiVersion of the group).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.apiserver.validation.object_trees import Tree

CORE = "v1"
EVENTS = "events.k8s.io/v1"

_PAIRS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)

#: Names are swapped, so that a field unknown to one API never becomes a known field of the other.
_OTHER_NAME: Mapping[str, str] = dict(_PAIRS) | {new: old for old, new in _PAIRS}


def event_to_core(tree: Any) -> Any:
    """Convert an Event of either group to core/v1; does not modify its argument."""
    return _rename(tree, CORE) if has_events_shape(tree) else tree


def event_to_events(tree: Any) -> Any:
    """Convert an Event of either group to events.k8s.io/v1; does not modify its argument."""
    return tree if has_events_shape(tree) else _rename(tree, EVENTS)


def has_events_shape(tree: Any) -> bool:
    return isinstance(tree, dict) and str(tree.get("apiVersion", "")).startswith("events.k8s.io/")


def _rename(tree: Any, api_version: str) -> Any:
    if not isinstance(tree, dict):
        return tree
    renamed: Tree = {_OTHER_NAME.get(key, key): value for key, value in tree.items()}
    renamed["apiVersion"] = api_version
    return renamed
