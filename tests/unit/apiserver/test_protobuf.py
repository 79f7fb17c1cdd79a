"""Protobuf encoding: known bytes, round trips of every schema, and rejection of everything else."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.quantity import Number, Quantity
from plimsoll.apiserver.protobuf import decode_body, encode_body, encode_frame, wire
from plimsoll.apiserver.protobuf.decoding import decode_message
from plimsoll.apiserver.protobuf.encoding import encode_message
from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.apiserver.registry.schema import SchemaType, schema_for
from plimsoll.errors import DecodeError, InputError
from tests.sizes import examples
from tests.unit.apiserver.registry.sample_objects import trees_of

SLOW = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)


def schema(kind: str, group: str = "", version: str = "v1") -> SchemaType:
    found = schema_for(group, version, kind)
    assert found is not None
    return found


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    head = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, head) + field(2, raw)


def field(number: int, data: bytes) -> bytes:
    """Encode a length-delimited field with a length of one or two bytes."""
    length = len(data)
    size = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([number << 3 | 2]) + size + data


# -- bytes that are known


def test_a_binding_as_a_scheduler_writes_it() -> None:
    meta = field(1, b"p") + field(2, b"") + field(3, b"ns") + field(5, b"uid-1") + field(8, b"")
    target = field(1, b"Node") + field(2, b"") + field(3, b"n1") + field(4, b"")
    assert decode_body(envelope("v1", "Binding", field(1, meta) + field(2, target))) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-1"},
        "target": {"kind": "Node", "name": "n1"},
    }


def test_a_lease_as_a_node_writes_it() -> None:
    timestamp = b"\x08" + wire.varint(1_700_000_000) + b"\x10" + wire.varint(123_456_789)
    spec = field(1, b"n1") + b"\x10\x28" + field(4, timestamp)
    tree = decode_body(envelope("coordination.k8s.io/v1", "Lease", field(2, spec)))
    assert tree["spec"] == {
        "holderIdentity": "n1",
        "leaseDurationSeconds": 40,
        "renewTime": "2023-11-14T22:13:20.123456Z",
    }
    assert encode_body(tree).startswith(b"k8s\x00\n\x1f\n\x16coordination.k8s.io/v1\x12\x05Lease")


@pytest.mark.parametrize(
    ("raw", "spec"),
    [
        (b"\x20\x00", {"terminationGracePeriodSeconds": 0}),  # a pointer: zero is encoded
        (b"\x58\x00", {}),  # no pointer: a writer in Go always sends it
        (b"\x58\x01", {"hostNetwork": True}),
        (b"\xc8\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", {"priority": -1}),
        (field(10, b""), {}),
        (b"\xba\x01\x04\x0a\x02\x08\x05", {}),  # inside hostAliases, an unknown number of wire type 0
    ],
)
def test_zeros_and_signs(raw: bytes, spec: dict[str, Any]) -> None:
    read = decode_message(raw, schema("Pod").fields["spec"].type)
    assert {name: value for name, value in read.items() if name != "hostAliases"} == spec


def test_fields_that_json_does_not_nest() -> None:
    # emptyDir is number 2 of a message that is number 2 of a volume.
    volume = field(1, b"v") + field(2, field(2, field(1, b"Memory") + field(2, field(1, b"1Gi"))))
    pod = envelope("v1", "Pod", field(2, field(1, volume)))
    read = decode_body(pod)["spec"]["volumes"]
    assert read == [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    assert decode_body(encode_body({"apiVersion": "v1", "kind": "Pod", "spec": {"volumes": read}}))[
        "spec"
    ] == {"volumes": read}


@pytest.mark.parametrize(
    ("kind", "group", "tree"),
    [
        ("Secret", "", {"data": {"a": "aGVsbG8=", "b": ""}, "type": "Opaque"}),
        ("ConfigMap", "", {"data": {"a": "", "b": "ü"}, "immutable": False}),
        ("PodDisruptionBudget", "policy", {"spec": {"minAvailable": "50%", "maxUnavailable": 0}}),
        (
            "SubjectAccessReview",
            "authorization.k8s.io",
            {"spec": {"extra": {"k": ["a", "b"], "none": []}, "groups": ["g"]}},
        ),
        ("ControllerRevision", "apps", {"data": {"any": [1, {"x": None}]}, "revision": 5}),
        (
            "ResourceSlice",
            "resource.k8s.io",
            {
                "spec": {
                    "driver": "d",
                    "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1},
                    "devices": [
                        {
                            "name": "a",
                            "attributes": {"x": {"int": 0}, "y": {"bools": [True, False]}},
                            "capacity": {"m": {"value": "0"}},
                        }
                    ],
                }
            },
        ),
        ("Node", "", {"status": {"capacity": {"cpu": "4"}}}),
        ("DeleteOptions", "", {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "dryRun": ["All"]}),
    ],
)
def test_objects_survive_a_round_trip(kind: str, group: str, tree: dict[str, Any]) -> None:
    whole = {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, **tree}
    assert decode_body(encode_body(whole)) == whole


def test_lists_of_objects() -> None:
    items = [{"metadata": {"name": name}} for name in ("a", "b")]
    tree = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": items}
    assert decode_body(encode_body(tree)) == tree


def test_a_fraction_keeps_its_value() -> None:
    schema = {"openAPIV3Schema": {"maximum": Number("1.5"), "minimum": 2}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    tree = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    read = decode_body(encode_body({**tree, "spec": {"group": "g", "scope": "s", "versions": versions}}))
    assert read["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {
        "maximum": Number("1.5"),
        "minimum": 2,
    }


def test_numbers_packed_into_one_chunk() -> None:
    groups = schema("Pod").fields["spec"].type.fields["securityContext"].type
    packed = field(4, b"\x01\x02\x03")
    assert decode_message(packed, groups) == {"supplementalGroups": [1, 2, 3]}
    assert decode_message(b"\x20\x01\x20\x02", groups) == {"supplementalGroups": [1, 2]}


def test_fields_without_a_number_are_omitted() -> None:
    device = {"name": "a", "nativeResourceMappings": {"cpu": {"accountingPolicy": "Max"}}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    read = decode_body(encode_body({**head, "spec": {"devices": [{**device, "unheard": 1}]}}))
    assert read["spec"]["devices"] == [{"name": "a"}]


def test_quantities_are_encoded_as_strings() -> None:
    tree = {"apiVersion": "v1", "kind": "Node", "status": {"capacity": {"cpu": 4, "memory": Number("1.5")}}}
    capacity = decode_body(encode_body(tree))["status"]["capacity"]
    assert capacity == {"cpu": "4", "memory": str(Quantity.parse("1.5"))}


def test_a_frame_of_a_watch() -> None:
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    frame = encode_frame("ADDED", tree)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    event = dict(wire.read_fields(frame[4:]))
    assert event[1] == b"ADDED"
    assert decode_body(wire.chunk(dict(wire.read_fields(wire.chunk(event[2])))[1])) == tree


# -- invalid input and unsupported values


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00",
        envelope("v1", "Nothing", b""),
        envelope("example.com/v1", "Thing", b""),
        envelope("v1", "Pod", b"\x0a\x05ab"),
        envelope("v1", "Pod", b"\x0b"),
        envelope("v1", "Pod", b"\x00\x01"),
        envelope("v1", "Pod", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        envelope("v1", "Pod", b"\x0a\xff\xff\xff\xff\x0f"),
        envelope("v1", "Pod", b"\x08\x01"),  # metadata as a number
        envelope("v1", "Pod", b"\x12\x02\x22\x00"),  # seconds as a text
        envelope("v1", "Pod", field(1, field(8, b"\x08" + wire.varint(2**62)))),
        envelope("apps/v1", "ControllerRevision", field(2, field(1, b"{"))),
        envelope("v1", "Pod", b"") + field(3, b"gzip"),
        envelope("v1", "Pod", b"") + field(4, b"application/json"),
    ],
)
def test_bodies_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_body(body)


@pytest.mark.parametrize(
    "tree",
    [
        [],
        {},
        {"apiVersion": "v1", "kind": 5},
        {"apiVersion": "v1", "kind": "Nothing"},
        {"apiVersion": "v1", "kind": "Pod", "spec": 5},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": {}}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeSelector": []}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": 5}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"hostNetwork": "x"}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"priority": True}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"priority": 2**70}},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"overhead": {"cpu": []}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "soon"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "2020-01-01T00:00:00"}},
        {"apiVersion": "v1", "kind": "Secret", "data": {"a": "a"}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": Number("1.5")}},
    ],
)
def test_trees_that_cannot_be_encoded(tree: Any) -> None:
    with pytest.raises(DecodeError):
        encode_body(tree)


def test_depth_is_bounded_both_ways() -> None:
    found = schema("CustomResourceDefinition", "apiextensions.k8s.io")
    version = found.fields["spec"].type.fields["versions"].type.item
    assert version is not None
    props = version.fields["schema"].type.fields["openAPIV3Schema"].type
    raw = b""
    tree: dict[str, Any] = {}
    for _ in range(200):  # a schema inside a schema
        raw = wire.put(props.fields["not"].number, raw)
        tree = {"not": tree}
    with pytest.raises(DecodeError, match="deep"):
        decode_message(raw, props)
    with pytest.raises(DecodeError, match="deep"):
        encode_message(tree, props)


# -- properties


@SLOW
@given(st.data())
def test_every_shape_survives_a_round_trip(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(RESOURCES))
    version = data.draw(st.sampled_from(row.versions))
    type = schema(row.kind, row.group, version)
    tree = data.draw(trees_of(type, protobuf_only=True))
    tree = {**tree, "apiVersion": row.api_version(version), "kind": row.kind}
    assert codec.encode(decode_body(encode_body(tree))) == codec.encode(_ordered(tree, type))


def _ordered(tree: Any, type: SchemaType) -> Any:
    """Return a tree with its fields in the order of their numbers, as they are encoded."""
    if isinstance(tree, dict) and type.kind == "object":
        rank = {name: (*known.message_path, known.number) for name, known in type.fields.items()}
        return {
            name: _ordered(tree[name], type.fields[name].type) for name in sorted(tree, key=rank.__getitem__)
        }
    if isinstance(tree, dict) and type.item is not None:
        return {name: _ordered(tree[name], type.item) for name in sorted(tree)}
    if isinstance(tree, list) and type.item is not None:
        return [_ordered(item, type.item) for item in tree]
    return tree


@given(st.binary(max_size=80))
def test_any_bytes_end_in_a_tree_or_a_decode_error(data: bytes) -> None:
    for body in (data, b"k8s\x00" + data, envelope("v1", "Pod", data[:100])):
        with suppress(InputError):
            assert isinstance(decode_body(body), dict)


@SLOW
@given(st.data())
def test_damaged_bytes_end_in_a_tree_or_a_decode_error(data: st.DataObject) -> None:
    tree = data.draw(trees_of(schema("Pod"), protobuf_only=True))
    body = bytearray(encode_body({**tree, "apiVersion": "v1", "kind": "Pod"}))
    for _ in range(3):
        body[data.draw(st.integers(4, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InputError):
        assert isinstance(decode_body(bytes(body)), dict)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive_a_round_trip(number: int) -> None:
    (read,) = wire.read_fields(wire.put_number(3, number))
    assert (read[0], wire.signed(wire.number(read[1]), 64)) == (3, number)
    assert wire.varint(number) == naive_varint(number)


def naive_varint(number: int) -> bytes:
    """Encode seven bits at a time, the last byte without its high bit."""
    digits = []
    rest = number % 2**64
    while True:
        digits.append(rest % 128)
        rest //= 128
        if not rest:
            break
    return bytes([digit + 128 for digit in digits[:-1]] + digits[-1:])


def test_fixed_size_numbers() -> None:
    assert list(wire.read_fields(wire.put_fixed64(2, struct.pack("<d", 1.5)))) == [
        (2, struct.pack("<d", 1.5))
    ]
    assert list(wire.read_fields(b"\x15abcd")) == [(2, b"abcd")]
    for cut in (b"\x11abc", b"\x15ab"):
        with pytest.raises(DecodeError):
            list(wire.read_fields(cut))
