"""Conversion between v1 and other versions of `resource.k8s.io`. Pure.

v1beta2 has the schema of v1. v1beta1 and v1alpha3 keep the fields of a request inline (v1: under `exactly`)
and those of a device under `basic` (v1: in the device); v1alpha3 has capacities as bare quantities. An object
that v1 cannot express is `Unconvertible` and is left out rather than misread. `from_v1` is the inverse, for
versions that a client has to write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]

GROUP = "resource.k8s.io"
#: Supported versions, most recent first.
VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
#: Versions with the schema of v1.
SAME = ("v1", "v1beta2")
#: Fields of a request that are under `exactly` in v1.
EXACTLY_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)


@dataclass(frozen=True, slots=True)
class Unconvertible:
    """Reason why an object cannot be converted to v1."""

    why: str


def version_of(tree: Tree) -> str:
    """Return the version of a resource.k8s.io object, or "" for other groups."""
    api_version = tree.get("apiVersion")
    group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
    return version if group == GROUP else ""


def to_v1(tree: Tree) -> Tree | Unconvertible:
    """Return the object in the v1 schema; the given tree is not modified, objects of other groups are
    returned as is.
    """
    version = version_of(tree)
    if not version or version in SAME:
        return tree
    if version not in VERSIONS:
        return Unconvertible(f"unsupported version {version} of {GROUP}; supported: {', '.join(VERSIONS)}")
    kind = tree.get("kind")
    if kind == "DeviceTaintRule":
        return _rule(tree)
    change = _CHANGES.get(str(kind))
    changed = change(tree) if change is not None else tree
    return {**changed, "apiVersion": f"{GROUP}/v1"}


def from_v1(tree: Tree, kind: str, version: str) -> Tree:
    """Return an object, or a patch of one, in the schema of another version; the given tree is not modified.

    A patch may lack apiVersion and kind. Trees of other kinds are returned as is.
    """
    if tree.get("kind", kind) != kind:
        return tree
    changed = tree
    if version not in SAME and kind != "DeviceTaintRule":
        change = _REVERSED.get(kind)
        changed = change(tree) if change is not None else tree
    return {**changed, "apiVersion": f"{GROUP}/{version}"} if "apiVersion" in tree else changed


def _claim(tree: Tree) -> Tree:
    return _with(tree, "spec", _claim_spec)


def _template(tree: Tree) -> Tree:
    return _with(tree, "spec", lambda outer: _with(outer, "spec", _claim_spec))


def _claim_spec(spec: Tree) -> Tree:
    return _with(spec, "devices", lambda devices: _with_each(devices, "requests", _request))


def _request(request: Tree) -> Tree:
    flat = {field: request[field] for field in EXACTLY_FIELDS if request.get(field) is not None}
    if not flat or "exactly" in request:
        return request
    rest = {field: value for field, value in request.items() if field not in EXACTLY_FIELDS}
    return {**rest, "exactly": flat}


def _inline_request(request: Tree) -> Tree:
    exactly = request.get("exactly")
    if not isinstance(exactly, dict):
        return request
    return {**{field: value for field, value in request.items() if field != "exactly"}, **exactly}


def _inline_spec(spec: Tree) -> Tree:
    return _with(spec, "devices", lambda devices: _with_each(devices, "requests", _inline_request))


def _basic_device(device: Tree) -> Tree:
    basic = {field: value for field, value in device.items() if field != "name"}
    return {"name": device.get("name", ""), "basic": basic}


def _slice(tree: Tree) -> Tree:
    return _with(tree, "spec", lambda spec: _with_each(spec, "devices", _device))


def _device(device: Tree) -> Tree:
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return device
    rest = {field: value for field, value in device.items() if field != "basic"}
    return _with({**rest, **basic}, "capacity", _capacity)


def _capacity(capacity: Tree) -> Tree:
    return {
        name: given if isinstance(given, dict) or given is None else {"value": given}
        for name, given in capacity.items()
    }


def _rule(tree: Tree) -> Tree | Unconvertible:
    spec = tree.get("spec")
    selector = spec.get("deviceSelector") if isinstance(spec, dict) else None
    if isinstance(selector, dict) and (selector.get("deviceClassName") or selector.get("selectors")):
        return Unconvertible("it selects devices by class or CEL, which Kubernetes removed in 1.35")
    return {**tree, "apiVersion": f"{GROUP}/v1beta2"}


_CHANGES: dict[str, Callable[[Tree], Tree]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "ResourceSlice": _slice,
}

_REVERSED: dict[str, Callable[[Tree], Tree]] = {
    "ResourceClaim": lambda tree: _with(tree, "spec", _inline_spec),
    "ResourceClaimTemplate": lambda tree: _with(
        tree, "spec", lambda outer: _with(outer, "spec", _inline_spec)
    ),
    "ResourceSlice": lambda tree: _with(
        tree, "spec", lambda spec: _with_each(spec, "devices", _basic_device)
    ),
}


def _with(tree: Tree, field: str, change: Callable[[Tree], Tree]) -> Tree:
    """Return the tree with one mapping field changed; other values are left for the decoder to reject."""
    value = tree.get(field)
    return {**tree, field: change(value)} if isinstance(value, dict) else tree


def _with_each(tree: Tree, field: str, change: Callable[[Tree], Tree]) -> Tree:
    values = tree.get(field)
    if not isinstance(values, list):
        return tree
    return {**tree, field: [change(value) if isinstance(value, dict) else value for value in values]}
