"""Forms of watch events: bookmarks and errors in the form that the client asked for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from plimsoll.apiserver.handlers.watch_format import WatchFormat
from plimsoll.apiserver.protobuf import decode_body
from plimsoll.apiserver.registry.resources import find_resource
from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.status import resource_expired
from tests.coroutines import run_by
from tests.unit.apiserver.build import ADMIN, MAPS, ApiHarness, config_map, run
from tests.waiting import DEADLINE
from tests.watch_frames import PROTOBUF, read_protobuf_frames

WATCH_LIST = [
    ("watch", "1"),
    ("sendInitialEvents", "true"),
    ("allowWatchBookmarks", "true"),
    ("resourceVersionMatch", "NotOlderThan"),
]
PARTIAL = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


async def watch(
    harness: ApiHarness, accept: str, query: Any = WATCH_LIST, path: str = MAPS
) -> tuple[str, bytes]:
    """Return the content type and the bytes up to the end of the initial events."""
    answer = await harness.api.handle(ApiRequest("GET", path, ADMIN, query, {"accept": accept}))
    assert not isinstance(answer.body, bytes), answer.body
    received = b""
    async with asyncio.timeout(DEADLINE):
        async for chunk in answer.body:
            received += chunk
            if b"initial-events-end" in received or b"ERROR" in received:
                break
    await answer.body.aclose()
    return answer.content_type, received


@pytest.mark.parametrize(
    ("parameters", "kind", "version"),
    [
        ("", "ConfigMap", "v1"),
        (f";{PARTIAL}", "PartialObjectMetadata", "meta.k8s.io/v1"),
        (";as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1", "PartialObjectMetadata", "meta.k8s.io/v1beta1"),
    ],
)
@run_by(run)
async def test_bookmarks_have_the_form_of_the_objects(
    harness: ApiHarness, *, parameters: str, kind: str, version: str
) -> None:
    await harness.request("POST", MAPS, config_map())
    media, received = await watch(harness, f"application/json{parameters}")
    added, bookmark = (json.loads(line) for line in received.splitlines())
    assert media == "application/json"
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    for event in (added, bookmark):
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == (kind, version)
    assert bookmark["object"]["metadata"] == {
        "resourceVersion": str(harness.store.revision),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


@run_by(run)
async def test_a_bookmark_of_a_table_is_a_row(harness: ApiHarness) -> None:
    await harness.request("POST", MAPS, config_map())
    _, received = await watch(harness, "application/json;as=Table;g=meta.k8s.io;v=v1")
    added, bookmark = (json.loads(line)["object"] for line in received.splitlines())
    assert added["columnDefinitions"]
    assert (bookmark["kind"], bookmark["columnDefinitions"]) == ("Table", None)
    assert bookmark["metadata"]["resourceVersion"] == str(harness.store.revision)
    (row,) = bookmark["rows"]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize("parameters", ["", ";stream=watch", f";{PARTIAL}"])
@run_by(run)
async def test_a_watch_in_protobuf(harness: ApiHarness, *, parameters: str) -> None:
    await harness.request("POST", MAPS, config_map())
    media, received = await watch(harness, PROTOBUF + parameters)
    assert media == f"{PROTOBUF};stream=watch"
    (added, made), (bookmark, end) = read_protobuf_frames(received)
    assert (added, bookmark) == ("ADDED", "BOOKMARK")
    assert made["kind"] == ("PartialObjectMetadata" if PARTIAL in parameters else "ConfigMap")
    assert made["metadata"]["name"] == "c"
    assert made.get("data") == (None if PARTIAL in parameters else {"a": "1"})
    assert end["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_an_error_in_protobuf_is_a_status() -> None:
    resource = find_resource("", "v1", "pods")
    assert resource is not None
    for render in (None, lambda raw: b"{}"):
        format = WatchFormat(resource, render, PROTOBUF)
        ((type, status),) = read_protobuf_frames(format.encode_error(resource_expired("too old")))
        assert (type, status["kind"], status["code"]) == ("ERROR", "Status", 410)


@pytest.mark.parametrize(
    "accept", ["application/yaml", f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1", "text/plain"]
)
@run_by(run)
async def test_other_forms_are_refused(harness: ApiHarness, *, accept: str) -> None:
    code, status = await harness.request("GET", MAPS, query=WATCH_LIST, accept=accept)
    if isinstance(status, bytes):
        status = yaml.safe_load(status)
    assert (code, status["reason"]) == (406, "NotAcceptable")
    assert f"application/json;stream=watch, {PROTOBUF};stream=watch" in status["message"]


@run_by(run)
async def test_metadata_in_protobuf(harness: ApiHarness) -> None:
    await harness.request("POST", MAPS, config_map())
    _, raw = await harness.request("GET", f"{MAPS}/c", accept=f"{PROTOBUF};{PARTIAL}")
    made = decode_body(raw)
    assert (made["kind"], made["metadata"]["name"]) == ("PartialObjectMetadata", "c")
    listed = PARTIAL.replace("Metadata", "MetadataList")
    _, raw = await harness.request("GET", MAPS, accept=f"{PROTOBUF};{listed}")
    found = decode_body(raw)
    assert found["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["name"] for item in found["items"]] == ["c"]


@run_by(run)
async def test_an_object_is_no_list_and_a_list_no_object(harness: ApiHarness) -> None:
    await harness.request("POST", MAPS, config_map())
    code, status = await harness.request("GET", MAPS, accept=f"application/json;{PARTIAL}")
    assert (code, status["reason"]) == (406, "NotAcceptable")
    listed = PARTIAL.replace("Metadata", "MetadataList")
    code, status = await harness.request("GET", f"{MAPS}/c", accept=f"application/json;{listed}")
    assert (code, status["reason"]) == (406, "NotAcceptable")
