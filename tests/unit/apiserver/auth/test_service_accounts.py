"""Service account tokens."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.auth.service_accounts import ISSUER, ServiceAccountTokens
from plimsoll.apiserver.auth.signing_key import SigningKey
from plimsoll.apiserver.storage import Store
from plimsoll.errors import ApiError, ConfigError
from tests.unit.apiserver.auth.objects import new_store, put, remove

KEY = SigningKey.create()
RSA_KEY = SigningKey(rsa.generate_private_key(65537, 2048))


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture
def store() -> Store:
    store = new_store()
    put(store, "serviceaccounts", "a", {}, "x")
    put(store, "nodes", "n", {})
    put(store, "pods", "p", {"spec": {"serviceAccountName": "a", "nodeName": "n"}}, "x")
    put(store, "secrets", "s", {}, "x")
    return store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(store: Store, clock: Clock) -> ServiceAccountTokens:
    return ServiceAccountTokens(store, KEY, clock=clock)


def ask(accounts: ServiceAccountTokens, **spec: Any) -> str:
    token: str = accounts.create_token("x", "a", {"spec": spec})["status"]["token"]
    return token


def bound(kind: str, name: str, **more: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": kind, "name": name, **more}


def encode_part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def claims_of(token: str) -> Any:
    return json.loads(decode_part(token.split(".")[1]))


def test_a_token_identifies_its_account(accounts: ServiceAccountTokens) -> None:
    answer = accounts.create_token("x", "a", {"spec": {}})
    token = answer["status"]["token"]
    user = accounts.verify(token)
    assert user is not None
    assert user.name == "system:serviceaccount:x:a"
    assert user.uid == "uid-a"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:x", "system:authenticated")
    claims = claims_of(token)
    assert user.extra == {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
    assert claims["aud"] == [ISSUER]
    assert claims["iss"] == ISSUER
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["sub"] == user.name
    assert claims["kubernetes.io"] == {"namespace": "x", "serviceaccount": {"name": "a", "uid": "uid-a"}}
    assert answer["spec"]["expirationSeconds"] == 3600
    assert answer["status"]["expirationTimestamp"] == "2027-01-15T09:00:00Z"
    assert answer["metadata"]["name"] == "a"


def test_a_pod_token_names_its_node(accounts: ServiceAccountTokens) -> None:
    user = accounts.verify(ask(accounts, boundObjectRef=bound("Pod", "p", uid="uid-p")))
    assert user is not None
    extra = {key.partition("/")[2]: values for key, values in user.extra.items()}
    extra.pop("credential-id")
    assert extra == {
        "pod-name": ("p",),
        "pod-uid": ("uid-p",),
        "node-name": ("n",),
        "node-uid": ("uid-n",),
    }


def test_a_token_of_a_pod_lives_as_long_as_requested(accounts: ServiceAccountTokens) -> None:
    claims = claims_of(ask(accounts, boundObjectRef=bound("Pod", "p"), expirationSeconds=3607))
    assert claims["exp"] - claims["iat"] == 3607


def test_a_pod_may_run_on_a_node_that_is_not_there(store: Store, accounts: ServiceAccountTokens) -> None:
    remove(store, "nodes", "n")
    token = ask(accounts, boundObjectRef=bound("Pod", "p"))
    assert claims_of(token)["kubernetes.io"]["node"] == {"name": "n"}
    user = accounts.verify(token)
    assert user is not None
    assert user.extra["authentication.kubernetes.io/node-name"] == ("n",)
    assert "authentication.kubernetes.io/node-uid" not in user.extra


@pytest.mark.parametrize(
    ("reference", "resource", "namespace"),
    [
        (None, "serviceaccounts", "x"),
        (bound("Pod", "p"), "pods", "x"),
        (bound("Node", "n"), "nodes", ""),
        (bound("Secret", "s"), "secrets", "x"),
    ],
)
def test_a_token_is_invalid_after_its_bound_object_is_deleted(
    store: Store, accounts: ServiceAccountTokens, clock: Clock, reference: Any, resource: str, namespace: str
) -> None:
    name = reference["name"] if reference else "a"
    token = ask(accounts, boundObjectRef=reference)
    assert accounts.verify(token)
    deleted = {"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}}
    spec = {"spec": {"serviceAccountName": "a", "nodeName": "n"}}
    put(store, resource, name, {**spec, **deleted}, namespace)
    assert accounts.verify(token)  # it may end in peace
    clock.now += 61
    assert accounts.verify(token) is None
    put(store, resource, name, spec, namespace)
    assert accounts.verify(token)
    put(store, resource, name, {**spec, "metadata": {"uid": "another"}}, namespace)
    assert accounts.verify(token) is None
    put(store, resource, name, spec, namespace)
    remove(store, resource, name, namespace)
    assert accounts.verify(token) is None


def test_a_pod_token_outlives_its_node(store: Store, accounts: ServiceAccountTokens) -> None:
    token = ask(accounts, boundObjectRef=bound("Pod", "p"))
    remove(store, "nodes", "n")
    assert accounts.verify(token)


def test_times(accounts: ServiceAccountTokens, clock: Clock) -> None:
    token = ask(accounts, expirationSeconds=600)
    clock.now += 600 + 60
    assert accounts.verify(token)
    clock.now += 1
    assert accounts.verify(token) is None
    clock.now -= 600 + 60 + 1 + 61
    assert accounts.verify(token) is None


def test_audiences(accounts: ServiceAccountTokens) -> None:
    token = ask(accounts, audiences=["vault", "other"])
    assert accounts.verify(token) is None
    assert accounts.review(token, ["vault", "third"]) == (accounts.verify(token, ["vault"]), ("vault",))
    assert accounts.verify(token, ["third"]) is None


@pytest.mark.parametrize(
    ("tree", "code", "why"),
    [
        ({"spec": {"expirationSeconds": 599}}, 422, "less than 10 minutes"),
        ({"spec": {"expirationSeconds": 2**32 + 1}}, 422, "larger than 2^32 seconds"),
        ({"spec": {"expirationSeconds": "3600"}}, 400, "must be an integer"),
        ({"spec": {"expirationSeconds": True}}, 400, "must be an integer"),
        ({"spec": {"audiences": "x"}}, 400, "must be a list of strings"),
        ({"spec": {"audiences": [1]}}, 400, "must be a list of strings"),
        ({"spec": {"boundObjectRef": "p"}}, 400, "must be an object"),
        ({"spec": {"boundObjectRef": {}}}, 400, "cannot bind token to object of type"),
        ({"spec": {"boundObjectRef": bound("ConfigMap", "c")}}, 400, "type /v1, Kind=ConfigMap"),
        ({"spec": {"boundObjectRef": {**bound("Pod", "p"), "apiVersion": "x/v1"}}}, 400, "x/v1, Kind=Pod"),
        ({"spec": {"boundObjectRef": bound("Pod", "none")}}, 404, 'pods "none" not found'),
        ({"spec": {"boundObjectRef": bound("Pod", "p", uid="old")}}, 409, "does not match the UID in record"),
        ({"spec": {"boundObjectRef": bound("Pod", "q")}}, 400, "different serviceaccount name"),
        ({"metadata": {"name": "b"}}, 422, "must match the service account name"),
        ({"metadata": {"namespace": "y"}}, 422, "must match the service account namespace"),
        ({"metadata": {"uid": "old"}}, 409, "does not match the UID of the service account"),
    ],
)
def test_refusals(store: Store, accounts: ServiceAccountTokens, tree: Any, code: int, why: str) -> None:
    put(store, "pods", "q", {"spec": {"serviceAccountName": "other"}}, "x")
    with pytest.raises(ApiError) as caught:
        accounts.create_token("x", "a", tree)
    assert caught.value.code == code
    assert why in caught.value.message


def test_there_is_no_token_without_an_account(accounts: ServiceAccountTokens) -> None:
    with pytest.raises(ApiError, match='serviceaccounts "none" not found'):
        accounts.create_token("x", "none", {})


def test_tokens_of_another_key_are_refused(store: Store, accounts: ServiceAccountTokens) -> None:
    for key in (SigningKey.create(), RSA_KEY):
        assert accounts.verify(ask(ServiceAccountTokens(store, key, clock=CLOCK))) is None


def test_an_rsa_key_signs_too(store: Store) -> None:
    accounts = ServiceAccountTokens(store, RSA_KEY, clock=CLOCK)
    token = ask(accounts)
    assert json.loads(decode_part(token.split(".")[0])) == {"alg": "RS256", "kid": RSA_KEY.id}
    assert accounts.verify(token)
    assert RSA_KEY.jwks()["keys"][0]["kty"] == "RSA"
    assert KEY.jwks()["keys"][0]["crv"] == "P-256"


def test_the_algorithm_of_the_header_is_not_trusted(accounts: ServiceAccountTokens) -> None:
    _, claims, signature = ask(accounts).split(".")
    for header in ({"alg": "none"}, {"alg": "HS256"}, {"alg": "RS256"}, {}, {"alg": "ES256", "kid": "x"}):
        forged = f"{encode_part(json.dumps(header).encode())}.{claims}.{signature}"
        assert accounts.verify(forged) is None
        assert accounts.verify(f"{encode_part(json.dumps(header).encode())}.{claims}.") is None


@given(st.data())
def test_a_changed_token_is_no_token(data: st.DataObject) -> None:
    store = new_store()
    put(store, "serviceaccounts", "a", {}, "x")
    accounts = ServiceAccountTokens(store, KEY, clock=CLOCK)
    token = ask(accounts)
    place = data.draw(st.integers(0, len(token) - 1))
    character = data.draw(st.characters(codec="utf-8").filter(lambda c: c != token[place]))
    changed = token[:place] + character + token[place + 1 :]
    assert accounts.verify(changed) is None or decode_part(changed.split(".")[2]) == decode_part(
        token.split(".")[2]
    )


@given(
    st.one_of(
        st.text(),
        st.lists(st.binary().map(encode_part), min_size=3, max_size=3).map(".".join),
        st.lists(st.text("abcXYZ019-_.=+/"), max_size=4).map(".".join),
    )
)
def test_any_text_is_a_valid_token_or_refused(token: str) -> None:
    assert ServiceAccountTokens(new_store(), KEY).verify(token) is None


@given(
    st.dictionaries(
        st.sampled_from(["iss", "nbf", "exp", "aud", "sub", "jti", "kubernetes.io"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.just(ISSUER), st.lists(st.integers())),
    )
)
def test_any_jwt_claims_are_accepted_or_refused(claims: dict[str, Any]) -> None:
    assert ServiceAccountTokens(new_store(), KEY, clock=CLOCK).verify(KEY.sign(claims)) is None


def test_the_token_cache_is_bounded(store: Store) -> None:
    accounts = ServiceAccountTokens(store, KEY, clock=CLOCK)
    accounts.token_cache.update({number.to_bytes(32): None for number in range(4096)})  # type: ignore[misc]
    assert accounts.verify(ask(accounts))
    assert len(accounts.token_cache) == 1


def test_the_key_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "sa.key"
    key = SigningKey.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load_or_create(path).id == key.id


def pem(key: Any, password: bytes | None = None) -> bytes:
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    encoded: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    return encoded


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "contains no unencrypted PEM private key"),
        (
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "contains no unencrypted PEM private key",
        ),
        (pem(ec.generate_private_key(ec.SECP384R1())), "unsupported key: use P-256"),
        (pem(ec.generate_private_key(ec.SECP256R1()), b"secret"), "contains no unencrypted PEM private key"),
    ],
)
def test_an_unusable_key_is_reported(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "sa.key"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        SigningKey.load_or_create(path)
