"""Probe of stored fields against servers that store, drop or refuse them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from plimsoll.client.client import Client
from plimsoll.client.stored_fields import StoredFields, probe_stored_fields
from plimsoll.client.transport import Reply, Request, ResponseStream
from tests.build import charging_device, device, pod, resource_slice

FIELD = "nodeAllocatableResourceClaimStatuses"
GATES = (
    b"# TYPE kubernetes_feature_enabled gauge\n"
    b'kubernetes_feature_enabled{name="DRANodeAllocatableResources",stage="ALPHA"} 0\n'
    b'kubernetes_feature_enabled{name="DRAConsumableCapacity",stage="BETA"} 1\n'
)


class Server:
    """Transport that answers the status patch, the claim and the metrics as configured."""

    def __init__(
        self,
        patch: Callable[[Any], tuple[int, Any]] = lambda tree: (403, {}),
        claim: Callable[[Any], tuple[int, Any]] = lambda tree: (403, {}),
        metrics: bytes | None = None,
    ) -> None:
        self._patch, self._claim, self._metrics = patch, claim, metrics
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Reply:
        self.requests.append(request)
        if request.path == "/metrics":
            return Reply(200 if self._metrics is not None else 403, {}, self._metrics or b"{}")
        assert dict(request.query)["dryRun"] == "All", "nothing is written"
        assert request.body is not None
        answer = self._patch if request.method == "PATCH" else self._claim
        status, tree = answer(json.loads(request.body))
        return Reply(status, {}, json.dumps(tree).encode())

    def stream(self, request: Request) -> AbstractAsyncContextManager[ResponseStream]:
        raise AssertionError(request)

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        pass


def _invalid(field: str) -> tuple[int, Any]:
    status = {"kind": "Status", "code": 422, "reason": "Invalid", "details": {"causes": [{"field": field}]}}
    return 422, status


def _keeps(tree: Any) -> tuple[int, Any]:
    return 200, tree


def _drops(tree: Any) -> tuple[int, Any]:
    tree.get("status", {}).pop(FIELD, None)
    for request in tree.get("spec", {}).get("devices", {}).get("requests", ()):
        request["exactly"].pop("capacity", None)
    return 200, tree


@pytest.mark.parametrize(
    ("server", "charges", "consumable"),
    [
        (Server(_keeps, _keeps), True, True),
        (Server(_drops, _drops), False, False),
        (Server(lambda tree: _invalid(f"status.{FIELD}[0].resourceClaimName"), _keeps), True, True),
        (Server(lambda tree: _invalid("status.conditions[0]"), _drops), None, False),
        (Server(), None, None),
        (Server(metrics=GATES), False, True),
        (Server(lambda tree: (404, {}), _keeps, GATES), False, True),
    ],
    ids=["stored", "dropped", "refused by name", "refused for more", "forbidden", "metrics", "pod gone"],
)
async def test_probe(server: Server, charges: bool | None, consumable: bool | None) -> None:
    found = await probe_stored_fields(Client(server, attempts=1), [pod("a"), pod("b")])
    assert found == StoredFields(charges, charges, consumable)


async def test_pods_that_have_charges_show_nothing() -> None:
    charged = pod("a", status={FIELD: [{"resourceClaimName": "c", "resources": {"cpu": "1"}}]})
    server = Server(_keeps)
    found = await probe_stored_fields(Client(server, attempts=1), [charged])
    assert found.charges is None
    assert not [each for each in server.requests if each.method == "PATCH"]


async def test_slices_show_mappings_and_amounts() -> None:
    slices = [resource_slice([charging_device("d", cpu="1"), device("shared", shared=True)])]
    found = await probe_stored_fields(Client(Server(), attempts=1), (), slices)
    assert found == StoredFields(None, True, True)
