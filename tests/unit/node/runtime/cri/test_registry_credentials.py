"""Credentials of image registries from pull secrets."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.runtime.cri.images import tagged_name
from plimsoll.node.runtime.cri.registry_credentials import (
    RegistryCredential,
    image_repository,
    parse_secret,
    select_credentials,
)


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(auths: dict[str, Any]) -> dict[str, str]:
    return {".dockerconfigjson": encode(json.dumps({"auths": auths}))}


def test_entries_of_secrets() -> None:
    found = parse_secret(
        secret(
            {
                "https://index.docker.io/v1/": {"auth": encode("me:pass:word")},
                "ghcr.io": {"username": "u", "password": "p"},
                "empty.example.com": {},
                "broken.example.com": {"auth": "%"},
            }
        )
    )
    assert found == [
        RegistryCredential("index.docker.io", "me", "pass:word"),
        RegistryCredential("ghcr.io", "u", "p"),
    ]
    old = parse_secret({".dockercfg": encode(json.dumps({"quay.io": {"auth": encode("a:b")}}))})
    assert old == [RegistryCredential("quay.io", "a", "b")]


@given(st.dictionaries(st.sampled_from([".dockercfg", ".dockerconfigjson", "x"]), st.text()))
def test_any_secret_is_accepted(data: dict[str, str]) -> None:
    parse_secret(data)
    parse_secret({key: encode(text) for key, text in data.items()})


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1.36", "docker.io/library/busybox"),
        ("me/app@sha256:abc", "docker.io/me/app"),
        ("index.docker.io/me/app", "docker.io/me/app"),
        ("localhost/app", "localhost/app"),
        ("localhost:5000/app:1", "localhost:5000/app"),
        ("ghcr.io/org/app:1@sha256:abc", "ghcr.io/org/app"),
    ],
)
def test_repositories(image: str, repository: str) -> None:
    assert image_repository(image) == repository


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "busybox:latest"),
        ("busybox:1", "busybox:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("app@sha256:abc", "app@sha256:abc"),
    ],
)
def test_default_tags(image: str, name: str) -> None:
    assert tagged_name(image) == name


@pytest.mark.parametrize(
    ("registry", "image", "matches"),
    [
        ("index.docker.io", "busybox", True),
        ("docker.io", "me/app", True),
        ("*.example.com", "r.example.com/app", True),
        ("*.example.com", "a.r.example.com/app", False),
        ("example.com", "r.example.com/app", False),
        ("example.com:5000", "example.com/app", False),
        ("example.com:5000", "example.com:5000/app", True),
        ("example.com/org", "example.com/org/app", True),
        ("example.com/org", "example.com/other/app", False),
    ],
)
def test_matching(registry: str, image: str, matches: bool) -> None:
    credential = RegistryCredential(registry, "u", "p")
    assert select_credentials([credential], image) == ([credential] if matches else [])


def test_the_most_specific_credential_is_first() -> None:
    broad, narrow = RegistryCredential("e.com", "u", "p"), RegistryCredential("e.com/org", "v", "p")
    assert select_credentials([broad, narrow, broad], "e.com/org/app") == [narrow, broad]
