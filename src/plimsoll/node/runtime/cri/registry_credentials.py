"""Credentials of image registries from pull secrets, selected as the kubelet's keyring selects them. Pure.

An entry of a secret matches an image by host, where `*` stands for one part of the name, by port and by the
beginning of its path; more specific entries are tried first.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from plimsoll.common.json_tree import branch, text
from plimsoll.protocols.messages import cri

DOCKER_CONFIG_JSON, DOCKER_CONFIG = ".dockerconfigjson", ".dockercfg"
_DEFAULT_REGISTRY = "docker.io"
_DEFAULT_KEYS = ("index.docker.io", "docker.io")


@dataclass(frozen=True, slots=True)
class RegistryCredential:
    """Credential for the images of a registry, or below a path of it."""

    registry: str  #: HOST[:PORT][/PATH]
    username: str
    password: str

    def auth(self) -> cri.AuthConfig:
        return cri.AuthConfig(username=self.username, password=self.password)


def parse_secret(data: Mapping[str, Any]) -> list[RegistryCredential]:
    """Read the `data` of a pull secret; entries that cannot be read are skipped."""
    entries: dict[str, Any] = {}
    for key in (DOCKER_CONFIG, DOCKER_CONFIG_JSON):
        try:
            tree = json.loads(base64.b64decode(text(data, key), validate=True) or b"{}")
        except (binascii.Error, ValueError, RecursionError):
            continue
        entries |= branch(tree, "auths") if key == DOCKER_CONFIG_JSON else branch({"tree": tree}, "tree")
    found = []
    for registry, entry in entries.items():
        username, password = text(entry, "username"), text(entry, "password")
        try:
            decoded = base64.b64decode(text(entry, "auth"), validate=True).decode()
        except (binascii.Error, ValueError):
            decoded = ""
        if ":" in decoded:
            username, _, password = decoded.partition(":")
        if username or password:
            found.append(RegistryCredential(_normalize(registry), username, password))
    return found


def _normalize(registry: str) -> str:
    """Return HOST[:PORT][/PATH] of a key, which may be a URL; the API version is not a path."""
    parts = urlsplit(registry if "://" in registry else f"https://{registry}")
    path = parts.path.rstrip("/")
    return parts.netloc + ("" if path in ("/v1", "/v2") else path)


def image_repository(image: str) -> str:
    """Return HOST[:PORT]/PATH of an image, without its tag and digest."""
    name = image.partition("@")[0]
    head, _, last = name.rpartition("/")
    name = f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        return f"{_DEFAULT_REGISTRY}/{name if slash else f'library/{name}'}"
    return f"{_DEFAULT_REGISTRY}/{path}" if host in _DEFAULT_KEYS else name


def select_credentials(credentials: Iterable[RegistryCredential], image: str) -> list[RegistryCredential]:
    """Return the credentials for an image, the most specific first."""
    repository = image_repository(image)
    matching = [each for each in dict.fromkeys(credentials) if _matches(each.registry, repository)]
    return sorted(matching, key=lambda each: each.registry, reverse=True)


def _matches(registry: str, repository: str) -> bool:
    host, _, path = registry.partition("/")
    own_host, _, own_path = repository.partition("/")
    if host in _DEFAULT_KEYS:
        host = _DEFAULT_REGISTRY
    host, _, port = host.partition(":")
    own_host, _, own_port = own_host.partition(":")
    parts, own_parts = host.split("."), own_host.split(".")
    return (
        len(parts) == len(own_parts)
        and all(map(fnmatchcase, own_parts, parts))
        and port == own_port
        and own_path.startswith(path)
    )
