"""Request checks and response headers of the dashboard. Pure.

The dashboard has no login and listens on loopback by default. These rules keep other web pages from reaching
it through a user's browser:

- the `Host` of a request must be an address, `localhost`, or an allowed name, which defeats DNS rebinding;
- requests with a body must be JSON from the page itself, which forms of other sites cannot send and whose
  origin browsers report;
- the page runs only its own scripts and styles and cannot be framed.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping

#: Maximum size of a request body, in bytes.
MOST_BODY = 1 << 20
COOKIE = "plimsoll-token"
#: Routes without authentication, for probes; they only return "ok".
OPEN_ROUTES = frozenset({"/healthz", "/livez", "/readyz"})

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_of(header: str) -> str:
    """Return the name or address in a `Host` header without the port; "" if it is invalid."""
    text = header.strip().lower()
    if text.startswith("["):
        inner, bracket, rest = text[1:].partition("]")
        return inner if bracket and (not rest or _is_port(rest)) else ""
    name, colon, port = text.partition(":")
    return name.rstrip(".") if not colon or _is_port(":" + port) else ""


def _is_port(text: str) -> bool:
    return text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6


def refuse_host(header: str, allowed: frozenset[str]) -> str:
    """Return why a request with this `Host` is refused, or ""."""
    host = host_of(header)
    if host in allowed or host == "localhost" or host.endswith(".localhost") or is_address(host):
        return ""
    shown = host[:100] or "no name"
    return f"host {shown!r} is not allowed: use the IP address, or allow the name with --allow-host"


def refuse_post(headers: Mapping[str, str]) -> str:
    """Return why a request with a body is refused, or ""."""
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        return "Content-Type must be application/json"
    site = headers.get("Sec-Fetch-Site", "same-origin")
    if site not in ("same-origin", "none"):
        return "cross-origin requests are not allowed"
    origin = headers.get("Origin")
    if origin is not None:
        _, found, where = origin.partition("://")
        if not found or where.lower() != headers.get("Host", "").strip().lower():
            return "cross-origin requests are not allowed"
    return ""


def has_token(token: str, header: str, cookie: str) -> bool:
    """Return whether a request has the token, as a bearer token or in its cookie.

    Bytes that are not UTF-8 arrive as surrogates (PEP 383): they are compared like any other wrong token.
    """
    scheme, _, bearer = header.partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else cookie
    return hmac.compare_digest(given.encode(errors="surrogatepass"), token.encode())
