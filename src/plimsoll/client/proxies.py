"""Proxy selection from the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY).

As in Go programs: the upper-case name first; hosts with their subdomains, addresses, networks and ports in
NO_PROXY; never a proxy for loopback. A `proxy-url` in a kubeconfig takes precedence.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from plimsoll.errors import ConfigError

_PORTS = {"http": 80, "https": 443}


def check_proxy(url: str, origin: str) -> str:
    """Return the URL of a proxy; raises ConfigError if it is invalid."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise ConfigError(f"{origin}: {url!r} is not a proxy URL") from None
    # DIFF: kubectl takes SOCKS proxies too. test_unsupported_proxies
    if parts.scheme.startswith("socks5"):
        raise ConfigError(
            f"{origin}: SOCKS proxies are not supported ({url}); use an http:// or https:// proxy, "
            "such as one that forwards to the SOCKS proxy"
        )
    if parts.scheme not in _PORTS:
        raise ConfigError(
            f"{origin}: {url!r} is not a proxy URL: write http://HOST:PORT or https://HOST:PORT"
        )
    if not parts.hostname or port == 0:
        raise ConfigError(f"{origin}: {url!r} has no host")
    return parts.geturl()


def find_proxy(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy of the environment for a server, or ""."""
    parts = urlsplit(server)
    scheme = parts.scheme.lower()
    name = "HTTPS_PROXY" if scheme == "https" else "HTTP_PROXY"
    if name == "HTTP_PROXY" and environ.get("REQUEST_METHOD"):
        return ""  # under CGI the sender of a request can set the variable
    if not environ.get(name):
        name = name.lower()
    proxy = environ.get(name, "")
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _PORTS.get(scheme, 0)
    if not proxy or bypasses(host, port, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
        return ""
    return check_proxy(proxy, name)


def bypasses(host: str, port: int, rules: str) -> bool:
    """Return whether a host is reached without the proxy."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(rule.strip().lower(), host.lower(), address, port) for rule in rules.split(","))


def _matches(
    rule: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int
) -> bool:
    if not rule:
        return False
    if rule == "*":
        return True
    if "/" in rule:
        try:
            network = ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
        return address is not None and address.version == network.version and address in network
    rule, wanted = _split_port(rule)
    if wanted is not None and wanted != port:
        return False
    if (fixed := _address(rule)) is not None:
        return fixed == address
    if address is not None or not rule:
        return False
    if rule.startswith("*."):
        rule = rule[1:]
    if rule.startswith("."):
        return host.endswith(rule)
    return host == rule or host.endswith("." + rule)


def _split_port(rule: str) -> tuple[str, int | None]:
    if rule.startswith("["):
        host, _, rest = rule[1:].partition("]")
        return host, int(rest[1:]) if rest[1:].isdecimal() else None
    host, colon, port = rule.rpartition(":")
    if colon and ":" not in host and port.isdecimal():
        return host, int(port)
    return rule, None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
