"""Client identity: tokens and impersonation."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.client import Client, ClientConfig, Endpoint, Impersonation, Material
from plimsoll.client.endpoints import NAMESPACES, SECRETS
from tests.cluster.calls import refused
from tests.cluster.conftest import CONNECTED
from tests.cluster.target import Target

REVIEWS = Endpoint("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)


def ask(config: ClientConfig) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with Client.connect(config) as client:
            answer = await client.create(REVIEWS, {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind})
            user: dict[str, Any] = answer["status"]["userInfo"]
            return user

    return asyncio.run(run())


@pytest.mark.parametrize("target", CONNECTED, indirect=True)
def test_impersonation_of_a_user(target: Target) -> None:
    assert target.config is not None
    who = Impersonation("jane", ("devs", "system:authenticated"), "u-7", {"acme.com/Project": ("a", "b")})
    user = ask(replace(target.config, impersonation=who))
    assert user["username"] == "jane"
    assert user["uid"] == "u-7"
    assert set(user["groups"]) == {"devs", "system:authenticated"}
    assert user["extra"] == {"acme.com/project": ["a", "b"]}


@pytest.mark.parametrize("target", CONNECTED, indirect=True)
def test_permissions_of_an_unknown_user(target: Target) -> None:
    assert target.config is not None
    config = replace(target.config, impersonation=Impersonation("jane"))

    async def run() -> None:
        async with Client.connect(config) as client:
            error = await refused(client.list(SECRETS, "default"))
            assert (error.code, error.reason) == (403, "Forbidden")
            assert 'User "jane" cannot list resource "secrets"' in error.message
            error = await refused(client.create(NAMESPACES, {"metadata": {"name": "x"}}))
            assert error.code == 403

    asyncio.run(run())


@pytest.mark.parametrize("target", CONNECTED, indirect=True)
def test_a_wrong_token(target: Target) -> None:
    assert target.config is not None
    config = replace(target.config, token=Material(b"wrong"))

    async def run() -> None:
        async with Client.connect(config) as client:
            error = await refused(client.list(NAMESPACES))
            assert (error.code, error.reason) == (401, "Unauthorized")

    asyncio.run(run())
