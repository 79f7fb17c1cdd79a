"""Authentication and authorization of the kubelet API, as a kubelet does with its webhook modes.

Clients present a certificate of the client CA or a bearer token, which the API server reviews. What a user
may do is asked from the API server as well: the verb of the method on `nodes/proxy`, or on `nodes/stats`,
`nodes/metrics`, `nodes/pods`, `nodes/healthz` or `nodes/configz` for these paths. Answers are kept for a
while; without an answer every request is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from plimsoll.client.endpoints import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Endpoint
from plimsoll.common.json_tree import branch, text
from plimsoll.errors import ApiError
from plimsoll.node.kubelet_api.pod_lookup import HttpRefusal

#: The kubelet's cache times (seconds).
TOKEN_SECONDS, ALLOWED_SECONDS, DENIED_SECONDS = 120.0, 300.0, 30.0
_REVIEW_SECONDS = 10.0
_MAX_ENTRIES = 1024
_MAX_TOKEN_LENGTH = 16 * 1024
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
#: Subresources of nodes by path; the others are `proxy`. Some may be granted as `proxy` as well.
_SUBRESOURCES = {"stats": "stats", "metrics": "metrics"}
_FINE = {"pods": "pods", "runningpods": "pods", "healthz": "healthz", "configz": "configz"}

T = TypeVar("T")


class ReviewClient(Protocol):
    """Client of the API server."""

    async def create(self, endpoint: Endpoint, tree: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class KubeletUser:
    """Authenticated user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()


class _ExpiringCache(Generic[T]):
    """Bounded cache whose entries expire."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[object, tuple[float, T]] = OrderedDict()

    def get(self, key: object) -> T | None:
        found = self._entries.get(key)
        return found[1] if found is not None and found[0] > self._clock() else None

    def put(self, key: object, value: T, seconds: float) -> None:
        self._entries[key] = (self._clock() + seconds, value)
        self._entries.move_to_end(key)
        while len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)


class KubeletAuth:
    """Decides who may call the API of one node."""

    def __init__(self, client: ReviewClient, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._node = node
        self._users: _ExpiringCache[KubeletUser] = _ExpiringCache(clock)
        self._decisions: _ExpiringCache[bool] = _ExpiringCache(clock)

    async def check(
        self, method: str, path: str, certificate: Mapping[str, Any] | None, authorization: str
    ) -> HttpRefusal | None:
        """Return why a request is refused, or None."""
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                user = await self._authenticate(certificate, authorization)
                if user is None:
                    return HttpRefusal(401, "Unauthorized")
                return await self._authorize(user, method, path)
        except (ApiError, TimeoutError) as error:
            problem = str(error) or "the API server does not respond"
            return HttpRefusal(503, f"the API server cannot review the request: {problem}")

    async def _authenticate(
        self, certificate: Mapping[str, Any] | None, authorization: str
    ) -> KubeletUser | None:
        if certificate:
            user = certificate_user(certificate)
            if user is not None:
                return user
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN_LENGTH:
            return None
        key = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._users.get(key)
        if known is not None:
            return known
        review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": {"token": token}}
        status = branch(await self._client.create(TOKEN_REVIEWS, review), "status")
        if status.get("authenticated") is not True:
            return None
        found = branch(status, "user")
        groups = tuple(group for group in found.get("groups") or () if isinstance(group, str))
        user = KubeletUser(text(found, "username"), text(found, "uid"), groups)
        self._users.put(key, user, TOKEN_SECONDS)
        return user

    async def _authorize(self, user: KubeletUser, method: str, path: str) -> HttpRefusal | None:
        verb, subresources = _VERBS.get(method, method.lower()), subresources_of(path)
        for subresource in subresources:
            key = (user, verb, subresource)
            allowed = self._decisions.get(key)
            if allowed is None:
                allowed = await self._review(user, verb, subresource)
                self._decisions.put(key, allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS)
            if allowed:
                return None
        message = (
            f"Forbidden (user={user.name}, verb={verb}, resource=nodes, "
            f"subresource(s)=[{' '.join(subresources)}])"
        )
        return HttpRefusal(403, message)

    async def _review(self, user: KubeletUser, verb: str, subresource: str) -> bool:
        review = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "uid": user.uid,
                "groups": list(user.groups),
                "resourceAttributes": {
                    "verb": verb,
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": subresource,
                    "name": self._node,
                },
            },
        }
        status = branch(await self._client.create(SUBJECT_ACCESS_REVIEWS, review), "status")
        return status.get("allowed") is True and status.get("denied") is not True


def subresources_of(path: str) -> tuple[str, ...]:
    """Return the subresources of nodes of which one must be granted."""
    first = path.strip("/").partition("/")[0].lower()
    if first in _SUBRESOURCES:
        return (_SUBRESOURCES[first],)
    return (_FINE[first], "proxy") if first in _FINE else ("proxy",)


def certificate_user(certificate: Mapping[str, Any]) -> KubeletUser | None:
    """Return the user of a verified client certificate: the common name, with organizations as groups."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    groups = tuple(value for key, value in subject if key == "organizationName")
    return KubeletUser(names[-1], groups=(*groups, "system:authenticated")) if names and names[-1] else None
