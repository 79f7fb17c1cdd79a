"""URLs in CEL, parsed and escaped as in Go's net/url: an absolute URI or an absolute path.

Percent-escapes are decoded to bytes; invalid UTF-8 becomes the replacement character.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from plimsoll.api.go_text import quote_go
from plimsoll.cel.functions.ip import read_address
from plimsoll.cel.overloads.costs import COPY
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.values import URL
from plimsoll.errors import CelRuntimeError

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_UNRESERVED = _LETTERS | _DIGITS | frozenset("-_.~")
_PATH = _UNRESERVED | frozenset("$&+,/:;=@")
_PATH_WRITTEN = _PATH | frozenset("!'()*[]%")
_HOST = _UNRESERVED | frozenset("!$&'()*+,;=:[]<>\"")
_USER = _UNRESERVED | frozenset("$&+,;=")
_USER_WRITTEN = _UNRESERVED | frozenset("!$&'()*+,;=:%@")
_FRAGMENT = _UNRESERVED | frozenset("$&+,/:;=?@!()*")
_FRAGMENT_WRITTEN = _FRAGMENT | frozenset("'[]%")


class _Malformed(Exception):
    """The text is not a URL."""


@dataclass(slots=True)
class _Parts:
    scheme: str = ""
    opaque: str = ""
    user: tuple[str, str | None] | None = None
    host: str = ""
    path: str = ""
    written_path: str = ""
    query: str = ""
    force_query: bool = False
    omit_host: bool = False


def parse(text: str) -> URL:
    """Parse a URL; raises CelRuntimeError."""
    try:
        _split(text, request=True)
        before, _, fragment = text.partition("#")
        parts = _split(before, request=False)
        return _build(parts, fragment)
    except _Malformed as error:
        why = f"parse {quote_go(text)}: {error}"
        raise CelRuntimeError(f"URL parse error during conversion from string: {why}") from None


def request_error(text: str) -> str | None:
    """Return the error of an invalid request URI, or None."""
    try:
        _split(text, request=True)
    except _Malformed as error:
        return str(error)
    return None


def _split(text: str, request: bool) -> _Parts:
    if any(char < " " or char == "\x7f" for char in text):
        raise _Malformed("invalid control character in URL")
    parts = _Parts()
    if not text and request:
        raise _Malformed("empty url")
    if text == "*":
        parts.path = parts.written_path = "*"
        return parts
    parts.scheme, rest = _scheme(text)
    if rest.endswith("?") and rest.count("?") == 1:
        parts.force_query = True
        rest = rest[:-1]
    else:
        rest, _, parts.query = rest.partition("?")
    if not rest.startswith("/"):
        if parts.scheme:
            parts.opaque = rest
            return parts
        if request:
            raise _Malformed("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise _Malformed("first path segment in URL cannot contain colon")
    if rest.startswith("//") and (parts.scheme or (not request and not rest.startswith("///"))):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        _authority(parts, authority)
    elif parts.scheme and rest.startswith("/"):
        parts.omit_host = True
    parts.path, parts.written_path = unescape(rest), rest
    return parts


def _scheme(text: str) -> tuple[str, str]:
    for index, char in enumerate(text):
        if char in _LETTERS:
            continue
        if char == ":":
            if index == 0:
                raise _Malformed("missing protocol scheme")
            return text[:index].lower(), text[index + 1 :]
        if index == 0 or not (char in _DIGITS or char in "+-."):
            break
    return "", text


def _authority(parts: _Parts, authority: str) -> None:
    userinfo, at, host = authority.rpartition("@")
    parts.host = _host(host, parts.scheme)
    if not at:
        return
    if not _USER_WRITTEN.issuperset(userinfo):
        raise _Malformed("invalid userinfo")
    name, colon, password = userinfo.partition(":")
    parts.user = (unescape(name), unescape(password) if colon else None)


def _host(host: str, scheme: str) -> str:
    opening = host.rfind("[")
    if opening >= 0:
        closing = host.rfind("]")
        if closing < 0:
            raise _Malformed("missing ']' in host")
        if opening > 0:
            raise _Malformed("invalid IP-literal")
        port = host[closing + 1 :]
        if not _is_port(port):
            raise _Malformed(f"invalid port {port[:40]!r} after host")
        address, zone, name = host[1:closing].partition("%25")
        inner = _unescape_host(address) + (unescape(zone + name) if zone else "")
        found = read_address(inner)
        if found is None or found[0].bits == 32:
            raise _Malformed("invalid host")
        return f"[{inner}]{port}"
    colon = host.rfind(":") if scheme in ("postgres", "postgresql") else host.find(":")
    if colon >= 0 and not _is_port(host[colon:]):
        raise _Malformed(f"invalid port {host[colon:][:40]!r} after host")
    return _unescape_host(host)


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and _DIGITS.issuperset(text[1:]))


def _unescape_host(text: str) -> str:
    at = 0
    while at < len(text):
        char = text[at]
        if char == "%":
            # Only bytes outside ASCII, and the percent sign itself, may be escaped in a host.
            if text[at + 1 : at + 2] in tuple("01234567") and text[at : at + 3] != "%25":
                raise _Malformed("invalid URL escape")
            at += 3
            continue
        if char < "\x80" and char not in _HOST:
            raise _Malformed(f"invalid character {char!r} in host name")
        at += 1
    return unescape(text)


def unescape(text: str, plus: bool = False) -> str:
    """Decode percent-escapes and, if `plus`, plus signs as blanks."""
    for index, char in enumerate(text):
        if char == "%" and not (len(text) >= index + 3 and _HEX.issuperset(text[index + 1 : index + 3])):
            raise _Malformed(f"invalid URL escape {text[index : index + 3]!r}")
    if plus:
        text = text.replace("+", " ")
    return unquote_to_bytes(text).decode("utf-8", "replace") if "%" in text else text


def _escape(text: str, keep: frozenset[str]) -> str:
    return "".join(
        char if char in keep else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text
    )


def _written(plain: str, written: str, keep: frozenset[str], allowed: frozenset[str]) -> str:
    """Return a part as it was written if that is valid, else its canonical form."""
    return written if written and allowed.issuperset(written) else _escape(plain, keep)


def _build(parts: _Parts, fragment: str) -> URL:
    path = "*" if parts.path == "*" else _written(parts.path, parts.written_path, _PATH, _PATH_WRITTEN)
    text = f"{parts.scheme}:" if parts.scheme else ""
    if parts.opaque:
        text += parts.opaque
    else:
        has_authority = bool(parts.host) or parts.user is not None
        if (parts.scheme or has_authority) and not (parts.omit_host and not has_authority):
            text += "//" if has_authority or parts.path else ""
            if parts.user is not None:
                name, password = parts.user
                text += (
                    _escape(name, _USER)
                    + (f":{_escape(password, _USER)}" if password is not None else "")
                    + "@"
                )
            text += _escape(parts.host, _HOST)
        if not text and ":" in path.partition("/")[0]:
            text = "./"
        text += path
    if parts.force_query or parts.query:
        text += f"?{parts.query}"
    if fragment:
        text += "#" + _written(unescape(fragment), fragment, _FRAGMENT, _FRAGMENT_WRITTEN)
    return URL(parts.scheme, parts.host, path, parts.query, text)


def _host_and_port(url: URL) -> tuple[str, str]:
    host, port = url.host, ""
    colon = host.rfind(":")
    if colon >= 0 and _is_port(host[colon:]):
        host, port = host[:colon], host[colon + 1 :]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def query(url: URL) -> dict[str, list[str]]:
    """Return the values by key; malformed pairs are omitted."""
    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair:
            continue
        key, _, value = pair.partition("=")
        try:
            plain, content = unescape(key, plus=True), unescape(value, plus=True)
        except _Malformed:
            continue
        found.setdefault(plain, []).append(content)
    return found


FUNCTIONS: tuple[Function, ...] = (
    function("url", "string_to_url (string) -> URL", call=parse, cost=COPY),
    function("isURL", "is_url_string (string) -> bool", call=lambda text: request_error(text) is None),
    function("getScheme", "url_get_scheme URL.() -> string", call=lambda url: url.scheme),
    function("getHost", "url_get_host URL.() -> string", call=lambda url: url.host),
    function("getHostname", "url_get_hostname URL.() -> string", call=lambda url: _host_and_port(url)[0]),
    function("getPort", "url_get_port URL.() -> string", call=lambda url: _host_and_port(url)[1]),
    function("getEscapedPath", "url_get_escaped_path URL.() -> string", call=lambda url: url.escaped_path),
    function("getQuery", "url_get_query URL.() -> map(string, list(string))", call=query),
)
