"""Content negotiation of responses and request bodies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.handlers.negotiation import decode_body, negotiate
from plimsoll.errors import ApiError
from tests.unit.apiserver.build import refused

PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("header", "media", "table"),
    [
        ("", "application/json", ""),
        ("*/*", "application/json", ""),
        ("text/html, application/*;q=0.8", "application/json", ""),
        (f"{TABLE},application/json", "application/json", "v1"),
        (f"application/json;q=0.1,{TABLE}", "application/json", "v1"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "application/json", ""),
        ("application/yaml", "application/yaml", ""),
        (f"{PROTOBUF},application/json", "application/json", ""),
        (PROTOBUF, PROTOBUF, ""),
        (f"{PROTOBUF};{METADATA},application/json;{METADATA},application/json", PROTOBUF, ""),
        (f"application/json;{METADATA},{PROTOBUF};{METADATA}", "application/json", ""),
    ],
)
def test_the_preferred_media_type_is_chosen(header: str, media: str, table: str) -> None:
    accepted = negotiate(header)
    assert (accepted.media, accepted.table) == (media, table)


@pytest.mark.parametrize(
    "header", ["text/html", "application/cbor", "application/json;q=0", f"{PROTOBUF};as=Table"]
)
def test_no_acceptable_media_type(header: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiate(header)
    assert caught.value.code == 406


def test_streams_are_json() -> None:
    assert negotiate(f"{PROTOBUF},application/json", streams=True).media == "application/json"
    with pytest.raises(ApiError):
        negotiate("application/yaml", streams=True)


@pytest.mark.parametrize(
    ("body", "kind"), [(b'{"a": 1}', "application/json"), (b"a: 1", "application/yaml"), (b'{"a":1}', "")]
)
def test_bodies(body: bytes, kind: str) -> None:
    assert decode_body(body, kind) == {"a": 1}


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"{", "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"a: 1\n---\nb: 2", "application/yaml", 400),
        (b"x", PROTOBUF, 400),
        (b"k8s\x00\xff\xff", PROTOBUF, 400),
        (b"{}", "text/plain", 415),
    ],
)
def test_bad_bodies(body: bytes, kind: str, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        decode_body(body, kind)
    assert caught.value.code == code


@given(st.text(max_size=60))
def test_any_header_is_understood_or_refused(header: str) -> None:
    assert refused(lambda: negotiate(header)) in (0, 406)


@pytest.mark.parametrize("nested", [False, True])
def test_aliases_of_a_body_are_bounded(*, nested: bool) -> None:
    body = b"a: &a0 {x: 1}\n"
    if nested:
        body += b"".join(
            b"b%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 9)
        )
    else:
        body += b"b: [%s]\n" % b", ".join([b"*a0"] * 3000)
    with pytest.raises(ApiError, match="aliases expand to more than 2,500 values") as caught:
        decode_body(body, "application/yaml")
    assert caught.value.code == 400
    few = decode_body(b"a: &a {x: 1}\nb: [*a, *a]\n", "application/yaml")
    assert few == {"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}]}
