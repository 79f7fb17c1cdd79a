"""Impersonation: the Impersonate-* headers that `kubectl --as` sends.

The sender must have the right to impersonate each user, group, UID and extra field that they name. Headers
may be repeated, so they are passed as pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from plimsoll.apiserver import status
from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.users import (
    ALL_SERVICE_ACCOUNTS,
    ALL_UNAUTHENTICATED,
    User,
    split_service_account,
)

#: Prefix of the headers, in lower case.
IMPERSONATION = "impersonate-"
_EXTRA = "impersonate-extra-"
_GROUP = "authentication.k8s.io"


def impersonate(user: User, headers: Iterable[tuple[str, str]], authorizer: Authorizer) -> User:
    """Return the effective user of a request: the sender, or the one its headers name.

    ApiError 403 if the sender may not impersonate one of them, 400 if no user is named.
    """
    named = [(key.lower(), value) for key, value in headers if key.lower().startswith(IMPERSONATION)]
    if not named:
        return user
    name = next((value for key, value in named if key == "impersonate-user"), "")
    uid = next((value for key, value in named if key == "impersonate-uid"), "")
    groups = [value for key, value in named if key == "impersonate-group"]
    extra: dict[str, list[str]] = {}
    for key, value in named:
        if key.startswith(_EXTRA):
            extra.setdefault(_unescape(key[len(_EXTRA) :]), []).append(value)
    if not name:
        if groups or uid or extra:
            raise status.bad_request("requested groups, a uid or extra fields without impersonating a user")
        return user
    account = split_service_account(name)
    required = [
        Attributes(user, "impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])
        if account
        else Attributes(user, "impersonate", resource="users", name=name),
        *(Attributes(user, "impersonate", resource="groups", name=group) for group in groups),
        *(
            Attributes(user, "impersonate", _GROUP, "v1", "userextras", key, name=value)
            for key, values in extra.items()
            for value in values
        ),
    ]
    if uid:
        required.append(Attributes(user, "impersonate", _GROUP, "v1", "uids", name=uid))
    for attributes in required:
        authorizer.require(attributes)
    if account and not groups:
        groups = [ALL_SERVICE_ACCOUNTS, f"{ALL_SERVICE_ACCOUNTS}:{account[0]}"]
    found = User(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})
    if not found.is_anonymous:
        return found.as_authenticated()
    if ALL_UNAUTHENTICATED in groups:
        return found
    return User(name, uid, (*groups, ALL_UNAUTHENTICATED), found.extra)


def _unescape(key: str) -> str:
    """Decode a percent-encoded key; an undecodable one is returned as it is."""
    try:
        return unquote_to_bytes(key).decode()
    except UnicodeDecodeError:
        return key
