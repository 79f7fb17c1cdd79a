"""Tests of the authenticator."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.auth.authentication import Authenticator, bearer_token, certificate_user
from plimsoll.apiserver.auth.service_accounts import ISSUER, ServiceAccountTokens
from plimsoll.apiserver.auth.signing_key import SigningKey
from plimsoll.apiserver.auth.token_file import StaticTokens
from plimsoll.apiserver.auth.users import ADMIN, ALL_AUTHENTICATED, ANONYMOUS, User
from plimsoll.errors import ApiError
from tests.unit.apiserver.auth.objects import new_store, put

KEY = SigningKey.create()


def new_authenticator() -> tuple[Authenticator, str]:
    """Return an authenticator with the administrator's token `letmein` and a service account with this
    token.
    """
    store = new_store()
    put(store, "serviceaccounts", "a", {}, "x")
    accounts = ServiceAccountTokens(store, KEY)
    return Authenticator(StaticTokens(admin="letmein"), accounts), accounts.create_token("x", "a", {})[
        "status"
    ]["token"]


AUTHENTICATOR, TOKEN = new_authenticator()
CERTIFICATE: dict[str, Any] = {
    "subject": (
        (("organizationName", "system:nodes"),),
        (("organizationName", "other"), ("commonName", "system:node:n1")),
    ),
    "issuer": ((("commonName", "someone"),),),
}


def test_without_credentials_one_is_anonymous() -> None:
    for headers in ({}, {"authorization": ""}, {"authorization": "Basic YTpi"}, {"authorization": "Bearer"}):
        assert AUTHENTICATOR.authenticate(headers, None) is ANONYMOUS
    assert AUTHENTICATOR.authenticate({}, {}) is ANONYMOUS


def test_tokens() -> None:
    assert AUTHENTICATOR.authenticate({"authorization": "Bearer letmein"}, None) == ADMIN
    assert AUTHENTICATOR.authenticate({"authorization": "bearer letmein"}, None) == ADMIN
    user = AUTHENTICATOR.authenticate({"authorization": f"Bearer {TOKEN}"}, None)
    assert user.name == "system:serviceaccount:x:a"


@pytest.mark.parametrize("token", ["letmein2", "letmei", "x", TOKEN[:-2], TOKEN + "x", "a.b.c", "x" * 20_000])
def test_wrong_tokens_are_refused(token: str) -> None:
    with pytest.raises(ApiError) as caught:
        AUTHENTICATOR.authenticate({"authorization": f"Bearer {token}"}, None)
    assert (caught.value.code, caught.value.reason) == (401, "Unauthorized")


def offer(*protocols: str) -> dict[str, str]:
    return {"upgrade": "WebSocket", "sec-websocket-protocol": ", ".join(protocols)}


def encoded(token: str) -> str:
    text = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return f"base64url.bearer.authorization.k8s.io.{text}"


def test_tokens_among_the_protocols_of_a_websocket() -> None:
    """As a browser sends them; kube-apiserver wants one token and another protocol."""
    for token in ("letmein", TOKEN):
        user = AUTHENTICATOR.authenticate({"authorization": f"Bearer {token}"}, None)
        assert AUTHENTICATOR.authenticate(offer("binary.k8s.io", encoded(token)), None) == user
    for wrong in (
        [encoded("letmein")],
        ["binary.k8s.io", encoded("letmein"), encoded("letmein")],
        ["binary.k8s.io", encoded("letmeout")],
        ["binary.k8s.io", encoded("x") + "!"],
        ["binary.k8s.io", "base64url.bearer.authorization.k8s.io.gICA"],
    ):
        with pytest.raises(ApiError) as caught:
            AUTHENTICATOR.authenticate(offer(*wrong), None)
        assert caught.value.code == 401
    assert AUTHENTICATOR.authenticate(offer("binary.k8s.io"), None) is ANONYMOUS
    plain = {**offer("binary.k8s.io", encoded("letmein")), "upgrade": "h2c"}
    assert AUTHENTICATOR.authenticate(plain, None) is ANONYMOUS


def test_certificates() -> None:
    user = AUTHENTICATOR.authenticate({}, CERTIFICATE)
    assert user == User("system:node:n1", groups=("system:nodes", "other", ALL_AUTHENTICATED))
    # As in Kubernetes, who has a certificate needs no token.
    assert AUTHENTICATOR.authenticate({"authorization": "Bearer wrong"}, CERTIFICATE) == user
    with_uid = {"subject": ((("commonName", "u"), ("1.3.6.1.4.1.57683.2", "7")),)}
    assert certificate_user(with_uid) == User("u", "7", (ALL_AUTHENTICATED,))
    assert certificate_user({"subject": ((("organizationName", "g"),),)}) is None
    assert certificate_user({}) is None


def test_audiences_of_tokens() -> None:
    assert AUTHENTICATOR.review("letmein") == (ADMIN, (ISSUER,))
    assert AUTHENTICATOR.review("letmein", ["other"]) is None
    assert AUTHENTICATOR.review("letmein", ["other", ISSUER]) == (ADMIN, (ISSUER,))
    assert AUTHENTICATOR.review("nope") is None
    alone = Authenticator(StaticTokens(admin="letmein"))
    assert alone.review("letmein") == (ADMIN, ())
    assert alone.review("nope") is None


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer a", "a"),
        ("bEaReR a", "a"),
        ("Bearer a b", "a"),
        ("  Bearer a  ", "a"),
        ("Bearer  a", ""),
        ("Bearera", ""),
        ("Token a", ""),
    ],
)
def test_authorization_headers(header: str, token: str) -> None:
    assert bearer_token(header) == token


HEADERS = st.dictionaries(
    st.sampled_from(["authorization", "x", "impersonate-user"]),
    st.one_of(st.text(), st.text().map("Bearer {}".format), st.just(f"Bearer {TOKEN}")),
)
CERTIFICATES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "subject": st.lists(
            st.lists(
                st.tuples(st.sampled_from(["commonName", "organizationName", "x"]), st.text(max_size=5)),
                max_size=2,
            ).map(tuple),
            max_size=3,
        ).map(tuple)
    },
)


@given(HEADERS, CERTIFICATES)
def test_every_request_is_authenticated_or_refused(headers: dict[str, str], certificate: Any) -> None:
    with contextlib.suppress(ApiError):
        user = AUTHENTICATOR.authenticate(headers, certificate)
        assert user.name
        assert "system:masters" not in user.groups or headers.get("authorization") == "Bearer letmein"
