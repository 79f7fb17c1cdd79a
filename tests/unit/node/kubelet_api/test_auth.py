"""Authentication and authorization of the kubelet API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from plimsoll.client.delegated_auth import ALLOWED_SECONDS
from plimsoll.client.endpoints import TOKEN_REVIEWS, Endpoint
from plimsoll.errors import ApiError
from plimsoll.node.kubelet_api.auth import KubeletAuth, subresources_of

CERTIFICATE = {"subject": ((("organizationName", "system:masters"),), (("commonName", "server"),))}


class Reviews:
    """API server that knows one token, and lets `allowed` users do everything."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.calls: list[Mapping[str, Any]] = []
        self.error: ApiError | None = None

    async def create(self, endpoint: Endpoint, tree: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append(tree["spec"])
        if self.error is not None:
            raise self.error
        if endpoint is TOKEN_REVIEWS:
            good = tree["spec"]["token"] == "good"
            return {"status": {"authenticated": good, "user": {"username": "bob", "groups": ["g"]}}}
        return {"status": {"allowed": tree["spec"]["user"] in self.allowed}}


async def test_certificates_and_tokens_are_reviewed_once() -> None:
    now = 0.0
    reviews = Reviews("server", "bob")
    auth = KubeletAuth(reviews, "n1", lambda: now)
    for _ in range(3):
        assert await auth.check("POST", "/exec/ns/p/c", CERTIFICATE, "") is None
        assert await auth.check("GET", "/containerLogs/ns/p/c", None, "Bearer good") is None
    assert len(reviews.calls) == 3
    first = reviews.calls[0]
    assert first["groups"] == ["system:masters", "system:authenticated"]
    assert first["resourceAttributes"] == {
        "verb": "create",
        "version": "v1",
        "resource": "nodes",
        "subresource": "proxy",
        "name": "n1",
    }
    now = ALLOWED_SECONDS + 1
    assert await auth.check("POST", "/exec/ns/p/c", CERTIFICATE, "") is None
    assert len(reviews.calls) == 4


@pytest.mark.parametrize("header", ["", "Bearer bad", "Basic good", "Bearer ", "Bearer " + "x" * 20_000])
def test_requests_without_valid_credentials_are_refused(header: str) -> None:
    refusal = asyncio.run(KubeletAuth(Reviews("bob"), "n1").check("GET", "/pods", None, header))
    assert refusal is not None
    assert refusal.code == 401


def test_users_without_the_right_are_refused_and_so_is_everybody_without_an_api_server() -> None:
    reviews = Reviews()
    auth = KubeletAuth(reviews, "n1")
    refusal = asyncio.run(auth.check("GET", "/pods", CERTIFICATE, ""))
    assert refusal is not None
    assert refusal.code == 403
    assert "subresource(s)=[pods proxy]" in refusal.message
    reviews.error = ApiError(503, "ServiceUnavailable", "down")
    refusal = asyncio.run(auth.check("GET", "/stats/summary", CERTIFICATE, ""))
    assert refusal is not None
    assert refusal.code == 503


def test_subresources_of_paths() -> None:
    assert subresources_of("/stats/summary") == ("stats",)
    assert subresources_of("/pods") == ("pods", "proxy")
    assert subresources_of("/exec/a/b/c") == ("proxy",)
    assert subresources_of("/statsx/summary") == ("proxy",)
