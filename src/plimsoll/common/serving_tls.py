"""TLS of servers: contexts from files, and the certificate directory of a component."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path

from plimsoll.errors import ConfigError

_log = logging.getLogger("plimsoll.http")


def make_tls(certificate: Path, key: Path, client_ca: bytes = b"") -> ssl.SSLContext:
    """Create a context: TLS 1.2 and up, client certificates optional; ConfigError names the problem."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
        if client_ca:
            context.load_verify_locations(cadata=client_ca.decode("ascii"))
            context.verify_mode = ssl.CERT_OPTIONAL
    except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
        ca = " and the client CA" if client_ca else ""
        raise ConfigError(f"{certificate}{ca} cannot be used: {error}") from None
    return context


async def open_cert_dir(directory: Path) -> ssl.SSLContext:
    """Create the context of DIR/tls.crt and DIR/tls.key, which are created if missing; ConfigError.

    New connections use the files as they are: Secrets that are mounted change when a certificate is renewed.
    """
    certificate, key = directory / "tls.crt", directory / "tls.key"
    if not certificate.exists() and not key.exists():
        await _create_self_signed(directory)
    context = make_tls(certificate, key)
    loaded = _modified(certificate, key)

    def reload(*_: object) -> None:
        """Called for each handshake; the next one has the new certificate."""
        nonlocal loaded
        with suppress(OSError):
            now = _modified(certificate, key)
            if now != loaded:
                loaded = now
                try:
                    context.load_cert_chain(certificate, key)
                except ssl.SSLError as error:
                    _log.error("%s cannot be used, the previous certificate stays: %s", certificate, error)

    context.sni_callback = reload
    return context


def _modified(*paths: Path) -> tuple[int, ...]:
    return tuple(os.stat(path).st_mtime_ns for path in paths)


async def _create_self_signed(directory: Path) -> None:
    """Create a certificate in another process: cryptography would stay in memory, 12 MB of it."""
    program = [sys.executable, "-m", "plimsoll.common.self_signed"]
    child = await asyncio.create_subprocess_exec(
        *program, str(directory), socket.gethostname(), "localhost", stderr=asyncio.subprocess.PIPE
    )
    _, problem = await child.communicate()
    if child.returncode:
        last = problem.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError(f"--cert-dir: {last or 'the certificate cannot be created'}")
