"""Decoding: what Go takes is taken, what it refuses is refused with the field's name."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.meta import Object, Wire
from plimsoll.api.quantity import Number, Quantity
from plimsoll.api.resource import Device, ResourceClaim, ResourceSlice
from plimsoll.errors import DecodeError
from tests.unit.api.trees import VIEWS, objects


def test_null_means_absent_everywhere() -> None:
    pod = codec.decode(
        '{"metadata":{"creationTimestamp":null},"spec":{"containers":[null,{"name":"a","resources":null}],'
        '"overhead":{"cpu":null},"nodeName":null},"status":null}',
        Pod,
    )
    assert [c.name for c in pod.spec.containers] == ["", "a"]
    assert pod.spec.overhead == {"cpu": Quantity.parse("0")}
    assert pod.spec.node_name == ""


def test_pointers_tell_absent_from_zero() -> None:
    assert codec.decode('{"allNodes":false,"nodeName":""}', Device).all_nodes is False
    assert codec.decode("{}", Device).all_nodes is None
    assert codec.decode('{"spec":{"devices":[]}}', ResourceSlice).spec.devices == ()
    assert codec.decode('{"spec":{}}', ResourceSlice).spec.devices is None


@pytest.mark.parametrize("number", ["1.500", "1.5", "3", "1e3", "0.1234567890123456789"])
def test_quantities_are_numbers_or_strings(number: str) -> None:
    bare = codec.decode('{"cpu":' + number + "}", dict[str, Quantity])["cpu"]
    text = codec.decode('{"cpu":"' + number + '"}', dict[str, Quantity])["cpu"]
    assert bare == text
    assert str(bare) == str(text)


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        ('{"spec":{"containers":5}}', "spec.containers", "must be a list, not the number 5"),
        ('{"spec":{"containers":[{"name":1}]}}', "spec.containers[0].name", "must be a string"),
        ('{"spec":{"overhead":{"cpu":"x"}}}', "spec.overhead[cpu]", "is not a quantity"),
        ('{"spec":{"overhead":{"cpu":true}}}', "spec.overhead[cpu]", "is not a quantity"),
        ('{"spec":{"priority":1.5}}', "spec.priority", "must be a whole number"),
        ('{"spec":{"priority":9223372036854775808}}', "spec.priority", "64 bits"),
        ('{"spec":{"hostNetwork":"yes"}}', "spec.hostNetwork", "must be true or false, not a string"),
        ('{"metadata":{"labels":{"a":{}}}}', "metadata.labels[a]", "must be a string, not an object"),
        ('{"spec":[]}', "spec", "must be an object, not a list"),
        ("[]", "", "must be an object"),
        ('{"spec":', "", "not JSON"),
        ("[" * 100_000, "", "nested too deeply"),
        (b'"\xff"', "", "UTF-8"),
        ("", "", "not JSON"),
    ],
)
def test_errors_name_the_field(document: str | bytes, field: str, text: str) -> None:
    with pytest.raises(DecodeError, match=text) as error:
        codec.decode(document, Pod)
    assert error.value.field == field
    assert str(error.value).startswith(field)


def test_decode_object_picks_the_view() -> None:
    claim = codec.decode_object('{"apiVersion":"resource.k8s.io/v1beta2","kind":"ResourceClaim"}')
    assert isinstance(claim, ResourceClaim)
    assert type(codec.decode_object('{"apiVersion":"v1","kind":"Service"}')) is Object
    with pytest.raises(DecodeError, match="kind"):
        codec.decode_object("{}")


def test_opaque_parameters_keep_their_numbers() -> None:
    document = (
        b'{"spec":{"devices":{"config":[{"opaque":{"parameters":{"ratio":1.50,"n":12345678901234567890}}}]}}}'
    )
    claim = codec.decode(document, ResourceClaim)
    opaque = claim.spec.devices.config[0].opaque
    assert opaque is not None
    assert opaque.parameters == {"ratio": Number("1.50"), "n": 12345678901234567890}
    assert codec.encode(claim) == document


@given(objects())
def test_encoding_reads_back(case: tuple[type[Wire], dict[str, Any]]) -> None:
    view, tree = case
    decoded = codec.decode(json.dumps(tree), view)
    assert codec.decode(codec.encode(decoded), view) == decoded


@given(objects())
def test_the_fast_way_and_the_careful_way_agree(case: tuple[type[Wire], dict[str, Any]]) -> None:
    view, tree = case
    text = json.dumps(tree)
    assert codec.decode(text, view) == codec.convert(codec.decode_tree(text), view)


@given(objects())
def test_a_look_at_a_tree_is_its_text_decoded(case: tuple[type[Wire], dict[str, Any]]) -> None:
    view, tree = case
    text = json.dumps(tree)
    assert codec.look(codec.decode_tree(text), view) == codec.decode(text, view)


garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "status", "metadata", "devices", "containers", "name", "results", "labels"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(garbage, st.sampled_from(VIEWS))
def test_garbage_gives_a_clear_error_or_an_object(tree: object, view: type[Wire]) -> None:
    with contextlib.suppress(DecodeError):
        assert isinstance(codec.decode(json.dumps(tree), view), view)


@given(garbage, st.sampled_from(VIEWS))
def test_a_look_at_garbage_is_that_of_its_text(tree: object, view: type[Wire]) -> None:
    text = json.dumps(tree)
    try:
        decoded = codec.decode(text, view)
    except DecodeError as error:
        with pytest.raises(DecodeError, match=re.escape(str(error))):
            codec.look(codec.decode_tree(text), view)
    else:
        assert codec.look(codec.decode_tree(text), view) == decoded


@given(st.binary(max_size=40), st.sampled_from(VIEWS))
def test_bytes_give_a_clear_error_or_an_object(raw: bytes, view: type[Wire]) -> None:
    with contextlib.suppress(DecodeError):
        assert isinstance(codec.decode(raw, view), view)
