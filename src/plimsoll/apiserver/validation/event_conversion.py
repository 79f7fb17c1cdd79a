"""The two shapes of an Event: core/v1 and events.k8s.io/v1.

Owns the renaming of fields between them. Both ways lose nothing: what has no name in the other shape keeps
its own, and going there and back gives the same tree (with the one apiVersion of the shape).
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

#: Names are exchanged, so that a field which is unknown in its own shape never becomes a known one.
_OTHER_NAME: Mapping[str, str] = dict(_PAIRS) | {new: old for old, new in _PAIRS}


def event_to_core(tree: Any) -> Any:
    """An Event in the shape of core/v1, whatever shape it has; the tree given is not changed."""
    return _rename(tree, CORE) if has_events_shape(tree) else tree


def event_to_events(tree: Any) -> Any:
    """An Event in the shape of events.k8s.io/v1, whatever shape it has; the tree given is not changed."""
    return tree if has_events_shape(tree) else _rename(tree, EVENTS)


def has_events_shape(tree: Any) -> bool:
    return isinstance(tree, dict) and str(tree.get("apiVersion", "")).startswith("events.k8s.io/")


def _rename(tree: Any, api_version: str) -> Any:
    if not isinstance(tree, dict):
        return tree
    renamed: Tree = {_OTHER_NAME.get(key, key): value for key, value in tree.items()}
    renamed["apiVersion"] = api_version
    return renamed
