"""Garbage input: errors or a DecodeError, nothing else; unknown fields survive."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import view_type
from plimsoll.api.coercion import members, strip_optional
from plimsoll.api.gates import GATES, Gates
from plimsoll.apiserver.validation import FieldError, FieldErrorType, PreparedObject, Write, prepare
from plimsoll.errors import DecodeError
from tests.sizes import examples
from tests.unit.apiserver.validation.damage import damage, find_places, fuzz_for_a_minute
from tests.unit.apiserver.validation.objects import (
    NOW,
    allocated,
    claim,
    class_,
    edit,
    pod,
    running_pod,
    shared_slice,
    stored,
    taint_rule,
    template,
)

CONDITION = {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "2025-01-01T00:00:00Z"}
REPORT = {
    "driver": "gpu.example.com",
    "pool": "node-1",
    "device": "gpu-0",
    "conditions": [CONDITION],
    "data": {"a": 1},
    "networkData": {"ips": ["10.0.0.1/8"]},
}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}


def _rich_slice() -> dict[str, Any]:
    tree = shared_slice({"default": "1", "validRange": {"min": "1", "max": "5", "step": "2"}})
    return edit(
        tree,
        {
            "spec.devices.0.taints": [{"key": "k", "effect": "None"}],
            "spec.devices.0.attributes.list": {"strings": ["a"]},
            "spec.devices.0.bindingConditions": ["a"],
            "spec.devices.0.bindingFailureConditions": ["b"],
            "spec.devices.0.nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "bandwidth"}},
            "spec.devices.1.consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
            "spec.devices.1.nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}},
        },
    )


def _rich_pod() -> dict[str, Any]:
    return running_pod(
        nodeAllocatableResourceClaimStatuses=[
            {"resourceClaimName": "two-gpus", "containers": ["main"], "resources": {"cpu": "4"}}
        ],
        extendedResourceClaimStatus={
            "requestMappings": [
                {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r"}
            ],
            "resourceClaimName": "x",
        },
    )


#: Objects to damage, by (kind, subresource); each has a stored twin.
SEEDS: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {
    ("ResourceSlice", ""): _rich_slice,
    ("ResourceClaim", ""): claim,
    ("ResourceClaim", "status"): lambda: edit(
        allocated(devices=[REPORT], reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}]),
        {"status.allocation.nodeSelector": TERMS},
    ),
    ("ResourceClaimTemplate", ""): template,
    ("DeviceClass", ""): lambda: edit(
        class_(), {"spec.nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"}}
    ),
    ("DeviceTaintRule", ""): taint_rule,
    ("DeviceTaintRule", "status"): lambda: edit(taint_rule(), {"status": {"conditions": [CONDITION]}}),
    ("Pod", ""): pod,
    ("Pod", "status"): _rich_pod,
    ("Pod", "resize"): _rich_pod,
}


def _write(
    tree: Any, kind: str, subresource: str, old: Any, gates: Gates, labels: dict[str, str] | None = None
) -> PreparedObject | None:
    operation: Any = "create" if old is None else "update"
    try:
        return prepare(
            Write(kind, operation, tree, NOW, old, subresource, gates=gates, namespace_labels=labels)
        )
    except DecodeError:
        return None


def _fuzz(seed: int) -> None:
    chance = random.Random(seed)
    kind, subresource = chance.choice(list(SEEDS))
    whole = SEEDS[kind, subresource]()
    old = stored(whole) if subresource or chance.random() < 0.5 else None
    tree = damage(stored(whole) if old is not None else whole, chance)
    if old is not None and chance.random() < 0.2:
        old = damage(old, chance)
    off = [gate.name for gate in GATES if chance.random() < 0.2]
    labels = chance.choice([None, {}, {"resource.kubernetes.io/admin-access": "true"}])
    prepared = _write(tree, kind, subresource, old, Gates.of(dict.fromkeys(off, False)), labels)
    if prepared is not None:
        for error in prepared.errors:
            assert isinstance(error, FieldError)
            assert isinstance(error.type, FieldErrorType)
            assert error.field
            assert error.detail
            str(error)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_objects(seed: int) -> None:
    _fuzz(seed)


@pytest.mark.slow
def test_damaged_objects_for_a_minute() -> None:
    fuzz_for_a_minute(_fuzz)


WORDS = [
    "metadata",
    "spec",
    "status",
    "devices",
    "requests",
    "name",
    "exactly",
    "selectors",
    "cel",
    "expression",
    "attributes",
    "capacity",
    "value",
    "allocation",
    "results",
    "containers",
    "resources",
    "claims",
    "conditions",
    "labels",
    "taints",
]
garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(list(SEEDS)), garbage, garbage, st.booleans())
def test_garbage_trees(endpoint: tuple[str, str], tree: Any, old: Any, update: bool) -> None:
    kind, subresource = endpoint
    before = old if update or subresource else None
    if before is None and subresource:
        before = {}
    _write(tree, kind, subresource, before, Gates.default())


#: What each endpoint takes over from the request; strangers elsewhere go with what they are in.
TAKEN = {"": ("metadata", "spec"), "status": ("metadata", "status"), "resize": ("metadata",)}


def _structures(tree: Any, wanted: Any) -> list[dict[str, Any]]:
    """Yield the objects with fields in a tree, as opposed to maps by name and free-form JSON."""
    wanted = strip_optional(wanted)
    origin = get_origin(wanted)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        inner = [(tree[member.wire], member.type) for member in members(wanted) if member.wire in tree]
        return [tree, *(found for item, type in inner for found in _structures(item, type))]
    if origin is tuple:
        return [found for item in tree for found in _structures(item, get_args(wanted)[0])]
    if origin is dict:
        return [found for item in tree.values() for found in _structures(item, get_args(wanted)[1])]
    return []


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(list(SEEDS)), st.booleans(), st.randoms(use_true_random=False))
def test_unknown_fields_survive(endpoint: tuple[str, str], update: bool, chance: random.Random) -> None:
    kind, subresource = endpoint
    tree = SEEDS[endpoint]()
    old = stored(tree) if update or subresource else None
    tree = stored(tree) if old is not None else tree
    taken = {name: tree[name] for name in TAKEN[subresource] if name in tree}
    holders = [tree, *_structures(taken, view_type(tree["apiVersion"], kind))[1:]]
    chosen = chance.sample(holders, min(3, len(holders)))
    for holder in chosen:
        holder["aFieldFromTheFuture"] = {"kept": [1, None, "x"]}
    prepared = _write(tree, kind, subresource, old, Gates.default())
    assert prepared is not None
    assert sum(key == "aFieldFromTheFuture" for _, key in find_places(prepared.tree)) == len(chosen)
