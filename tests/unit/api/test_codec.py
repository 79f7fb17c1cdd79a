"""Decoding: accepts and refuses what Go does, and errors name the field."""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
import re
from typing import Any, get_origin

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import plimsoll.api
import plimsoll.apiserver.validation
from plimsoll.api import codec
from plimsoll.api.coercion import members, strip_optional
from plimsoll.api.containers import HTTPGetAction, TCPSocketAction
from plimsoll.api.core import Container, Pod
from plimsoll.api.meta import Object, Wire
from plimsoll.api.policy import PodDisruptionBudgetStatus
from plimsoll.api.quantity import Number, Quantity
from plimsoll.api.resource import Device, ResourceClaim, ResourceSlice
from plimsoll.apiserver.registry.schema_view import view_of
from plimsoll.apiserver.validation.generic_kinds.kind_table import KIND_RULES, view_for_kind
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


def test_pointers_distinguish_absent_from_zero() -> None:
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


# -- agreement of the decoders


def find_difference(one: Any, other: Any, path: str = "") -> str:
    """Return the path of the first difference between two views, or ""."""
    if isinstance(one, msgspec.Struct) and type(one) is type(other):
        pairs = [
            (f"{path}.{name}", getattr(one, name), getattr(other, name)) for name in one.__struct_fields__
        ]
    elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(f"{path}[{key}]", one[key], other[key]) for key in one]
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        pairs = [(f"{path}[{n}]", *both) for n, both in enumerate(zip(one, other, strict=True))]
    else:
        return "" if type(one) is type(other) and one == other else f"{path}: {one!r} is not {other!r}"
    return next((found for where, a, b in pairs if (found := find_difference(a, b, where))), "")


def check_agreement(tree: Any, view: type[Wire]) -> Wire:
    """Decode a tree in all three ways, compare and return the result."""
    text = json.dumps(tree)
    careful = codec.convert(codec.decode_tree(text), view)
    assert find_difference(codec.decode(text, view), careful) == ""
    assert find_difference(codec.convert_fast(codec.decode_tree(text), view), careful) == ""
    return careful


# The objects have hundreds of fields: shrinking one takes minutes, and a failure names the field anyway.
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(objects() | objects(nulls=0.05) | objects(nulls=0.4))
def test_convert_fast_agrees_with_convert(case: tuple[type[Wire], dict[str, Any]]) -> None:
    view, tree = case
    check_agreement(tree, view)


def test_a_difference_is_found() -> None:
    pods = [codec.convert({"spec": {"containers": [{"name": name}]}}, Pod) for name in ("a", "b")]
    assert find_difference(pods[0], pods[1]) == ".spec.containers[0].name: 'a' is not 'b'"
    assert find_difference({"a": None}, {"a": ""}) == "[a]: None is not ''"
    assert find_difference((1, 2), (1,)) == ": (1, 2) is not (1,)"
    assert find_difference((1, {"a": pods[0]}), (1, {"a": pods[0]})) == ""


def all_views() -> list[type[Wire]]:
    """Return every public view, with those that validation makes from the schema, in a fixed order."""
    for package in (plimsoll.api, plimsoll.apiserver.validation):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for kind in KIND_RULES:
        view_for_kind(kind)
    found: dict[str, type[Wire]] = {}
    waiting: list[type[Wire]] = [Wire]
    while waiting:
        for view in waiting.pop().__subclasses__():
            if view.__module__.startswith("plimsoll.") and not view.__name__.startswith("_"):
                found[f"{view.__module__}.{view.__qualname__}"] = view
            waiting.append(view)
    return [found[name] for name in sorted(found)]


def test_null_is_the_default_in_every_field_of_every_view() -> None:
    """As in Go: null leaves a field at its zero value; in lists and maps it is the zero value of the item."""
    views = all_views()
    assert {
        Pod,
        HTTPGetAction,
        TCPSocketAction,
        PodDisruptionBudgetStatus,
        view_of("core.v1.ServicePort"),
    } <= set(views)
    for view in views:
        for member in members(view):
            assert check_agreement({member.wire: None}, view) == view(), (view, member.wire)
            origin = get_origin(strip_optional(member.type))
            if origin is tuple:
                check_agreement({member.wire: [None, None]}, view)
            elif origin is dict:
                check_agreement({member.wire: {"a": None}}, view)


# One null at a time: a null that msgspec refuses would send the whole object the careful way.
@pytest.mark.parametrize("place", ["livenessProbe", "startupProbe", "preStop", "postStart"])
@pytest.mark.parametrize("action", ["httpGet", "tcpSocket", "grpc"])
def test_a_null_port_is_port_zero(place: str, action: str) -> None:
    handler = {action: {"port": None}}
    container = {place: handler} if place.endswith("Probe") else {"lifecycle": {place: handler}}
    absent = codec.decode(json.dumps(container).replace('"port": null', ""), Container)
    assert check_agreement(container, Container) == absent
    zero = codec.decode(json.dumps(container).replace("null", "0"), Container)
    assert absent == zero


def test_a_null_in_a_map_of_pointers_stays_null() -> None:
    budget = check_agreement(
        {"disruptedPods": {"a": None, "b": "2026-01-01T00:00:00Z"}}, PodDisruptionBudgetStatus
    )
    assert isinstance(budget, PodDisruptionBudgetStatus)
    assert budget.disrupted_pods == {"a": None, "b": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("port", [0, 8080, -1, 2**31 - 1, "http", ""])
def test_a_port_is_a_number_or_a_name(port: int | str) -> None:
    assert check_agreement({"port": port}, TCPSocketAction) == TCPSocketAction(port=port)


@pytest.mark.parametrize("port", ["2147483648", "1.5", "true", "{}", "[]", "1e3"])
def test_a_port_is_nothing_else(port: str) -> None:
    text = '{"port":' + port + "}"
    wanted = "port: must be a whole number of at most 32 bits or a string, not "
    with pytest.raises(DecodeError, match=wanted):
        codec.decode(text, TCPSocketAction)
    with pytest.raises(DecodeError, match=wanted):
        codec.convert_fast(codec.decode_tree(text), TCPSocketAction)


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
def test_damaged_trees_and_their_text_decode_alike(tree: object, view: type[Wire]) -> None:
    text = json.dumps(tree)
    try:
        decoded = codec.decode(text, view)
    except DecodeError as error:
        with pytest.raises(DecodeError, match=re.escape(str(error))):
            codec.convert_fast(codec.decode_tree(text), view)
    else:
        assert codec.convert_fast(codec.decode_tree(text), view) == decoded


@given(st.binary(max_size=40), st.sampled_from(VIEWS))
def test_bytes_give_a_clear_error_or_an_object(raw: bytes, view: type[Wire]) -> None:
    with contextlib.suppress(DecodeError):
        assert isinstance(codec.decode(raw, view), view)
