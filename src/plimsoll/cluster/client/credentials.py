"""Who the client is: headers and certificates, kept fresh.

Owns turning a `ClientConfig` into the Authorization and Impersonate headers and the TLS context of a request.
Promises: token files and certificate files are read again when they change.
"""

from __future__ import annotations

import base64
import ssl
from urllib.parse import quote

from plimsoll.cluster.client.config import ClientConfig, Material
from plimsoll.errors import ConfigError


class Credentials:
    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None

    async def headers(self) -> dict[str, str]:
        config = self._config
        headers: dict[str, str] = {}
        if config.token is not None:
            headers["Authorization"] = f"Bearer {_read(config.token).decode().strip()}"
        elif config.basic is not None:
            pair = ":".join(config.basic).encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if config.impersonation is not None:
            headers["Impersonate-User"] = config.impersonation.user
        return headers

    async def tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self._make_context()
        return self._context

    async def renew(self) -> bool:
        return False

    def _make_context(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        if config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif config.authority is not None:
            context.load_verify_locations(cadata=_read(config.authority).decode())
        return context


def _read(material: Material) -> bytes:
    if material.data is not None:
        return material.data
    if material.file is None:
        raise ConfigError(f"{material.origin}: neither data nor a file is given")
    try:
        return material.file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{material.file}: {error.strerror} ({material.origin})") from None


def quote_extra(key: str) -> str:
    """A key of Impersonate-Extra as a header name can hold it."""
    return quote(key.lower(), safe="!#$&'*+-.^_`|~")
