"""Lists: items without type, and continue tokens that expire."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from plimsoll.apiserver.handlers.continue_token import CONTINUE_SECONDS, ContinueToken, decode_continue_token
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.apiserver.build import MAPS, PODS, ApiHarness, config_map, pod, run

SLICES = "/apis/resource.k8s.io/{}/resourceslices"
SLICE = {
    "metadata": {"name": "s"},
    "spec": {
        "driver": "a.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
    },
}


@run_by(run)
async def test_items_of_a_list_have_no_type(harness: ApiHarness) -> None:
    _, made = await harness.request("POST", PODS, pod())
    for version in ("v1", "v1beta2"):
        await harness.request("POST", SLICES.format("v1"), SLICE)
        _, listed = await harness.request("GET", SLICES.format(version))
        assert listed["apiVersion"] == f"resource.k8s.io/{version}"
        assert [sorted(item) for item in listed["items"]] == [["metadata", "spec"]]
    _, listed = await harness.request("GET", PODS)
    assert listed["kind"] == "PodList"
    assert [{"apiVersion": "v1", "kind": "Pod", **item} for item in listed["items"]] == [made]
    _, events = await harness.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    assert events["items"] == []


@run_by(run)
async def test_watches_and_single_objects_keep_their_type(harness: ApiHarness) -> None:
    _, made = await harness.request("POST", MAPS, config_map())
    (event,) = await harness.watch(MAPS, 1)
    assert event["object"] == made
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")


def query(**options: str) -> list[tuple[str, str]]:
    return list(options.items())


@run_by(run)
async def test_continue_tokens_expire(harness: ApiHarness) -> None:
    for name in ("a", "b", "c", "d"):
        await harness.request("POST", MAPS, config_map(name))
    _, first = await harness.request("GET", MAPS, query=query(limit="1"))
    token = first["metadata"]["continue"]
    await harness.request("DELETE", f"{MAPS}/c")
    harness.now += timedelta(seconds=CONTINUE_SECONDS - 1)
    _, second = await harness.request("GET", MAPS, query=query(limit="2", **{"continue": token}))
    assert _names(second) == ["b", "c"]  # as the list began
    harness.now += timedelta(seconds=1)
    for old in (token, second["metadata"]["continue"]):
        code, status = await harness.request("GET", MAPS, query=query(**{"continue": old}))
        assert (code, status["reason"]) == (410, "Expired")
    # The error has a token by which the list continues at the current state.
    code, status = await harness.request("GET", MAPS, query=query(**{"continue": token}))
    _, rest = await harness.request("GET", MAPS, query=query(**status["metadata"]))
    assert _names(rest) == ["b", "d"]


def _names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def test_continue_tokens_are_decoded_as_encoded() -> None:
    token = ContinueToken(7, "n", "x", 5)
    assert decode_continue_token(token.encode()) == token


@pytest.mark.parametrize("token", ["", "x", "e30", "bnVsbA", ContinueToken(7, "n", "x", True).encode()])
def test_invalid_continue_tokens(token: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_continue_token(token)
    assert caught.value.code == 400
