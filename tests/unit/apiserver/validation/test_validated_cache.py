"""Cache of validated specs, and reset fields that are not decoded."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation import FieldError, Write, prepare
from plimsoll.apiserver.validation.field_errors import FieldPath, required
from plimsoll.apiserver.validation.pod import strategies
from plimsoll.apiserver.validation.validated_cache import Key, ValidatedCache
from plimsoll.errors import DecodeError
from tests.sizes import examples
from tests.unit.apiserver.validation.damage import damage
from tests.unit.apiserver.validation.full_objects import live_pod, make_pod
from tests.unit.apiserver.validation.objects import (
    NOW,
    allocated,
    claim,
    field_errors,
    pod,
    run,
    running_pod,
    stored,
)

BAD = required(FieldPath("x"))


def key(text: bytes = b"a", gates: Gates | None = None) -> Key:
    return text, b"", gates or Gates.default()


class Counted:
    """Errors that count how often they are iterated."""

    def __init__(self, *errors: FieldError) -> None:
        self.begun = 0
        self._problems = errors

    def __iter__(self) -> Iterator[FieldError]:
        self.begun += 1
        return iter(self._problems)


def test_valid_input_is_not_validated_again() -> None:
    verdicts, check = ValidatedCache(), Counted()
    for _ in range(3):
        assert list(verdicts.validate(key(), check)) == []
    assert check.begun == 1
    assert list(verdicts.validate(key(b"b"), check)) == []
    assert list(verdicts.validate(key(gates=Gates.upstream()), check)) == []
    assert check.begun == 3


def test_input_with_errors_is_validated_each_time() -> None:
    verdicts, check = ValidatedCache(), Counted(BAD, BAD)
    assert list(verdicts.validate(key(), check)) == [BAD, BAD]
    assert next(verdicts.validate(key(), check)) == BAD  # not read to the end
    assert list(verdicts.validate(key(), check)) == [BAD, BAD]
    assert (check.begun, len(verdicts)) == (3, 0)


def test_the_cache_is_bounded() -> None:
    verdicts, check = ValidatedCache(most=3, longest=10), Counted()
    for number in range(20):
        assert list(verdicts.validate(key(b"%d" % number), check)) == []
        assert len(verdicts) <= 3
    before = len(verdicts)
    assert list(verdicts.validate(key(b"x" * 11), check)) == []
    assert len(verdicts) == before


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_the_cache_does_not_change_results(seed: int) -> None:
    chance = random.Random(seed)
    tree = make_pod()
    tree["spec"].pop("ephemeralContainers", None)
    if chance.random() < 0.7:
        tree = {**damage(tree, chance), "kind": "Pod"}

    def judge() -> Any:
        try:
            return run(tree).errors
        except DecodeError as error:
            return str(error)

    remembered = (judge(), judge())
    with patch.object(strategies, "VALIDATED_SPECS", ValidatedCache()):
        assert remembered == (judge(),) * 2


def test_names_of_pods_count_where_volumes_are_named_after_them() -> None:
    claims: Any = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    claims["volumeClaimTemplate"]["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
    tree = pod()
    tree["spec"]["volumes"] = [{"name": "v", "ephemeral": claims}]
    assert field_errors(tree) == []
    tree["metadata"]["name"] = "a" * 253
    assert field_errors(tree) != []


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_identical_stored_parts_equal_their_copies(seed: int) -> None:
    """A part that is the stored one itself is not decoded if it is reset anyway."""
    chance = random.Random(seed)
    make, subresource = chance.choice(
        [(live_pod, "status"), (running_pod, "status"), (live_pod, ""), (allocated, "status"), (claim, "")]
    )
    tree = stored(make())
    operation: Any = "update"
    old = prepare(Write(tree["kind"], operation, tree, NOW, tree, subresource)).tree
    new = damage(old, chance)
    part = "spec" if subresource else "status"
    if part in old:
        new[part] = old[part]
    before = copy.deepcopy(old)

    def write(given: Any) -> Any:
        try:
            return prepare(
                Write(tree["kind"], operation, given, NOW, old, subresource, old_is_canonical=True)
            )
        except DecodeError as error:
            return str(error)

    shared, apart = write(new), write(copy.deepcopy(new))
    assert shared == apart
    assert old == before
    if not isinstance(shared, str):
        assert list(shared.tree) == list(apart.tree)
