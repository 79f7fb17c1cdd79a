"""Kinds that nothing acts on: new ones are refused, stored ones can still be handled."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.registry.resources import find_resource_by_key
from plimsoll.apiserver.registry.unsupported import REFUSED
from plimsoll.apiserver.storage import ObjectKey
from tests.unit.apiserver.build import ApiHarness, run


def example(key: str) -> tuple[str, dict[str, Any]]:
    row = find_resource_by_key(key)
    assert row is not None
    tree = {"apiVersion": row.api_version(), "kind": row.kind, "metadata": {"name": "x"}}
    return f"/apis/{row.api_version()}/{row.plural}", tree


@pytest.mark.parametrize("key", REFUSED)
def test_extensions_of_the_api_are_refused(key: str) -> None:
    path, tree = example(key)

    async def play(harness: ApiHarness) -> list[tuple[int, Any]]:
        apply = [("fieldManager", "me")]
        return [
            await harness.request("POST", path, tree),
            await harness.request(
                "PATCH", f"{path}/x", tree, query=apply, content_type="application/apply-patch+yaml"
            ),
        ]

    for code, body in run(play):
        assert (code, body["reason"]) == (403, "Forbidden")
        assert body["message"] == f'{key} "x" is forbidden: {REFUSED[key]}'


@pytest.mark.parametrize("key", REFUSED)
def test_extensions_that_are_stored_can_be_read_changed_and_deleted(key: str) -> None:
    path, tree = example(key)

    async def play(harness: ApiHarness) -> list[int]:
        stored = {**tree, "metadata": {"name": "x", "uid": "00000000-0000-4000-8000-0000000000aa"}}
        harness.store.create(ObjectKey(key, "", "x"), stored)
        change = {"metadata": {"labels": {"a": "b"}}}
        return [
            (await harness.request("GET", f"{path}/x"))[0],
            (await harness.request("GET", path))[0],
            (
                await harness.request(
                    "PATCH", f"{path}/x", change, content_type="application/merge-patch+json"
                )
            )[0],
            (await harness.request("DELETE", f"{path}/x"))[0],
        ]

    assert run(play) == [200] * 4
