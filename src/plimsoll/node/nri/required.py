"""Required plugins: those of the node, and those that a pod's annotation names.

Defines the annotation and upstream's messages. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from plimsoll.api.go_text import quote_go
from plimsoll.common.yaml import load_documents
from plimsoll.errors import InputError

ANNOTATION = "required-plugins.noderesource.dev"


def required_fault(
    annotations: Mapping[str, str],
    container: str,
    always: Sequence[str],
    present: Collection[tuple[str, str]],
) -> str | None:
    """Return why a container must not be created; `present` are the called plugins (index, name)."""
    required = [*always]
    value = annotation_for(annotations, container)
    if value is not None:
        named = _names(value)
        if isinstance(named, str):
            return f"invalid {ANNOTATION} annotation {quote_go(value[:200])}: {named}"
        required += named
    known = {name for index, base in present for name in (base, f"{index}-{base}")}
    missing = [name for name in required if name not in known]
    if not missing:
        return None
    plural = "s" if len(missing) > 1 else ""
    return f"validation error: required plugin{plural} {quote_go(','.join(missing))} not present"


def annotation_for(annotations: Mapping[str, str], container: str) -> str | None:
    """Return the requirement of a container: from its own annotation, else from the pod's."""
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
        return "must be a list of names"
    return tree
