"""Connections of the API server to kubelets: responses that are streamed, and upgraded connections.

The server authenticates with its client certificate. Serving certificates of kubelets are verified only if a
CA is given, as in kube-apiserver. A kubelet that does not respond in time is an error of the request; it
delays no other.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path

import aiohttp
from yarl import URL

from plimsoll.apiserver.kubelet.location import KubeletLocation
from plimsoll.apiserver.kubelet.proxy_target import ProxyTarget
from plimsoll.apiserver.status import bad_request, service_unavailable
from plimsoll.common.http_forward import ForwardedResponse, HttpForwarder, read_body
from plimsoll.common.http_tunnel import MAX_ERROR_BYTES, UpgradedPeer, UpgradeRefusal, request_upgrade
from plimsoll.errors import ApiError, ConfigError

_CONNECT_SECONDS = 10.0
_HEADER_SECONDS = 35.0


def make_kubelet_tls(certificate: Path | None, key: Path | None, ca: bytes) -> ssl.SSLContext:
    """Create the TLS context of the connections; without a CA serving certificates are not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        if ca:
            context.load_verify_locations(cadata=ca.decode("ascii"))
        else:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"certificates for kubelets cannot be used: {error}") from None
    return context


class KubeletClient:
    """Client of all kubelets."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._forwarder = HttpForwarder(tls)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        await self._forwarder.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def read(self, location: KubeletLocation) -> AsyncGenerator[bytes, None]:
        """Send a GET request and return the body, which is streamed; ApiError if it is refused."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECT_SECONDS, connect=None, sock_read=None
            )
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, trust_env=False, auto_decompress=False
            )
        host = f"[{location.host}]" if ":" in location.host else location.host
        url = f"https://{host}:{location.port}{location.target}"
        try:
            async with asyncio.timeout(_HEADER_SECONDS):
                response = await self._session.get(URL(url, encoded=True), allow_redirects=False)
                if response.status != 200:
                    try:
                        body = await response.content.read(MAX_ERROR_BYTES)
                    finally:
                        response.close()
                    raise kubelet_error(response.status, body)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(location, error) from None
        return read_body(response)

    async def forward(
        self, method: str, target: ProxyTarget, headers: Iterable[tuple[str, str]], body: bytes
    ) -> ForwardedResponse:
        """Pass a request on; OSError if the target does not respond."""
        return await self._forwarder.forward(method, target.url, headers, body, trusted=target.is_kubelet)

    async def upgrade(
        self, location: KubeletLocation, method: str, headers: Iterable[tuple[str, str]]
    ) -> UpgradedPeer:
        """Send an upgrade request; ApiError if the kubelet does not switch protocols."""
        try:
            async with asyncio.timeout(_HEADER_SECONDS):
                found = await request_upgrade(
                    location.host, location.port, location.target, method, headers, tls=self._tls
                )
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise unreachable(location, error) from None
        if isinstance(found, UpgradeRefusal):
            raise kubelet_error(found.status, found.body)
        return found


def kubelet_error(status: int, body: bytes) -> ApiError:
    """Return the error that a kubelet's refusal is for a client of the API server."""
    message = body.decode(errors="replace").strip() or f"the kubelet responded with status {status}"
    if status == 404:
        return ApiError(404, "NotFound", message)
    if status == 429:
        return ApiError(429, "TooManyRequests", message)
    if status in (401, 403):
        # Not the client's: the server itself lacks the right.
        return ApiError(500, "InternalError", f"the kubelet refused the API server: {message}")
    return bad_request(message) if 400 <= status < 500 else ApiError(500, "InternalError", message)


def unreachable(location: KubeletLocation, error: Exception) -> ApiError:
    """Return the error of a kubelet that cannot be reached."""
    problem = str(error) or "timed out"
    where = f"{location.host}:{location.port}"
    return service_unavailable(f"the kubelet of node {location.node} at {where} cannot be reached: {problem}")
