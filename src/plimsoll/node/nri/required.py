"""Plugins that must be there before a container is made: the node's, and those that a pod's annotation names.

Owns the annotation and upstream's texts. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from plimsoll.common.yaml import load_documents
from plimsoll.errors import InputError
from plimsoll.protocols.nri.names import quote

ANNOTATION = "required-plugins.noderesource.dev"


def required_fault(
    annotations: Mapping[str, str],
    container: str,
    always: Sequence[str],
    present: Collection[tuple[str, str]],
) -> str | None:
    """Why a container must wait; `present` are the plugins that were asked, by index and name."""
    required = [*always]
    value = annotation_for(annotations, container)
    if value is not None:
        named = _names(value)
        if isinstance(named, str):
            return f"invalid {ANNOTATION} annotation {quote(value[:200])}: {named}"
        required += named
    known = {name for index, base in present for name in (base, f"{index}-{base}")}
    missing = [name for name in required if name not in known]
    if not missing:
        return None
    plural = "s" if len(missing) > 1 else ""
    return f"validation error: required plugin{plural} {quote(','.join(missing))} not present"


def annotation_for(annotations: Mapping[str, str], container: str) -> str | None:
    """What is asked for a container: by its own annotation, else by the pod's."""
    for key in (f"{ANNOTATION}/container.{container}", f"{ANNOTATION}/pod", ANNOTATION):
        if key in annotations:
            return annotations[key]
    return None


def _names(value: str) -> list[str] | str:
    try:
        trees = [tree for _, tree in load_documents(value)]
    except InputError as error:
        return str(error)
    tree = trees[0] if trees else []
    if not isinstance(tree, list) or not all(isinstance(name, str) for name in tree):
        return "a list of names is needed"
    return tree
