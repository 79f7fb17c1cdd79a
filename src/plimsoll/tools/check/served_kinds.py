"""Problems with `apiVersion` and `kind`: missing, misspelled, or not served by a release."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from plimsoll.api.kinds import KINDS
from plimsoll.apiserver.registry.api_lifecycle import Release, has_lifecycle, is_served, served_versions

_VERSIONS = {f"{kind.group}/{version}".lstrip("/") for kind in KINDS for version in kind.versions}
_GROUPS = {kind.group for kind in KINDS}
#: Kinds moved from here to groups of their own.
_FORMER_GROUP = "extensions"
#: Kinds of Kubernetes that the embedded server does not have.
_OTHER_KINDS = ("ComponentStatus",)


def find_version_problem(api_version: Any, kind: Any, release: Release) -> str:
    """Return why an API server does not know an object; "" for what it serves and for custom resources."""
    if not isinstance(kind, str) or not kind:
        return "kind: must be given"
    versions = served_versions(kind, release)
    if not isinstance(api_version, str) or not api_version:
        return f"apiVersion: must be given{_choose(versions)}"
    group, _, version = api_version.rpartition("/")
    if not version or group.count("/"):
        return f"apiVersion: {api_version!r} must have the form VERSION or GROUP/VERSION{_choose(versions)}"
    if is_served(api_version, kind, release):
        return ""
    mine = versions if group == _FORMER_GROUP else [each for each in versions if _group(each) == group]
    if mine or has_lifecycle(api_version, kind):
        shown = f"Kubernetes {release[0]}.{release[1]} does not serve {api_version} {kind}"
        return f"apiVersion: {shown}{_choose(mine)}"
    if group in _GROUPS and kind not in _OTHER_KINDS:
        return _describe_unknown(api_version, kind, group, versions)
    return ""


def _describe_unknown(api_version: str, kind: str, group: str, versions: Sequence[str]) -> str:
    if any(each.kind == kind for each in KINDS):
        return f"apiVersion: {api_version} has no kind {kind}{_choose(versions[:1])}"
    if api_version not in _VERSIONS:
        return f"apiVersion: {api_version} is not a version of the API"
    near = get_close_matches(kind, [each.kind for each in KINDS if each.group == group], 1)
    return f"kind: {api_version} has no kind {kind}" + (f"; did you mean {near[0]}?" if near else "")


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _choose(versions: Sequence[str]) -> str:
    return f"; use {' or '.join(versions)}" if versions else ""
