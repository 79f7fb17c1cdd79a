"""Entries of a kubeconfig: typed fields, inline data or files, and users.

A wrong type, invalid base64, conflicting fields and a missing file are ConfigErrors with the entry and the
field.
"""

from __future__ import annotations

import base64
import binascii
import os
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plimsoll.client.config import ClientConfig, ExecPlugin, Impersonation, Material
from plimsoll.errors import ConfigError

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_INTERACTIVE = ("Never", "IfAvailable", "Always")


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """Body of a cluster, user or context, with its location."""

    body: dict[str, Any]
    where: str
    directory: Path

    def text(self, key: str) -> str:
        value = self.body.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigError(f"{self.where}: {key} must be a string; put it in quotes")
        return value

    def flag(self, key: str) -> bool:
        value = self.body.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}: {key} must be true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.body.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{self.where}: {key} must be a list of strings")
        return tuple(value)

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        return self.directory / text if text else None

    def material(self, key: str) -> Material | None:
        """Return KEY-data, or the file under KEY; at most one of the two may be set."""
        data, file = self.text(f"{key}-data"), self.path(key)
        if data and file is not None:
            raise ConfigError(f"{self.where}: {key} and {key}-data exclude each other; remove one")
        if file is not None:
            if not file.is_file():
                raise ConfigError(f"{self.where}: {key}: {file}: no such file")
            return Material(file=file, origin=f"{self.where}: {key}")
        if not data:
            return None
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"{self.where}: {key}-data is not base64") from None
        return Material(content, origin=f"{self.where}: {key}-data")


def read_user(user: KubeconfigEntry, cluster: KubeconfigEntry, config: ClientConfig) -> ClientConfig:
    """Return the configuration with the user's credentials."""
    config = replace(config, impersonation=_impersonation(user))
    # DIFF: of the old auth-providers kubectl still has `oidc`. test_errors_name_the_field_and_the_fix
    if user.body.get("auth-provider") is not None:
        name = user.body["auth-provider"].get("name") if isinstance(user.body["auth-provider"], dict) else ""
        raise ConfigError(
            f"{user.where}: auth-provider{f' {name!r}' if name else ''} is no longer supported; "
            "use an exec plugin instead, such as the one your cloud's command line installs"
        )
    certificate, key = user.material("client-certificate"), user.material("client-key")
    if certificate is not None and key is None:
        raise ConfigError(f"{user.where}: client-certificate needs a client-key (or client-key-data)")
    token, token_file = user.text("token"), user.path("tokenFile")
    name, password = user.text("username"), user.text("password")
    if token and (name or password):
        raise ConfigError(f"{user.where}: token and username exclude each other; remove one")
    plugin = _exec_plugin(user, cluster)
    if token_file is not None and not token and not token_file.is_file():
        raise ConfigError(f"{user.where}: tokenFile: {token_file}: no such file")
    if config.server.startswith("http:"):
        return config  # as kubectl: credentials are not sent in plain text
    material = None
    if token or token_file is not None:
        material = Material(token.encode() or None, token_file, f"{user.where}: token")
    static = bool(material or name or password or certificate)
    return replace(
        config,
        certificate=certificate,
        key=key if certificate is not None else None,
        token=material,
        basic=(name, password) if name or password else None,
        exec_plugin=None if static else plugin,
    )


def _impersonation(user: KubeconfigEntry) -> Impersonation | None:
    extra = user.body.get("as-user-extra") or {}
    if not isinstance(extra, dict) or not all(
        isinstance(values, list) and all(isinstance(value, str) for value in values)
        for values in extra.values()
    ):
        raise ConfigError(f"{user.where}: as-user-extra must map names to lists of strings")
    name, groups, uid = user.text("as"), user.texts("as-groups"), user.text("as-uid")
    if not name:
        if groups or uid or extra:
            raise ConfigError(f"{user.where}: as-groups, as-uid and as-user-extra require a user (as)")
        return None
    return Impersonation(name, groups, uid, {key: tuple(values) for key, values in extra.items()})


def _exec_plugin(user: KubeconfigEntry, cluster: KubeconfigEntry) -> ExecPlugin | None:
    body = user.body.get("exec")
    if body is None:
        return None
    if not isinstance(body, dict):
        raise ConfigError(f"{user.where}: exec must be a mapping")
    entry = KubeconfigEntry(body, f"{user.where}: exec", user.directory)
    command = entry.text("command")
    if not command:
        raise ConfigError(f"{entry.where}: command is missing; set the program that prints credentials")
    if os.path.basename(command) != command:
        command = str(entry.directory / command)
    version = entry.text("apiVersion")
    if version not in _EXEC_VERSIONS:
        raise ConfigError(
            f"{entry.where}: apiVersion {version!r} is not supported; use {' or '.join(_EXEC_VERSIONS)} "
            "(a newer version of the plugin may be needed)"
        )
    mode = entry.text("interactiveMode")
    if not mode and version == _EXEC_VERSIONS[1]:
        mode = "IfAvailable"
    if mode not in _INTERACTIVE:
        raise ConfigError(f"{entry.where}: interactiveMode must be one of {', '.join(_INTERACTIVE)}")
    return ExecPlugin(
        command=command,
        api_version=version,
        args=entry.texts("args"),
        env=_environment(entry),
        install_hint=printable(entry.text("installHint")),
        provide_cluster_info=entry.flag("provideClusterInfo"),
        interactive_mode=mode,
        cluster_extension=_extension(cluster),
        origin=entry.where,
    )


def _environment(entry: KubeconfigEntry) -> tuple[tuple[str, str], ...]:
    items = entry.body.get("env")
    if items is None:
        return ()
    if not isinstance(items, list):
        raise ConfigError(f"{entry.where}: env must be a list of name and value")
    pairs = []
    for place, item in enumerate(items):
        body = KubeconfigEntry(
            item if isinstance(item, dict) else {}, f"{entry.where}: env[{place}]", entry.directory
        )
        name, value = body.text("name"), body.text("value")
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"{body.where}: name is missing or not a valid variable name")
        pairs.append((name, value))
    return tuple(pairs)


def _extension(cluster: KubeconfigEntry) -> object:
    extensions = cluster.body.get("extensions")
    for item in extensions if isinstance(extensions, list) else ():
        if isinstance(item, dict) and item.get("name") == _EXEC_EXTENSION:
            found: object = item.get("extension")
            return found
    return None


def printable(text: str) -> str:
    """Escape control characters of a text from a file before it is shown on a terminal."""
    return "".join(
        char if char in "\t\n\r" or unicodedata.category(char)[0] != "C" else f"U+{ord(char):04X}"
        for char in text
    )
