"""Service account tokens: creation by TokenRequest and verification.

Verifies the signature, the times, the audience, and that the account (and the pod, node or secret that a
token is bound to) is still the same object. The signature is verified once and cached; the rest is checked
every time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from plimsoll.api.codec import decode_tree
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.apiserver import status
from plimsoll.apiserver.auth.attributes import StoreReader
from plimsoll.apiserver.auth.signing_key import SigningKey
from plimsoll.apiserver.auth.token_file import hash_token
from plimsoll.apiserver.auth.users import (
    EXTRA_CREDENTIAL,
    EXTRA_NODE_NAME,
    EXTRA_NODE_UID,
    EXTRA_POD_NAME,
    EXTRA_POD_UID,
    User,
    service_account_user,
)
from plimsoll.apiserver.json_values import mapping, text
from plimsoll.apiserver.storage.records import ObjectKey
from plimsoll.apiserver.validation.field_errors import FieldPath, invalid
from plimsoll.errors import DecodeError

ISSUER = "https://kubernetes.default.svc"
MIN_EXPIRATION_SECONDS, DEFAULT_EXPIRATION_SECONDS, MAX_EXPIRATION_SECONDS = (
    600,
    3600,
    1 << 32,
)  # seconds a token may live
#: Seconds of clock skew, and for which tokens of a deleted object stay valid.
LEEWAY = 60
#: Maximum number of cached tokens.
_MAX_CACHED = 4096

_BOUND = {"Pod": "pods", "Node": "nodes", "Secret": "secrets"}


class _BoundObject(NamedTuple):
    """Object that must still exist for a token to be valid."""

    key: ObjectKey
    uid: str


class _VerifiedToken(NamedTuple):
    """Token with a valid signature."""

    user: User
    starts: int
    ends: int
    audiences: tuple[str, ...]
    bound_objects: tuple[_BoundObject, ...]


class ServiceAccountTokens:
    """Issuer and verifier of service account tokens."""

    def __init__(
        self,
        reader: StoreReader,
        key: SigningKey,
        *,
        issuer: str = ISSUER,
        audiences: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._reader = reader
        self._key = key
        self._issuer = issuer
        self.audiences = tuple(audiences) or (issuer,)
        self._clock = clock
        self.token_cache: dict[bytes, _VerifiedToken] = {}
        #: Bound objects: revision, uid, deletion time.
        self._object_cache: dict[ObjectKey, tuple[int, str, float | None]] = {}

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set."""
        return self._key.jwks()

    def configuration(self) -> dict[str, Any]:
        """Return the OpenID Connect discovery document of the issuer."""
        return {
            "issuer": self._issuer,
            "jwks_uri": f"{self._issuer}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [key["alg"] for key in self._key.jwks()["keys"]],
        }

    def verify(self, token: str, audiences: Sequence[str] = ()) -> User | None:
        """Return the user of a token; None if it is not ours, not for these audiences, or no longer valid."""
        found = self.review(token, audiences)
        return found[0] if found else None

    def review(self, token: str, audiences: Sequence[str] = ()) -> tuple[User, tuple[str, ...]] | None:
        """Return the user of a token with those of the audiences that it is valid for, or None."""
        known = self._verify_signature(token)
        if known is None:
            return None
        now = self._clock()
        if now > known.ends + LEEWAY or now < known.starts - LEEWAY:
            return None
        matching = tuple(a for a in audiences or self.audiences if a in known.audiences)
        if not matching or not all(self._holds(bound, now) for bound in known.bound_objects):
            return None
        return known.user, matching

    def _verify_signature(self, token: str) -> _VerifiedToken | None:
        key = hash_token(token)
        known = self.token_cache.get(key)
        if known is None:
            claims = self._key.verify(token)
            known = _read_claims(claims, self._issuer, self.audiences) if claims else None
            if known is not None:
                if len(self.token_cache) >= _MAX_CACHED:
                    self.token_cache.clear()
                self.token_cache[key] = known
        return known

    def _holds(self, bound: _BoundObject, now: float) -> bool:
        stored = self._reader.get(bound.key)
        if stored is None:
            self._object_cache.pop(bound.key, None)
            return False
        seen = self._object_cache.get(bound.key)
        if seen is None or seen[0] != stored.revision:
            if len(self._object_cache) >= _MAX_CACHED:
                self._object_cache.clear()
            metadata = _metadata(stored.raw)
            deleted = _seconds(metadata.get("deletionTimestamp"))
            seen = self._object_cache[bound.key] = (stored.revision, text(metadata.get("uid")), deleted)
        _, uid, deleted = seen
        return uid == bound.uid and (deleted is None or deleted >= now - LEEWAY)

    def create_token(self, namespace: str, name: str, tree: Any) -> dict[str, Any]:
        """Handle a TokenRequest: return it with the token in its status.

        DIFF: a token of 3607 s for a pod is valid as long as requested, not for a year
        (test_a_token_of_a_pod_lives_as_long_as_requested).
        """
        request = _check_request(namespace, name, tree)
        account = self._require("serviceaccounts", namespace, name)
        uid = text(mapping(account.get("metadata")).get("uid"))
        metadata, spec = mapping(request.get("metadata")), mapping(request.get("spec"))
        if text(metadata.get("uid")) not in ("", uid):
            why = (
                f"the UID in the token request ({metadata['uid']}) does not match "
                f"the UID of the service account ({uid})"
            )
            raise status.conflict("authentication.k8s.io", "TokenRequest", name, why)
        bound = self._bound_claims(namespace, name, spec.get("boundObjectRef"))
        seconds = spec.get("expirationSeconds") or DEFAULT_EXPIRATION_SECONDS
        audiences = spec.get("audiences") or list(self.audiences)
        now = int(self._clock())
        claims = {
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "iss": self._issuer,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": namespace,
                **bound,
                "serviceaccount": {"name": name, "uid": uid},
            },
            "nbf": now,
            "sub": service_account_user(namespace, name).name,
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                **metadata,
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": format_time(now),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {"token": self._key.sign(claims), "expirationTimestamp": format_time(now + seconds)},
        }

    def _bound_claims(self, namespace: str, account: str, reference: Any) -> dict[str, Any]:
        """Return the claims about the object that a token is bound to."""
        if reference is None:
            return {}
        wanted = mapping(reference)
        kind, name = text(wanted.get("kind")), text(wanted.get("name"))
        group, _, version = text(wanted.get("apiVersion")).rpartition("/")
        if group or kind not in _BOUND:
            shown = f"{group + '/' if group else '/'}{version}, Kind={kind}"
            raise status.bad_request(f"cannot bind token to object of type {shown}")
        tree = self._require(_BOUND[kind], "" if kind == "Node" else namespace, name)
        uid = text(mapping(tree.get("metadata")).get("uid"))
        node = text(mapping(tree.get("spec")).get("nodeName")) if kind == "Pod" else ""
        if kind == "Pod" and text(mapping(tree.get("spec")).get("serviceAccountName")) != account:
            raise status.bad_request(
                f'cannot bind token for serviceaccount "{account}" '
                "to pod running with different serviceaccount name."
            )
        if text(wanted.get("uid")) not in ("", uid):
            why = (
                f"the UID in the bound object reference ({wanted['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise status.conflict("", kind, name, why)
        claims = {kind.lower(): {"name": name, "uid": uid}}
        if node:
            stored = self._reader.get(ObjectKey("nodes", "", node))
            # The name of a deleted node is kept: the token then names the node of the pod.
            node_uid = text(_metadata(stored.raw).get("uid")) if stored else ""
            claims["node"] = {"name": node, "uid": node_uid} if node_uid else {"name": node}
        return claims

    def _require(self, resource: str, namespace: str, name: str) -> Mapping[str, Any]:
        stored = self._reader.get(ObjectKey(resource, namespace, name))
        if stored is None:
            raise status.not_found("", resource, name)
        return mapping(decode_tree(stored.raw))


def _check_request(namespace: str, name: str, tree: Any) -> Mapping[str, Any]:
    """Reject a TokenRequest that is malformed (400) or invalid (422)."""
    request = mapping(tree)
    metadata, spec = mapping(request.get("metadata")), mapping(request.get("spec"))
    seconds, audiences = spec.get("expirationSeconds"), spec.get("audiences")
    if seconds is not None and (not isinstance(seconds, int) or isinstance(seconds, bool)):
        raise status.bad_request("TokenRequest: spec.expirationSeconds must be an integer")
    if audiences is not None and not (
        isinstance(audiences, list) and all(isinstance(audience, str) for audience in audiences)
    ):
        raise status.bad_request("TokenRequest: spec.audiences must be a list of strings")
    if spec.get("boundObjectRef") is not None and not isinstance(spec["boundObjectRef"], dict):
        raise status.bad_request("TokenRequest: spec.boundObjectRef must be an object")
    problems = []
    for field, wanted in (("name", name), ("namespace", namespace)):
        given = metadata.get(field)
        if given and given != wanted:
            detail = f"must match the service account {field} if specified"
            problems.append(invalid(FieldPath("metadata").child(field), given, detail))
    path = FieldPath("spec").child("expirationSeconds")
    if seconds is not None and seconds < MIN_EXPIRATION_SECONDS:
        problems.append(invalid(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds is not None and seconds > MAX_EXPIRATION_SECONDS:
        problems.append(invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    if problems:
        raise status.invalid("authentication.k8s.io", "TokenRequest", "", problems)
    return request


def _read_claims(claims: Mapping[str, Any], issuer: str, usual: tuple[str, ...]) -> _VerifiedToken | None:
    """Read the claims of a verified token. The key is ours, so we never issued a malformed claim."""
    if claims.get("iss") != issuer:
        return None
    times = [claims.get(name) for name in ("nbf", "exp")]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in times):
        return None
    private = mapping(claims.get("kubernetes.io"))
    namespace, account = text(private.get("namespace")), mapping(private.get("serviceaccount"))
    name, uid = text(account.get("name")), text(account.get("uid"))
    user = service_account_user(namespace, name, uid)
    if not namespace or not name or claims.get("sub") != user.name:
        return None
    bound_objects = [_BoundObject(ObjectKey("serviceaccounts", namespace, name), uid)]
    extra: dict[str, tuple[str, ...]] = {}
    if text(claims.get("jti")):
        extra[EXTRA_CREDENTIAL] = (f"JTI={claims['jti']}",)
    pod, node, secret = (mapping(private.get(kind)) for kind in ("pod", "node", "secret"))
    if secret:
        bound_objects.append(
            _BoundObject(ObjectKey("secrets", namespace, text(secret.get("name"))), text(secret.get("uid")))
        )
    if pod:
        bound_objects.append(
            _BoundObject(ObjectKey("pods", namespace, text(pod.get("name"))), text(pod.get("uid")))
        )
        extra[EXTRA_POD_NAME], extra[EXTRA_POD_UID] = (text(pod.get("name")),), (text(pod.get("uid")),)
    if node:
        if not pod:
            bound_objects.append(
                _BoundObject(ObjectKey("nodes", "", text(node.get("name"))), text(node.get("uid")))
            )
        extra[EXTRA_NODE_NAME] = (text(node.get("name")),)
        if text(node.get("uid")):
            extra[EXTRA_NODE_UID] = (text(node.get("uid")),)
    audiences = claims.get("aud")
    listed = tuple(a for a in audiences if isinstance(a, str)) if isinstance(audiences, list) else ()
    starts, ends = (int(value or 0) for value in times)
    return _VerifiedToken(
        User(user.name, uid, user.groups, extra), starts, ends, listed or usual, tuple(bound_objects)
    )


def _metadata(raw: bytes) -> Mapping[str, Any]:
    try:
        return mapping(mapping(decode_tree(raw)).get("metadata"))
    except DecodeError:
        return {}


def _seconds(stamp: Any) -> float | None:
    """Convert a timestamp to seconds; an unreadable one is long past."""
    return None if stamp is None else parse_time(stamp) or 0.0
