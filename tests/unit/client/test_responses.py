"""Response bytes parsed into lists, events and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client import responses as answers
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.responses import read_error, read_frame, read_page, read_tree, split_lines
from plimsoll.errors import ApiError


def test_list_items_get_apiversion_and_kind() -> None:
    body = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": "next", "remainingItemCount": 3},
        "items": [{"metadata": {"name": "a"}, "odd": 1.50}, {"kind": "Pod", "apiVersion": "v1"}, {}],
    }
    page = read_page(json.dumps(body, indent=2).encode(), PODS)
    assert (page.revision, page.more) == ("7", "next")
    assert [json.loads(item) for item in page.items] == [
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "odd": 1.5},
        {"kind": "Pod", "apiVersion": "v1"},
        {"kind": "Pod", "apiVersion": "v1"},
    ]
    claims = read_page(b'{"kind":"ResourceClaimList","metadata":{},"items":[{"spec":{}}]}', RESOURCE_CLAIMS)
    assert claims.items == [b'{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","spec":{}}']
    assert read_page(b'{"kind":"PodList","items":null}', PODS).items == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Welcome</html>",
        b'{"kind":"PodList","items":{}}',
        b'{"kind":"PodList","items":[1]}',
        b"[]",
        b'{"kind":"Pod"}',
        b'{"kind":"PodList","items":[{"metadata":',
        b"\xff\xff",
    ],
)
def test_responses_that_are_not_kubernetes(body: bytes) -> None:
    for read in (lambda raw: read_page(raw, PODS), read_frame):
        with pytest.raises(ApiError) as caught:
            read(body)
        assert caught.value.reason == "InvalidResponse"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"x"', b"{"])
def test_bodies_that_are_not_json_objects(body: bytes) -> None:
    with pytest.raises(ApiError, match="check the server's address"):
        read_tree(body)


def test_events() -> None:
    event = read_frame(b'{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"9"},"x": 1e3}}')
    assert event == ("MODIFIED", b'{"metadata":{"resourceVersion":"9"},"x": 1e3}', "9")
    with pytest.raises(ApiError, match="too old") as caught:
        read_frame(
            b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
        )
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_a_status_becomes_an_error() -> None:
    status = {
        "kind": "Status",
        "code": 422,
        "reason": "Invalid",
        "message": "x is invalid",
        "details": {"name": "x", "causes": []},
    }
    error = read_error(422, {"retry-after": "1"}, json.dumps(status).encode())
    assert (error.code, error.reason, str(error)) == (422, "Invalid", "x is invalid")
    assert error.details == {"name": "x", "causes": []}
    assert error.headers == {"retry-after": "1"}


@pytest.mark.parametrize(
    ("status", "body", "code", "reason", "message"),
    [
        (502, b"<h1>Bad\n Gateway</h1>", 502, "Unknown", "the server returned 502: <h1>Bad Gateway</h1>"),
        (401, b"", 401, "Unauthorized", "the server returned 401"),
        (403, b'{"error":"denied"}', 403, "Forbidden", 'the server returned 403: {"error":"denied"}'),
        (404, b'{"kind":"Status"}', 404, "NotFound", "the server returned 404"),
        (500, b'{"kind":"Status","code":"x","details":[],"reason":"Odd"}', 500, "Odd", "Odd"),
        (418, b"\xff\xfe", 418, "Unknown", "the server returned 418: \ufffd\ufffd"),
        (0, b"{}", 500, "Unknown", "the server returned 0: {}"),
    ],
)
def test_errors_without_a_status(status: int, body: bytes, code: int, reason: str, message: str) -> None:
    error = read_error(status, {}, body)
    assert (error.code, error.reason, error.message) == (code, reason, message)


def split(chunks: list[bytes]) -> list[bytes]:
    async def feed() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def run() -> list[bytes]:
        return [line async for line in split_lines(feed())]

    return asyncio.run(run())


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"\n", b"a\nb", b"\n\n"]), max_size=12))
def test_lines_are_split_however_they_are_chunked(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    *complete, last = whole.split(b"\n")
    assert split(chunks) == [line for line in complete if line] + ([last.strip()] if last.strip() else [])


def test_lines_have_a_maximum_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_FRAME", 100)
    assert split([b"x" * 60, b"y" * 30 + b"\n", b"z" * 100]) == [b"x" * 60 + b"y" * 30, b"z" * 100]
    with pytest.raises(ApiError, match="longer than"):
        split([b"x" * 60, b"y" * 60])


trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


fields = st.dictionaries(
    st.text(max_size=5).filter(lambda key: key not in ("kind", "apiVersion")), trees, max_size=3
)


@given(st.lists(fields, max_size=3))
def test_items_keep_every_field(items: list[dict[str, Any]]) -> None:
    body = json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": items}).encode()
    found = [json.loads(raw) for raw in read_page(body, PODS).items]
    assert found == [{"kind": "Pod", "apiVersion": "v1", **item} for item in items]
