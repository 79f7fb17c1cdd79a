"""TLS connections and certificates for tests."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plimsoll.apiserver.auth.certificates import (
    CertificateAuthority,
    CertificatePair,
)


def after(**time: float) -> Callable[[], datetime.datetime]:
    """Return a clock that is ahead by this much, or behind."""
    return lambda: datetime.datetime.now(datetime.UTC) + datetime.timedelta(**time)


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost"
) -> tuple[Any, str | None]:
    """Connect both ends without a network; return the client's certificate and the TLS version."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [near, far]
    for _ in range(20):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return far.getpeercert(), far.version()


def client_context(
    authority: CertificateAuthority, pair: CertificatePair | None, directory: Path
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if pair is not None:
        (directory / "client.pem").write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(directory / "client.pem")
    return context
