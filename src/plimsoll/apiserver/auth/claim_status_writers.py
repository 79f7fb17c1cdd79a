"""Writer of a claim's status, as validation needs it.

`caller_for` returns the writer's verb, the node that its service account token is bound to, and a check of
permissions on single parts of the status (granular status authorization).
"""

from __future__ import annotations

from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.users import EXTRA_NODE_NAME, User, split_service_account
from plimsoll.apiserver.validation.claim_status_authorization import Caller, Permission


def caller_for(user: User, authorizer: Authorizer, verb: str) -> Caller:
    """Return the writer of a ResourceClaim; `verb` is that of the request, update or patch."""
    # Only service account tokens are bound to nodes; the extra fields of other users are not trusted.
    nodes = user.extra.get(EXTRA_NODE_NAME, ()) if split_service_account(user.name) else ()

    def permits(right: Permission) -> bool:
        return authorizer.allows(
            Attributes(
                user,
                right.verb,
                "resource.k8s.io",
                "*",
                "resourceclaims",
                right.subresource,
                right.namespace,
                right.name,
            )
        )

    return Caller(permits, verb, nodes[0] if len(nodes) == 1 else "", user.name)
