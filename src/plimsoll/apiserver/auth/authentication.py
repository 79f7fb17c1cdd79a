"""Authentication of requests: client certificates and bearer tokens.

Client certificates (verified by the TLS layer) come first, then static tokens and service account tokens. A
request without credentials is anonymous; one with invalid credentials is rejected (ApiError 401), and no
malformed header has another result.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.apiserver import status
from plimsoll.apiserver.auth.service_accounts import ServiceAccountTokens
from plimsoll.apiserver.auth.token_file import StaticTokens
from plimsoll.apiserver.auth.users import ANONYMOUS, User
from plimsoll.common.http_tunnel import split_protocols

#: Subject attribute of a certificate with the user's UID.
_UID = "1.3.6.1.4.1.57683.2"
#: Identity headers, which must not be repeated: a proxy in front of the server and the server itself must
#: never attribute a request to two different users.
SINGLE_HEADERS = frozenset({"authorization", "impersonate-user", "impersonate-uid"})
#: Longer tokens are rejected.
_MAX_TOKEN_LENGTH = 16 * 1024


class Authenticator:
    """Authenticator of requests by their headers and the client certificate of their connection."""

    def __init__(self, tokens: StaticTokens, accounts: ServiceAccountTokens | None = None) -> None:
        self._tokens = tokens
        self._accounts = accounts

    def authenticate(self, headers: Mapping[str, str], peer_certificate: Mapping[str, Any] | None) -> User:
        """Return the user of a request. Header names are in lower case; the certificate is as `ssl`
        returns it.
        """
        if peer_certificate:
            user = certificate_user(peer_certificate)
            if user is not None:
                return user
        token = bearer_token(headers.get("authorization", "")) or websocket_token(headers)
        if not token:
            return ANONYMOUS
        user = self.find(token)
        if user is None:
            raise status.unauthorized()
        return user

    def find(self, token: str) -> User | None:
        """Return the user of a token; None if it is invalid or expired."""
        if len(token) > _MAX_TOKEN_LENGTH:
            return None
        user = self._tokens.find(token)
        if user is not None or self._accounts is None:
            return user
        found = self._accounts.review(token)
        return found[0] if found else None

    def review(self, token: str, audiences: Sequence[str] = ()) -> tuple[User, tuple[str, ...]] | None:
        """Return the user of a token with those of the audiences (by default the server's) that it is valid
        for.

        Static tokens are valid for the server only.
        """
        if len(token) > _MAX_TOKEN_LENGTH:
            return None
        user = self._tokens.find(token)
        if user is None:
            return self._accounts.review(token, audiences) if self._accounts is not None else None
        server_audiences = self._accounts.audiences if self._accounts is not None else ()
        matching = tuple(
            audience for audience in audiences or server_audiences if audience in server_audiences
        )
        return (user, matching) if matching or not audiences else None


def bearer_token(header: str) -> str:
    """Return the token of an Authorization header, or ""."""
    scheme, _, rest = header.strip(" \t").partition(" ")
    return rest.split(" ", 1)[0] if scheme.lower() == "bearer" else ""


def websocket_token(headers: Mapping[str, str]) -> str:
    """Return the token among the protocols of a WebSocket request, or ""; ApiError if it is not valid.

    There must be one token and another protocol, which the server can select.
    """
    if headers.get("upgrade", "").lower() != "websocket":
        return ""
    tokens, others = split_protocols(headers.get("sec-websocket-protocol", ""))
    if not tokens:
        return ""
    try:
        if len(tokens) > 1 or not others:
            raise ValueError(tokens)
        return base64.b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4), b"-_", validate=True).decode()
    except ValueError:
        raise status.unauthorized() from None


def certificate_user(certificate: Mapping[str, Any]) -> User | None:
    """Return the user of a client certificate: the common name, with the organizations as groups."""
    name, uid, groups = "", "", []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                name = value
            elif key == "organizationName":
                groups.append(value)
            elif key == _UID:
                uid = value
    return User(name, uid, tuple(groups)).as_authenticated() if name else None
