"""Parsing of the command's argument: a pod or a claim."""

from __future__ import annotations

from plimsoll.errors import InputError

_PODS = frozenset({"pod", "pods", "po"})
_CLAIMS = frozenset({"claim", "claims", "resourceclaim", "resourceclaims"})


def read_subject(text: str, namespace: str = "") -> tuple[str, str, str]:
    """Return kind (`pod` or `claim`), namespace ("" if not given) and name.

    Accepts `NAME`, `NAMESPACE/NAME`, `pod/NAME`, `claim/NAME` and `claim/NAMESPACE/NAME`. A word that is a
    kind is not a namespace.
    """
    parts = text.split("/")
    kind = "pod"
    if len(parts) > 1 and parts[0].lower() in _PODS | _CLAIMS:
        kind = "claim" if parts.pop(0).lower() in _CLAIMS else "pod"
    if len(parts) > 2 or not all(parts):
        raise InputError(f"{text}: name a pod (NAME, NAMESPACE/NAME or pod/NAME) or a claim (claim/NAME)")
    if len(parts) == 2:
        if namespace and namespace != parts[0]:
            raise InputError(f"{text}: namespace {parts[0]} conflicts with -n {namespace}")
        return kind, parts[0], parts[1]
    return kind, namespace, parts[0]
