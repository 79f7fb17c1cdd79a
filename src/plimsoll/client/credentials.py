"""Credentials of the client: headers and TLS contexts, renewed when files change.

Guarantees: token and certificate files are read again when they change, and the old content is used until a
renewal is complete; credentials of a plugin are used until they expire; inline secrets are on disk only while
the TLS library reads them, readable by this user only.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from plimsoll.client.config import ClientConfig, Material
from plimsoll.client.exec_plugin import ExecCredentials, ExecSource
from plimsoll.errors import ConfigError

_log = logging.getLogger("plimsoll.client")
#: Interval at which files are checked for changes.
_LOOK_SECONDS = 1.0


class ClientCredentials:
    """Credentials of one client."""

    def __init__(self, config: ClientConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._token = None if config.token is None else Watched(config.token, clock, secret=True)
        self._files = [
            Watched(material, clock)
            for material in (config.authority, config.certificate, config.key)
            if material is not None
        ]
        self._exec: ExecSource | None = None
        if config.exec_plugin is not None:
            self._exec = ExecSource(config.exec_plugin, config, authority=self._authority)
        self._used: ExecCredentials | None = None
        self._context: ssl.SSLContext | None = None
        self._contents: tuple[bytes, ...] = ()
        self._lock = asyncio.Lock()
        self._fixed = _impersonation_headers(config)

    async def headers(self) -> list[tuple[str, str]]:
        """Return the authentication headers; some may occur several times."""
        return [*self._authorization(await self._exec_credentials()), *self._fixed]

    async def tls(self) -> ssl.SSLContext:
        """Return the TLS context; a new one after a renewal, so that earlier connections are not reused."""
        given = await self._exec_credentials()
        extra = (given.certificate, given.key) if given is not None else ()
        contents = (*(watched.read() for watched in self._files), *extra)
        if self._context is None or contents != self._contents:
            async with self._lock:
                try:
                    self._context = await asyncio.to_thread(self._make, given)
                except ConfigError as error:
                    if self._context is None:
                        raise
                    _log.warning("keeping the old certificates: %s", error)
                self._contents = contents
        return self._context

    async def renew(self) -> bool:
        """Renew after a 401; return whether there are new credentials."""
        if self._token is not None:
            return self._token.renew()
        if self._exec is not None:
            refused = self._used
            return await self._exec.renew(refused) != refused
        return False

    async def _exec_credentials(self) -> ExecCredentials | None:
        if self._exec is None:
            return None
        self._used = await self._exec.get()
        return self._used

    def _authorization(self, given: ExecCredentials | None) -> list[tuple[str, str]]:
        if self._token is not None:
            return [("Authorization", f"Bearer {self._token.read().decode()}")]
        if self._config.basic is not None:
            pair = base64.b64encode(":".join(self._config.basic).encode()).decode()
            return [("Authorization", f"Basic {pair}")]
        if given is not None and given.token:
            return [("Authorization", f"Bearer {given.token}")]
        return []

    def _authority(self) -> bytes:
        return b"" if self._config.authority is None else Watched(self._config.authority, self._clock).read()

    def _make(self, given: ExecCredentials | None) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif config.authority is not None:
            try:
                context.load_verify_locations(cadata=self._authority().decode("ascii"))
            except (ssl.SSLError, UnicodeDecodeError, ValueError):
                raise ConfigError(f"{config.authority.origin}: contains no certificate in PEM form") from None
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if config.certificate is not None and config.key is not None:
            certificate = Watched(config.certificate, self._clock).read()
            key = Watched(config.key, self._clock).read()
            _load_pair(context, certificate, key, config.certificate.origin)
        elif given is not None and given.certificate:
            plugin = config.exec_plugin
            _load_pair(context, given.certificate, given.key, plugin.origin if plugin is not None else "")
        return context


class Watched:
    """Content of a setting, read again when its file changes."""

    def __init__(self, material: Material, clock: Callable[[], float], *, secret: bool = False) -> None:
        self._material = material
        self._clock = clock
        self._strip = secret
        self._content = b""
        self._stamp: tuple[int, int, int] | None = None
        self._looked = -_LOOK_SECONDS

    def read(self) -> bytes:
        material, now = self._material, self._clock()
        if material.file is None:
            self._content = self._content or self._checked(material.data or b"")
            return self._content
        if now - self._looked >= _LOOK_SECONDS or self._stamp is None:
            self._looked = now
            self._watch_file(material.file)
        return self._content

    def renew(self) -> bool:
        """Check the file; return whether the content has changed."""
        if self._material.file is None:
            return False
        before, self._stamp = self._content, None
        return self.read() != before

    def _watch_file(self, file: Path) -> None:
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp == self._stamp:
                return
            self._content = self._checked(file.read_bytes())
            self._stamp = stamp
        except OSError as error:
            if self._content:
                return  # perhaps being renewed: keep the old content
            if self._material.data:
                self._content = self._checked(self._material.data)
                return
            raise ConfigError(f"{self._material.origin}: {file}: {error.strerror}") from None

    def _checked(self, content: bytes) -> bytes:
        if not self._strip:
            return content
        token = content.strip()
        if not token:
            if self._content:
                return self._content
            raise ConfigError(f"{self._material.origin}: the token is empty")
        if not token.isascii() or any(byte < 33 or byte == 127 for byte in token):
            raise ConfigError(f"{self._material.origin}: a token must be one word of ASCII characters")
        return token


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    """Load a client certificate; Python reads them only from files."""
    with tempfile.NamedTemporaryFile(prefix="plimsoll-") as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=_no_password)
        except (ssl.SSLError, OSError, ValueError):
            raise ConfigError(
                f"{origin}: the client certificate and its key do not load: both must be in PEM form, belong "
                "together, and the key must not be encrypted"
            ) from None


def _no_password() -> str:
    """Return no password for encrypted keys; otherwise the TLS library would prompt on the terminal."""
    return ""


def _impersonation_headers(config: ClientConfig) -> list[tuple[str, str]]:
    if config.impersonation is None:
        return []
    who = config.impersonation
    headers = [("Impersonate-User", who.user)]
    if who.uid:
        headers.append(("Impersonate-Uid", who.uid))
    headers += [("Impersonate-Group", group) for group in who.groups]
    for key, values in who.extra.items():
        name = "Impersonate-Extra-" + quote(key.lower(), safe="!#$&'*+-.^_`|~")
        headers += [(name, value) for value in values]
    for name, value in headers:
        if not value.isprintable():
            raise ConfigError(f"{config.origin}: {name}: {value!r} is not a valid name")
    return headers
