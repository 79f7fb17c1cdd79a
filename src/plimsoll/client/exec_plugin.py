"""Exec credential plugins of kubeconfig (client.authentication.k8s.io v1 and v1beta1).

Guarantees: a plugin runs once for many waiting requests, and again only when its credentials expire or are
rejected; every failure is a ConfigError with the program's output and its installation hint.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.timestamps import parse_datetime
from plimsoll.client.config import ClientConfig, ExecPlugin
from plimsoll.errors import ConfigError, DecodeError

#: Timeout of a program that runs without a terminal.
TIMEOUT_SECONDS = 120.0
_MOST_OUTPUT = 4 << 20


@dataclass(frozen=True, slots=True)
class ExecCredentials:
    """Credentials that a plugin returned."""

    token: str = field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    expires: datetime | None = None


class ExecSource:
    """Source of credentials from one plugin; caches them until they expire."""

    def __init__(
        self,
        plugin: ExecPlugin,
        config: ClientConfig,
        *,
        authority: Callable[[], bytes] = lambda: b"",
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        is_terminal: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty(),
    ) -> None:
        self._plugin = plugin
        self._config = config
        self._authority = authority
        self._wall = wall
        self._is_terminal = is_terminal
        self._lock = asyncio.Lock()
        self._known: ExecCredentials | None = None

    async def get(self) -> ExecCredentials:
        known = self._known
        if known is not None and not self._expired(known):
            return known
        async with self._lock:
            if self._known is None or self._expired(self._known):
                self._known = await self._run()
            return self._known

    async def renew(self, refused: ExecCredentials | None) -> ExecCredentials:
        """Run the plugin again after a 401, unless the credentials were renewed since."""
        async with self._lock:
            if self._known is None or self._known is refused:
                self._known = await self._run()
            return self._known

    def _expired(self, known: ExecCredentials) -> bool:
        return known.expires is not None and self._wall() > known.expires

    async def _run(self) -> ExecCredentials:
        plugin = self._plugin
        interactive = plugin.interactive_mode != "Never" and self._is_terminal()
        if plugin.interactive_mode == "Always" and not interactive:
            raise ConfigError(
                f"{plugin.origin}: {plugin.command} is interactive (interactiveMode: Always), but standard "
                "input is not a terminal"
            )
        environment = {**os.environ, **dict(plugin.env)}
        environment["KUBERNETES_EXEC_INFO"] = codec.encode(self._information(interactive)).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                _find_program(plugin.command),
                *plugin.args,
                env=environment,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
            )
        except FileNotFoundError:
            raise ConfigError(f"{plugin.origin}: {plugin.command}: no such program{self._hint()}") from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{plugin.origin}: {plugin.command}: {error}{self._hint()}") from None
        try:
            async with asyncio.timeout(None if interactive else TIMEOUT_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            raise ConfigError(
                f"{plugin.origin}: {plugin.command} timed out after {TIMEOUT_SECONDS:g} s"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            words = " ".join((errors or b"")[-1000:].decode("utf-8", "replace").split())
            raise ConfigError(
                f"{plugin.origin}: {plugin.command} failed with status {process.returncode}"
                f"{f': {words}' if words else ''}{self._hint()}"
            )
        return self._read(output)

    def _information(self, interactive: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._plugin.provide_cluster_info:
            config = self._config
            cluster: dict[str, Any] = {"server": config.server}
            if config.tls_server_name:
                cluster["tls-server-name"] = config.tls_server_name
            if config.insecure:
                cluster["insecure-skip-tls-verify"] = True
            if authority := self._authority():
                cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
            if config.proxy:
                cluster["proxy-url"] = config.proxy
            if config.compression is False:
                cluster["disable-compression"] = True
            cluster["config"] = self._plugin.cluster_extension
            spec["cluster"] = cluster
        return {"kind": "ExecCredential", "apiVersion": self._plugin.api_version, "spec": spec}

    def _read(self, output: bytes) -> ExecCredentials:
        who = f"{self._plugin.origin}: {self._plugin.command}"
        if len(output) > _MOST_OUTPUT:
            raise ConfigError(f"{who} printed more than {_MOST_OUTPUT >> 20} MiB")
        try:
            tree = codec.decode_tree(output)
        except DecodeError as error:
            raise ConfigError(f"{who} did not print an ExecCredential: {error}") from None
        if not isinstance(tree, dict) or tree.get("kind") != "ExecCredential":
            raise ConfigError(f"{who} did not print an ExecCredential")
        if tree.get("apiVersion") != self._plugin.api_version:
            raise ConfigError(
                f"{who} printed {tree.get('apiVersion')}, but {self._plugin.api_version} is configured; "
                "change apiVersion in the kubeconfig, or update the plugin"
            )
        status = tree.get("status")
        if not isinstance(status, dict):
            raise ConfigError(f"{who} printed no status")
        names = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
        values = [status.get(name) or "" for name in names]
        if not all(isinstance(value, str) for value in values):
            raise ConfigError(f"{who} printed a status whose {', '.join(names)} are not all strings")
        token, certificate, key, expires = values
        if bool(certificate) != bool(key):
            raise ConfigError(f"{who} printed a certificate or a key, but not both")
        if not token and not certificate:
            raise ConfigError(f"{who} printed neither a token nor a certificate")
        return ExecCredentials(token, certificate.encode(), key.encode(), self._time(expires, who))

    @staticmethod
    def _time(text: str, who: str) -> datetime | None:
        if not text:
            return None
        when = parse_datetime(text)
        if when is None:
            raise ConfigError(f"{who} printed an invalid expirationTimestamp: {text!r}")
        return when

    def _hint(self) -> str:
        return f"\n{self._plugin.install_hint}" if self._plugin.install_hint else ""


def _find_program(command: str) -> str:
    """Return what to start; on Windows the file, with one of the extensions of programs, as kubectl does.

    Windows itself would find only those that end in .exe, and those in the current directory first.
    """
    if sys.platform == "win32":
        found = shutil.which(command)
        if found is None or not os.path.isabs(found):
            raise FileNotFoundError(command)
        return found
    return command
