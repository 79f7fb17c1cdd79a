"""Versions of a kind that differ from the storage version in more than `apiVersion`.

Each has a function for either direction, on JSON trees. They accept any tree, valid or not: what does not
have the expected form is passed on, to be rejected by the checks that follow. Trees are not modified.

In `resource.k8s.io/v1beta1`, a request has the fields of `exactly` itself, and a device has its fields in
`basic`. autoscaling/v1 is in `autoscaling_v1.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from plimsoll.api.resource_versions import EXACTLY_FIELDS, GROUP
from plimsoll.apiserver.handlers import autoscaling_v1

Tree = dict[str, Any]
Convert = Callable[[Tree], Tree]


class VersionShape(NamedTuple):
    """Conversion of a kind between one version and the storage version."""

    from_storage: Convert
    to_storage: Convert


def _map_at(path: tuple[str, ...], convert: Convert) -> Convert:
    """Return a conversion of every object in the list at a path."""

    def apply(tree: Tree, rest: tuple[str, ...] = path) -> Tree:
        value = tree.get(rest[0])
        if len(rest) > 1:
            return {**tree, rest[0]: apply(value, rest[1:])} if isinstance(value, dict) else tree
        if not isinstance(value, list):
            return tree
        return {**tree, rest[0]: [convert(item) if isinstance(item, dict) else item for item in value]}

    return apply


def _flatten_request(request: Tree) -> Tree:
    exactly = request.get("exactly")
    if not isinstance(exactly, dict):
        return {"deviceClassName": "", **request}  # never omitted in this version
    return {name: value for name, value in request.items() if name != "exactly"} | exactly


def _nest_request(request: Tree) -> Tree:
    exactly = {name: value for name in EXACTLY_FIELDS if not _is_unset(name, value := request.get(name))}
    others = {name: request[name] for name in request if name not in (*EXACTLY_FIELDS, "exactly")}
    return {**others, "exactly": exactly} if exactly else others


def _is_unset(name: str, value: Any) -> bool:
    """Report whether a field of a request counts as not given: null, or zero if it is no pointer."""
    return value is None or (name in ("deviceClassName", "allocationMode", "count") and not value)


def _nest_device(device: Tree) -> Tree:
    name = {"name": device["name"]} if "name" in device else {}
    return name | {"basic": {field: value for field, value in device.items() if field != "name"}}


def _flatten_device(device: Tree) -> Tree:
    basic = device.get("basic")
    others = {field: value for field, value in device.items() if field != "basic"}
    return {**others, **basic} if isinstance(basic, dict) else others


def _slice_to_storage(tree: Tree) -> Tree:
    """Convert the devices, and drop the zero values of fields that are pointers in the storage version."""
    tree = _map_at(("spec", "devices"), _flatten_device)(tree)
    spec = tree.get("spec")
    if not isinstance(spec, dict):
        return tree
    dropped = [name for name, zero in (("nodeName", ""), ("allNodes", False)) if spec.get(name) == zero]
    return {**tree, "spec": {name: spec[name] for name in spec if name not in dropped}} if dropped else tree


_REQUESTS = ("spec", "devices", "requests")
_TEMPLATE_REQUESTS = ("spec", "spec", "devices", "requests")

_SHAPES: Mapping[tuple[str, str, str], VersionShape] = {
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): VersionShape(
        autoscaling_v1.to_v1, autoscaling_v1.to_v2
    ),
    (GROUP, "v1beta1", "ResourceClaim"): VersionShape(
        _map_at(_REQUESTS, _flatten_request), _map_at(_REQUESTS, _nest_request)
    ),
    (GROUP, "v1beta1", "ResourceClaimTemplate"): VersionShape(
        _map_at(_TEMPLATE_REQUESTS, _flatten_request), _map_at(_TEMPLATE_REQUESTS, _nest_request)
    ),
    (GROUP, "v1beta1", "ResourceSlice"): VersionShape(
        _map_at(("spec", "devices"), _nest_device), _slice_to_storage
    ),
}


def find_shape(group: str, version: str, kind: str) -> VersionShape | None:
    """Return the conversion of a version; None if it has the shape of the storage version."""
    return _SHAPES.get((group, version, kind))
