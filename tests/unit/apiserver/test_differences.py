"""Tests of deliberate differences from kube-apiserver; see docs/compat.md."""

from __future__ import annotations

from tests.coroutines import run_by
from tests.unit.apiserver.build import MAPS, PODS, ApiHarness, config_map, run


@run_by(run)
async def test_a_watch_from_the_future(harness: ApiHarness) -> None:
    query = [("watch", "1"), ("resourceVersion", str(harness.store.revision + 1))]
    code, status = await harness.request("GET", PODS, query=query)
    assert (code, status["reason"]) == (504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@run_by(run)
async def test_invalid_resource_versions_are_refused(harness: ApiHarness) -> None:
    assert (await harness.request("POST", MAPS, config_map(resourceVersion="5")))[0] == 400
    await harness.request("POST", MAPS, config_map())
    assert (await harness.request("PUT", f"{MAPS}/c", config_map(resourceVersion="abc")))[0] == 400
    for query in ([("resourceVersion", "abc")], [("watch", "1"), ("resourceVersion", "abc")]):
        assert (await harness.request("GET", MAPS, query=query))[0] == 400
