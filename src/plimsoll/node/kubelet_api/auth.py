"""Authentication and authorization of the kubelet API, as a kubelet does with its webhook modes.

Clients present a certificate of the client CA or a bearer token, which the API server reviews. What a user
may do is asked from the API server as well: the verb of the method on `nodes/proxy`, or on `nodes/stats`,
`nodes/metrics`, `nodes/pods`, `nodes/healthz` or `nodes/configz` for these paths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.client.delegated_auth import DelegatedAuth, ReviewClient, ReviewedUser
from plimsoll.errors import ApiError
from plimsoll.node.kubelet_api.pod_lookup import HttpRefusal

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
#: Subresources of nodes by path; the others are `proxy`. Some may be granted as `proxy` as well.
_SUBRESOURCES = {"stats": "stats", "metrics": "metrics"}
_FINE = {"pods": "pods", "runningpods": "pods", "healthz": "healthz", "configz": "configz"}


class KubeletAuth:
    """Decides who may call the API of one node."""

    def __init__(self, client: ReviewClient, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._auth = DelegatedAuth(client, clock)
        self._node = node

    async def check(
        self, method: str, path: str, certificate: Mapping[str, Any] | None, authorization: str
    ) -> HttpRefusal | None:
        """Return why a request is refused, or None."""
        try:
            user = certificate_user(certificate) if certificate else None
            user = user or await self._auth.authenticate(authorization)
            if user is None:
                return HttpRefusal(401, "Unauthorized")
            return await self._authorize(user, method, path)
        except (ApiError, TimeoutError) as error:
            problem = str(error) or "the API server does not respond"
            return HttpRefusal(503, f"the API server cannot review the request: {problem}")

    async def _authorize(self, user: ReviewedUser, method: str, path: str) -> HttpRefusal | None:
        verb, subresources = _VERBS.get(method, method.lower()), subresources_of(path)
        for subresource in subresources:
            right = {
                "verb": verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": self._node,
            }
            if await self._auth.is_allowed(user, "resourceAttributes", right):
                return None
        message = (
            f"Forbidden (user={user.name}, verb={verb}, resource=nodes, "
            f"subresource(s)=[{' '.join(subresources)}])"
        )
        return HttpRefusal(403, message)


def subresources_of(path: str) -> tuple[str, ...]:
    """Return the subresources of nodes of which one must be granted."""
    first = path.strip("/").partition("/")[0].lower()
    if first in _SUBRESOURCES:
        return (_SUBRESOURCES[first],)
    return (_FINE[first], "proxy") if first in _FINE else ("proxy",)


def certificate_user(certificate: Mapping[str, Any]) -> ReviewedUser | None:
    """Return the user of a verified client certificate: the common name, with organizations as groups."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    groups = tuple(value for key, value in subject if key == "organizationName")
    return ReviewedUser(names[-1], groups=(*groups, "system:authenticated")) if names and names[-1] else None
