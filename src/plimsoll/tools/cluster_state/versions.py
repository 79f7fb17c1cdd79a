"""Objects of older versions of `resource.k8s.io`, in the shape of v1.

Owns `to_v1`, which is pure. v1beta2 has the shape of v1. v1beta1 and v1alpha3 write a request's fields flat
(v1: below `exactly`) and a device's below `basic` (v1: in the device itself); v1alpha3 gives capacity as bare
quantities. What a version says that v1 cannot say is a `Unconvertible`: the object is then better left out
than read as something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]

GROUP = "resource.k8s.io"
#: What can be read, the best first.
VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
#: Versions whose shape is that of v1.
SAME = ("v1", "v1beta2")
#: The fields of a request that v1 has below `exactly`.
_EXACTLY = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)


@dataclass(frozen=True, slots=True)
class Unconvertible:
    """Why an object cannot be read as one of v1."""

    why: str


def version_of(tree: Tree) -> str:
    """The version of an object of the group; "" if it is of another group or says nothing."""
    api_version = tree.get("apiVersion")
    group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
    return version if group == GROUP else ""


def to_v1(tree: Tree) -> Tree | Unconvertible:
    """The same object in the shape of v1; the given tree is left as it is, others are handed back."""
    version = version_of(tree)
    if not version or version in SAME:
        return tree
    if version not in VERSIONS:
        return Unconvertible(f"version {version} of {GROUP} cannot be read, only {', '.join(VERSIONS)}")
    kind = tree.get("kind")
    if kind == "DeviceTaintRule":
        return _rule(tree)
    change = _CHANGES.get(str(kind))
    changed = change(tree) if change is not None else tree
    return {**changed, "apiVersion": f"{GROUP}/v1"}


def _claim(tree: Tree) -> Tree:
    return _with(tree, "spec", _claim_spec)


def _template(tree: Tree) -> Tree:
    return _with(tree, "spec", lambda outer: _with(outer, "spec", _claim_spec))


def _claim_spec(spec: Tree) -> Tree:
    return _with(spec, "devices", lambda devices: _with_each(devices, "requests", _request))


def _request(request: Tree) -> Tree:
    flat = {field: request[field] for field in _EXACTLY if request.get(field) is not None}
    if not flat or "exactly" in request:
        return request
    rest = {field: value for field, value in request.items() if field not in _EXACTLY}
    return {**rest, "exactly": flat}


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
        return Unconvertible("it selects devices by class or CEL, which Kubernetes gave up in 1.35")
    return {**tree, "apiVersion": f"{GROUP}/v1beta2"}


_CHANGES: dict[str, Callable[[Tree], Tree]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "ResourceSlice": _slice,
}


def _with(tree: Tree, field: str, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with one field changed, where there is a mapping; what is wrong is for the decoder to tell."""
    value = tree.get(field)
    return {**tree, field: change(value)} if isinstance(value, dict) else tree


def _with_each(tree: Tree, field: str, change: Callable[[Tree], Tree]) -> Tree:
    values = tree.get(field)
    if not isinstance(values, list):
        return tree
    return {**tree, field: [change(value) if isinstance(value, dict) else value for value in values]}
