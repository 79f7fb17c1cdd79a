"""Kinds that nothing acts on: new ones are refused or get a warning, stored ones can still be handled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import ADMIN
from plimsoll.apiserver.registry.unsupported import REFUSED, WITHOUT_CONTROLLER
from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.storage import ObjectKey
from tests.unit.apiserver.build import ApiHarness, run
from tests.unit.apiserver.registry.resource_keys import RESOURCE_BY_KEY


def example(key: str) -> tuple[str, dict[str, Any]]:
    row = RESOURCE_BY_KEY[key]
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


SPECS: dict[str, dict[str, Any]] = {
    "horizontalpodautoscalers.autoscaling": {
        "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    },
    "ingresses.networking.k8s.io": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}},
    "ipaddresses.networking.k8s.io": {
        "parentRef": {"resource": "services", "name": "s", "namespace": "default"}
    },
    "networkpolicies.networking.k8s.io": {"podSelector": {}},
    "servicecidrs.networking.k8s.io": {"cidrs": ["10.1.0.0/16"]},
}
NAMES = {"ipaddresses.networking.k8s.io": "10.96.0.9"}


@pytest.mark.parametrize("key", WITHOUT_CONTROLLER)
def test_objects_without_a_controller_come_with_a_warning(key: str) -> None:
    row = RESOURCE_BY_KEY[key]
    place = "namespaces/default/" if row.namespaced else ""
    path = f"/apis/{row.api_version()}/{place}{row.plural}"
    name = NAMES.get(key, "x")
    tree = {
        "apiVersion": row.api_version(),
        "kind": row.kind,
        "metadata": {"name": name},
        "spec": SPECS[key],
    }

    async def play(harness: ApiHarness) -> tuple[int, str, bool]:
        created = await harness.api.handle(ApiRequest("POST", path, ADMIN, body=json.dumps(tree).encode()))
        change = {"metadata": {"labels": {"a": "b"}}}
        headers = {"content-type": "application/merge-patch+json"}
        changed = await harness.api.handle(
            ApiRequest("PATCH", f"{path}/{name}", ADMIN, (), headers, json.dumps(change).encode())
        )
        assert changed.status == 200
        return created.status, created.headers["Warning"], "Warning" in changed.headers

    assert run(play) == (201, f'299 - "{WITHOUT_CONTROLLER[key]}"', False)
