"""Writing a cluster state to a file in the format of `kubectl get -o yaml`, for later use by the tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.common.yaml import dump_document
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.kinds import KINDS
from plimsoll.tools.cluster_state.objects import ClusterObjects


def write_dump(objects: ClusterObjects, path: Path) -> None:
    """Write all objects to a file, as JSON if its suffix is .json, else as YAML. Raise InputError on
    failure.
    """
    tree = {"apiVersion": "v1", "kind": "List", "items": [*_trees(objects)]}
    text = codec.encode(tree) if path.suffix == ".json" else dump_document(tree)
    try:
        path.write_bytes(text)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _trees(objects: ClusterObjects) -> list[dict[str, Any]]:
    made = []
    for kind in KINDS:
        head = {"apiVersion": kind.endpoint.api_version, "kind": kind.endpoint.kind}
        for thing in objects.all(kind.view):
            tree = codec.to_tree(thing)
            assert isinstance(tree, dict)
            made.append({**tree, **head})
    return made
