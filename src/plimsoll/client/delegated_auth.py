"""Authentication and authorization delegated to the API server, as in kube-scheduler and the kubelet.

A bearer token is reviewed by a TokenReview, what its user may do by a SubjectAccessReview. Answers are kept
for a while. Without an answer of the API server every request is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from plimsoll.client.endpoints import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Endpoint
from plimsoll.common.health import SecureServing
from plimsoll.common.http_pages import PageRequest, PageResponse
from plimsoll.common.json_tree import branch, text
from plimsoll.errors import ApiError

#: The kubelet's cache times (seconds).
TOKEN_SECONDS, ALLOWED_SECONDS, DENIED_SECONDS = 120.0, 300.0, 30.0
_REVIEW_SECONDS = 10.0
_MAX_ENTRIES = 1024
_MAX_TOKEN_LENGTH = 16 * 1024
#: Concurrent reviews: strangers must not use up the calls of a component.
_MAX_REVIEWS = 4

T = TypeVar("T")


class ReviewClient(Protocol):
    """Client of the API server."""

    async def create(self, endpoint: Endpoint, tree: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ReviewedUser:
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


class DelegatedAuth:
    """Reviews of users and of their rights. Methods raise ApiError or TimeoutError without an answer."""

    def __init__(self, client: ReviewClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._reviews = asyncio.Semaphore(_MAX_REVIEWS)
        self._users: _ExpiringCache[ReviewedUser] = _ExpiringCache(clock)
        self._decisions: _ExpiringCache[bool] = _ExpiringCache(clock)

    async def authenticate(self, authorization: str) -> ReviewedUser | None:
        """Return the user of the token in an `Authorization` header, or None."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN_LENGTH:
            return None
        key = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._users.get(key)
        if known is not None:
            return known
        review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": {"token": token}}
        status = branch(await self._create(TOKEN_REVIEWS, review), "status")
        if status.get("authenticated") is not True:
            return None
        found = branch(status, "user")
        groups = tuple(group for group in found.get("groups") or () if isinstance(group, str))
        user = ReviewedUser(text(found, "username"), text(found, "uid"), groups)
        self._users.put(key, user, TOKEN_SECONDS)
        return user

    async def is_allowed(self, user: ReviewedUser, kind: str, attributes: Mapping[str, str]) -> bool:
        """Return whether a user has a right; `kind` is resourceAttributes or nonResourceAttributes."""
        key = (user, kind, *attributes.items())
        allowed = self._decisions.get(key)
        if allowed is None:
            review = {
                "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.name,
                    "uid": user.uid,
                    "groups": list(user.groups),
                    kind: dict(attributes),
                },
            }
            status = branch(await self._create(SUBJECT_ACCESS_REVIEWS, review), "status")
            allowed = status.get("allowed") is True and status.get("denied") is not True
            self._decisions.put(key, allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS)
        return allowed

    async def _create(self, endpoint: Endpoint, review: Mapping[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(_REVIEW_SECONDS), self._reviews:
            return await self._client.create(endpoint, review)


def secure_serving(client: ReviewClient, cert_dir: Path | None) -> SecureServing | None:
    """Return how pages are served with a directory of certificates; None without one.

    The user of the token needs the right to `get` the path.
    """
    if cert_dir is None:
        return None
    auth = DelegatedAuth(client)

    async def check(request: PageRequest) -> PageResponse | None:
        try:
            user = await auth.authenticate(request.authorization)
            if user is None:
                return PageResponse("401: a bearer token is required", 401)
            right = {"path": request.path, "verb": "get"}
            if await auth.is_allowed(user, "nonResourceAttributes", right):
                return None
            return PageResponse(f'403: user "{user.name}" cannot get path "{request.path}"', 403)
        except (ApiError, TimeoutError) as error:
            problem = str(error) or "the API server does not respond"
            return PageResponse(f"503: the API server cannot review the request: {problem}", 503)

    return SecureServing(cert_dir, check)
