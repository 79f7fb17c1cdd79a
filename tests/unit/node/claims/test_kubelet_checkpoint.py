"""Kubelet checkpoint of claims: its encoding, and the errors of a damaged one."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.go_text import quote_json
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.claims.go_syntax import syntax_error
from plimsoll.node.claims.kubelet_checkpoint import (
    KubeletClaim,
    KubeletDevice,
    decode,
    to_prepared,
)
from tests.unit.node.claims.kubelet_files import encode

HEAD = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":'


def wrapped(data: str) -> bytes:
    """Return a file with this content."""
    return f'{{"Data":{json.dumps(data)},"Checksum":{zlib.crc32(data.encode())}}}'.encode()


def test_encoding_equals_the_kubelets_bytes() -> None:
    claims = [
        KubeletClaim(
            uid="u1",
            name='<&>\u2028"\\é',
            namespace="default",
            pods=frozenset({"p2", "p1"}),
            drivers={
                "z.example.com": None,
                "a.example.com": (
                    KubeletDevice("pool", "d0", "share", ("r",), ("v/c=d",)),
                    KubeletDevice("pool", "d1", None, (), None),
                ),
            },
        ),
        KubeletClaim("u2", "b", "default", None, None),
        KubeletClaim("u3", "c", "default", frozenset(), {"x": ()}),
    ]
    data = (
        HEAD
        + r'[{"ClaimUID":"u1","ClaimName":"\u003c\u0026\u003e\u2028\"\\é","Namespace":"default",'
        + '"PodUIDs":{"p1":{},"p2":{}},"DriverState":{"a.example.com":{"Devices":['
        + '{"PoolName":"pool","DeviceName":"d0","ShareID":"share","RequestNames":["r"],'
        + '"CDIDeviceIDs":["v/c=d"]},'
        + '{"PoolName":"pool","DeviceName":"d1","ShareID":null,"RequestNames":[],"CDIDeviceIDs":null}]},'
        + '"z.example.com":{"Devices":null}}},'
        + '{"ClaimUID":"u2","ClaimName":"b","Namespace":"default","PodUIDs":null,"DriverState":null},'
        + '{"ClaimUID":"u3","ClaimName":"c","Namespace":"default","PodUIDs":{},'
        + '"DriverState":{"x":{"Devices":[]}}}]}'
    )
    wanted = f'{{"Data":{quote_json(data)},"Checksum":{zlib.crc32(data.encode())}}}'.encode()
    assert encode(claims) == wanted
    assert decode(wanted).claims == tuple(claims)


@pytest.mark.parametrize(("claims", "checksum"), [(None, 4010664294), ((), 2361995144)])
def test_encoding_of_an_empty_checkpoint(claims: tuple[()] | None, checksum: int) -> None:
    inside = quote_json(f"{HEAD}{'null' if claims is None else '[]'}}}")
    assert encode(claims) == f'{{"Data":{inside},"Checksum":{checksum}}}'.encode()
    assert decode(encode(claims)).claims == claims


def test_strings_are_encoded_as_go_does() -> None:
    assert quote_json('a"\\\b\f\n\r\t\x00\x1f\x7f/é\u2029\U0001f600\ud800') == (
        r'"a\"\\\b\f\n\r\t\u0000\u001f' + "\x7f/é" + r"\u2029" + "\U0001f600" + r'\ufffd"'
    )


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"Data":"', "unexpected end of JSON input"),
        (b'{"Data":"\\', "invalid character ' ' in string escape code"),
        (b"nul", "invalid character ' ' in literal null (expecting 'l')"),
        (b"-", "invalid character ' ' in numeric literal"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"1e+", "invalid character ' ' in exponent of numeric literal"),
        (b"01", "invalid character '1' after top-level value"),
        (b"{} \x00", r"invalid character '\x00' after top-level value"),
        (b"NaN", "invalid character 'N' looking for beginning of value"),
        (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value"),
        (b"{1", "invalid character '1' looking for beginning of object key string"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a"1', "invalid character '1' after object key"),
        (b'{"a":1 2', "invalid character '2' after object key:value pair"),
        (b"[1 2", "invalid character '2' after array element"),
        (b'["\n', r"invalid character '\n' in string literal"),
        (b'["\\q', "invalid character 'q' in string escape code"),
        (b'["\\u12g', r"invalid character 'g' in \u hexadecimal character escape"),
        (b"[" * 100_000, "exceeded max depth"),
        (b'"x"', "json: cannot unmarshal string into Go value of type state.Checkpoint"),
        (b'{"Data":1}', "json: cannot unmarshal number into Go struct field Checkpoint.Data of type string"),
        (
            b'{"Checksum":4294967296}',
            "json: cannot unmarshal number 4294967296 into Go struct field "
            "Checkpoint.Checksum of type uint32",
        ),
        (
            b'{"Checksum":1.0}',
            "json: cannot unmarshal number 1.0 into Go struct field Checkpoint.Checksum of type uint32",
        ),
        (b'{"Data":"{}","Checksum":1}', "checkpoint is corrupted"),
    ],
)
def test_corrupt_checkpoints_are_refused(raw: bytes, error: str) -> None:
    assert decode(raw).error == error


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("", "unexpected end of JSON input"),
        ("[]", "json: cannot unmarshal array into Go value of type state.CheckpointData"),
        (
            '{"kind":1}',
            "json: cannot unmarshal number into Go struct field CheckpointData.TypeMeta.kind of type string",
        ),
        (
            '{"ClaimInfoStateList":[{"ClaimUID":1}]}',
            "json: cannot unmarshal number into Go struct field "
            "ClaimInfoState.ClaimInfoStateList.ClaimUID of type types.UID",
        ),
        (
            '{"ClaimInfoStateList":[{"DriverState":{"d":{"Devices":[{"RequestNames":"x"}]}}}]}',
            "json: cannot unmarshal string into Go struct field "
            "Device.ClaimInfoStateList.DriverState.Devices.RequestNames of type []string",
        ),
        (
            '{"ClaimInfoStateList":[{"PodUIDs":[true]}]}',
            "json: cannot unmarshal array into Go struct field "
            "ClaimInfoState.ClaimInfoStateList.PodUIDs of type sets.Set[string]",
        ),
    ],
)
def test_malformed_content_is_refused(data: str, error: str) -> None:
    decoded = decode(wrapped(data))
    assert (decoded.error, decoded.claims_error, decoded.claims) == ("", error, None)


def test_key_case_unknown_keys_and_duplicates() -> None:
    data = (
        '{"KIND":"x","extra":{},"claiminfostatelist":[{"claimuid":"u","CLAIMNAME":"n","ClaimName":null,'
        '"podUIDs":{"a":{}},"PodUIDs":{"b":null},"more":[1]}]}'
    )
    claim = KubeletClaim(uid="u", name="n", pods=frozenset({"a", "b"}))
    assert decode(wrapped(data)).claims == (claim,)


def test_invalid_unicode_is_replaced() -> None:
    assert decode(wrapped('{"ClaimInfoStateList":[{"ClaimName":"\\ud800x"}]}')).claims == (
        KubeletClaim(name="\ufffdx"),
    )
    data = b'{"ClaimInfoStateList":[{"ClaimName":"\xff"}]}'
    replaced = data.replace(b"\xff", "\ufffd".encode())
    raw = (
        b'{"Data":"'
        + data.replace(b'"', b'\\"')
        + b'","Checksum":'
        + str(zlib.crc32(replaced)).encode()
        + b"}"
    )
    assert decode(raw).claims == (KubeletClaim(name="\ufffd"),)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
DEVICES = st.builds(
    KubeletDevice,
    TEXTS,
    TEXTS,
    st.none() | TEXTS,
    st.none() | st.lists(TEXTS, max_size=2).map(tuple),
    st.none() | st.lists(TEXTS, max_size=2).map(tuple),
)
CLAIMS = st.builds(
    KubeletClaim,
    TEXTS,
    TEXTS,
    TEXTS,
    st.none() | st.frozensets(TEXTS, max_size=3),
    st.none() | st.dictionaries(TEXTS, st.none() | st.lists(DEVICES, max_size=2).map(tuple), max_size=2),
)


@given(st.none() | st.lists(CLAIMS, max_size=3).map(tuple))
def test_a_checkpoint_survives_a_round_trip(claims: tuple[KubeletClaim, ...] | None) -> None:
    raw = encode(claims)
    assert decode(raw).claims == claims
    # Any other reader of JSON finds the same.
    inside = json.loads(json.loads(raw)["Data"])["ClaimInfoStateList"]
    assert (inside is None) == (claims is None)
    for claim, tree in zip(claims or (), inside or (), strict=True):
        assert (tree["ClaimUID"], tree["ClaimName"]) == (claim.uid, claim.name)
        assert tree["PodUIDs"] == (None if claim.pods is None else {key: {} for key in claim.pods})
        assert list(tree["PodUIDs"] or ()) == sorted(claim.pods or ())


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_file_content_is_read_or_refused(raw: bytes) -> None:
    decoded = decode(raw)
    assert decoded.error or decoded.claims_error or decoded.claims is None
    assert decode(wrapped(raw.decode("utf-8", "replace"))).error == ""


PIECES = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"a"',
        '"',
        "\\u00e9",
        "\\",
        "null",
        "true",
        "fals",
        "0",
        "-",
        "1",
        ".5",
        "e3",
        " ",
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join) | st.recursive(st.integers(), st.lists).map(json.dumps))
def test_json_syntax_errors_equal_the_standard_librarys(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert syntax_error(text.encode())
    else:
        assert syntax_error(text.encode()) == ""


def test_conversion_between_kubelet_and_agent_checkpoints() -> None:
    ref = ClaimRef("default", "a", "u")
    device = PreparedDevice("pool", "d", (), ("v/c=d",), "s")
    theirs = KubeletClaim(
        "u",
        "a",
        "default",
        frozenset({"p"}),
        {"x": (KubeletDevice("pool", "d", "s", None, ("v/c=d",)),), "y": None},
    )
    # A kubelet asks every driver again after it was started, and so do we.
    assert to_prepared(theirs) == ClaimInfo(
        ref, frozenset({"p"}), {"x": (device,)}, False, frozenset({"x", "y"})
    )
