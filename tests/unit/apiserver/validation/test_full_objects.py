"""Objects that use every field: valid as they are, and never an unexpected exception when damaged."""

from __future__ import annotations

import copy
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.gates import GATES, Gates
from plimsoll.api.quantity import Number
from plimsoll.apiserver.registry.metadata_view import PartialObjectMetadata
from plimsoll.apiserver.validation import FieldError, Write, prepare
from plimsoll.apiserver.validation.decode import decode_canonical
from plimsoll.apiserver.validation.equality import fields_equal, semantic_equal, trees_equal_as
from plimsoll.apiserver.validation.object_trees import canonicalize, copy_tree
from plimsoll.apiserver.validation.strategies import STRATEGIES
from plimsoll.apiserver.validation.write_context import decode_view
from plimsoll.errors import DecodeError
from tests.sizes import examples
from tests.unit.apiserver.validation.damage import damage, fuzz_for_a_minute
from tests.unit.apiserver.validation.full_objects import OBJECT_ROOT, REQUIRED, live_pod, make_pod, quota
from tests.unit.apiserver.validation.objects import NOW, Tree, field_errors, run, stored

MAKERS = [make for make, _ in OBJECT_ROOT]


def _is_create_fine(tree: Tree) -> bool:
    return "ephemeralContainers" not in tree.get("spec", {})


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_full_objects_are_valid(make: Any) -> None:
    if _is_create_fine(make()):
        assert field_errors(make()) == []


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_an_unchanged_update_changes_nothing(make: Any) -> None:
    tree = make()
    settled = stored(run(tree).tree) if _is_create_fine(tree) else stored(tree)
    first = run(settled, settled)
    assert first.errors == ()
    again = prepare(Write(tree["kind"], "update", first.tree, NOW, first.tree, old_is_canonical=True))
    assert again == first


def _fuzz(seed: int) -> None:
    chance = random.Random(seed)
    make, subresources = chance.choice(OBJECT_ROOT)
    whole = make()
    kind = whole["kind"]
    subresource = chance.choice(subresources)
    old = stored(whole) if subresource or chance.random() < 0.5 else None
    tree = damage(stored(whole) if old is not None else whole, chance)
    if old is not None and chance.random() < 0.2:
        old = damage(old, chance)
    gates = Gates.of({gate.name: False for gate in GATES if chance.random() < 0.2})
    operation: Any = "create" if old is None else "update"
    try:
        prepared = prepare(Write(kind, operation, tree, NOW, old, subresource, gates=gates))
    except DecodeError:
        return
    for error in prepared.errors:
        assert isinstance(error, FieldError)
        assert error.field
        assert error.detail
        str(error)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32))
def test_canonical_old_objects_need_no_decoding(seed: int) -> None:
    chance = random.Random(seed)
    make, subresources = chance.choice(OBJECT_ROOT)
    whole, subresource = make(), chance.choice(subresources)
    kind = whole["kind"]
    old = stored(prepare(Write(kind, "update", stored(whole), NOW, stored(whole))).tree)
    tree = damage(old, chance)
    given = copy.deepcopy((tree, old))
    try:
        slow = prepare(Write(kind, "update", tree, NOW, old, subresource))
    except DecodeError:
        return
    assert prepare(Write(kind, "update", tree, NOW, old, subresource, old_is_canonical=True)) == slow
    try:
        unchanged = (tree, old) == given
    except RecursionError:
        return
    assert unchanged or _holds_no_json(tree)


def _holds_no_json(tree: Any) -> bool:
    """Report whether the tree contains a value that is not equal to its copy."""
    if isinstance(tree, dict):
        return any(map(_holds_no_json, tree.values()))
    if isinstance(tree, list):
        return any(map(_holds_no_json, tree))
    return type(tree) is object or tree != tree


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_full_objects(seed: int) -> None:
    _fuzz(seed)


@pytest.mark.slow
def test_damaged_full_objects_for_a_minute() -> None:
    fuzz_for_a_minute(_fuzz)


# -- the fast way in and the plain way


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 2**32))
def test_fast_and_slow_decoding_agree(seed: int) -> None:
    chance = random.Random(seed)
    make, _ = chance.choice(OBJECT_ROOT)
    tree = make()
    if chance.random() < 0.7:
        tree = damage(tree, chance)
    view = STRATEGIES["create", make()["kind"], ""].view
    try:
        plain = canonicalize(tree, view)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_canonical(tree, view)
        return
    try:
        fast = decode_canonical(tree, view)
    except DecodeError:  # types are checked by the fast path alone
        return
    assert fast == plain
    assert list(fast) == list(plain)


def test_depth_is_counted_in_brackets() -> None:
    view = STRATEGIES["create", "Lease", ""].view
    deep: Any = {}
    for _ in range(140):
        deep = {"a": deep}
    assert decode_canonical({"odd": deep, "text": "]}" * 500, "more": [{}] * 200}, view)["odd"] == deep
    for _ in range(20):
        deep = {"a": deep}
    with pytest.raises(DecodeError, match="deep"):
        decode_canonical({"odd": deep}, view)


# -- comparing trees and comparing views


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32))
def test_trees_are_compared_as_their_views_are(seed: int) -> None:
    chance = random.Random(seed)
    make, _ = chance.choice(OBJECT_ROOT)
    view = STRATEGIES["create", make()["kind"], ""].view
    try:
        old, new = (decode_canonical(damage(make(), chance), view) for _ in range(2))
    except DecodeError:
        return
    first, second = decode_view(old, view), decode_view(new, view)
    if semantic_equal(first, second) != trees_equal_as(view, old, new):
        # They may only differ where a view does not look.
        assert semantic_equal(first, second)
    assert trees_equal_as(view, old, decode_canonical(old, view))


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32))
def test_views_of_one_text_are_the_same(seed: int) -> None:
    chance = random.Random(seed)
    make, _ = chance.choice(OBJECT_ROOT)
    view = STRATEGIES["create", make()["kind"], ""].view
    try:
        old = decode_canonical(make(), view)
        new = decode_canonical(damage(make(), chance) if chance.random() < 0.7 else make(), view)
    except DecodeError:
        return
    first, second = decode_view(old, view), decode_view(new, view)
    assert semantic_equal(first, second) == fields_equal(first, second)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32))
def test_copies_are_equal_and_share_nothing(seed: int) -> None:
    chance = random.Random(seed)
    tree = chance.choice(MAKERS)()
    tree = tree if chance.random() < 0.5 else damage(tree, chance)
    try:
        plain = canonicalize(tree, PartialObjectMetadata)
    except DecodeError:
        return
    plain["odd"] = chance.choice([1.5, 0.0, Number("1.50"), 2**70, "\u00e9", [None, True], {}])
    copied = copy_tree(plain)
    assert copied == plain
    assert [type(value) for value in copied.values()] == [type(value) for value in plain.values()]
    assert not _containers(copied) & _containers(plain)


def _containers(tree: Any) -> set[int]:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    ids = {id(tree)} if isinstance(tree, dict | list) else set()
    return ids.union(*map(_containers, inner))


def test_spec_equality() -> None:
    view = STRATEGIES["create", "Pod", ""].view
    tree = live_pod()
    for spec, equal in (
        ({"hostNetwork": False}, True),
        ({"hostPID": False, "volumes": [], "nodeSelector": {}, "hostname": ""}, True),
        ({"hostUsers": False}, False),
        ({"affinity": {}}, False),
        ({"runtimeClassName": ""}, False),
        ({"overhead": {}}, True),
        ({"future": None}, True),
        ({"future": 0}, False),
    ):
        other = {**tree, "spec": {**tree["spec"], **spec}}
        assert trees_equal_as(view, tree, other) is equal, spec
    one, two = ({**tree, "spec": {"overhead": {"cpu": text}}} for text in ("1", "1000m"))
    assert trees_equal_as(view, one, two)


# -- hostile objects


def test_errors_are_reported_up_to_a_limit() -> None:
    pod = make_pod(containers=[{}] * 50_000)
    start = time.process_time()
    assert len(run(pod).errors) == 1000
    assert time.process_time() - start < 30


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(
            containers=[
                {
                    "name": "main",
                    "image": "x",
                    "volumeMounts": [{"name": "v", "mountPath": f"/{n}"} for n in range(5000)],
                    "volumeDevices": [{"name": f"v{n}", "devicePath": f"/d{n}"} for n in range(5000)],
                }
            ],
            volumes=[{"name": "v"}, *({"name": f"v{n}", "persistentVolumeClaim": {}} for n in range(5000))],
        ),
        make_pod(
            affinity={
                "podAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": "z",
                            "labelSelector": {},
                            "matchLabelKeys": [f"a{n}" for n in range(20000)],
                            "mismatchLabelKeys": [f"b{n}" for n in range(20000)],
                        }
                    ]
                }
            }
        ),
        make_pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}] * 20000),
        make_pod(tolerations=[{"operator": "Exists"}] * 20000),
    ],
    ids=["mounts", "keys", "aliases", "tolerations"],
)
def test_validation_cost_is_linear(pod: Tree) -> None:
    start = time.process_time()
    settled = run(pod).tree
    run(stored(settled), stored(settled))
    assert time.process_time() - start < 30


def test_many_statuses_have_linear_cost() -> None:
    ended = {"terminated": {"exitCode": 1}}
    names = [f"c{number}" for number in range(10_000)]
    old = stored(live_pod())
    old["status"] |= {
        "containerStatuses": [{"name": name, "state": ended} for name in names],
        "ephemeralContainerStatuses": [{"name": name, "state": ended} for name in names],
        "conditions": [{"type": "a/b", "observedGeneration": 1}] * 10_000,
        "podIPs": [{"ip": "10.0.0.2"}] * 10_000,
    }
    start = time.process_time()
    assert run(old, old, "status").tree["status"]["conditions"] == old["status"]["conditions"]
    assert time.process_time() - start < 30


def test_a_quota_of_many_scopes() -> None:
    hard = {f"hugepages-{number}Ki": "1" for number in range(5000)}
    tree = {**quota(), "spec": {"hard": hard, "scopes": ["BestEffort"] * 5000}}
    start = time.process_time()
    assert run(tree).errors
    assert time.process_time() - start < 30
