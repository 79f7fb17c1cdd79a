"""Migration from client-side apply to server-side apply.

Handles the annotation in which `kubectl apply` keeps its last configuration: fields set by client-side apply
and unchanged since do not conflict, and the annotation follows server-side applies of the same manager, so
that users can return to client-side apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll.api.codec import decode_tree
from plimsoll.api.go_text import encode_go
from plimsoll.apiserver.json_values import get_path
from plimsoll.apiserver.patch.compare import compare
from plimsoll.apiserver.patch.field_set import FieldSet, difference
from plimsoll.apiserver.patch.merge import applied_fields
from plimsoll.apiserver.patch.typed_check import check_typed
from plimsoll.errors import DecodeError, PatchError

if TYPE_CHECKING:
    from plimsoll.apiserver.patch.tracking import TrackingRequest

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATIONS = 256 * 1024


def _annotations(tree: dict[str, Any]) -> dict[str, Any]:
    annotations = get_path(tree, ("metadata", "annotations"))
    return annotations if isinstance(annotations, dict) else {}


def unchanged_last_applied_fields(live: dict[str, Any], request: TrackingRequest) -> FieldSet:
    """Return the fields that are unchanged since the last client-side apply; empty if there was none."""
    text = _annotations(live).get(ANNOTATION)
    if not isinstance(text, str) or not text:
        return {}
    try:
        last = decode_tree(text)
        if not isinstance(last, dict) or last.get("apiVersion") != request.version or not last.get("kind"):
            return {}
        check_typed(last, request.schema)
        fields = applied_fields(last, request.schema)
        changes = compare(last, live, request.schema, nulls=True)
    except (DecodeError, PatchError):
        return {}
    return difference(difference(fields, changes.changed), changes.removed)


def update_last_applied(tree: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """Return the object with its last-applied annotation updated, if it has one."""
    annotations = _annotations(tree)
    if not annotations.get(ANNOTATION):
        return tree
    configuration = dict(applied)
    metadata = configuration.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        kept = {name: text for name, text in metadata["annotations"].items() if name != ANNOTATION}
        configuration["metadata"] = {**metadata, "annotations": kept}
    renewed = {**annotations, ANNOTATION: encode_go(configuration) + "\n"}
    size = sum(len(name.encode()) + len(str(text).encode()) for name, text in renewed.items())
    if size > MAX_ANNOTATIONS:
        del renewed[ANNOTATION]
    return {**tree, "metadata": {**tree["metadata"], "annotations": renewed}}
