"""Dependencies shared by the request handlers: store, authenticator, authorizer, feature gates, clock, UID
source.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from plimsoll.api.gates import Gates
from plimsoll.apiserver.auth.authentication import Authenticator
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.service_accounts import ServiceAccountTokens
from plimsoll.apiserver.auth.signing_key import SigningKey
from plimsoll.apiserver.auth.token_file import StaticTokens
from plimsoll.apiserver.storage import Store


def _now() -> datetime:
    return datetime.now(UTC)


def _new_uid() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True)
class ApiContext:
    """Shared dependencies of one API."""

    store: Store
    authorizer: Authorizer
    authenticator: Authenticator
    service_accounts: ServiceAccountTokens
    gates: Gates = field(default_factory=Gates.default)
    now: Callable[[], datetime] = _now
    new_uid: Callable[[], str] = _new_uid

    @staticmethod
    def for_store(
        store: Store,
        *,
        tokens: StaticTokens | None = None,
        key: SigningKey | None = None,
        gates: Gates | None = None,
        now: Callable[[], datetime] = _now,
        new_uid: Callable[[], str] = _new_uid,
    ) -> ApiContext:
        """Create the context of a store. Without a key, service account tokens are valid for this process
        only.
        """
        accounts = ServiceAccountTokens(store, key or SigningKey.create())
        authenticator = Authenticator(tokens or StaticTokens(), accounts)
        rights = Authorizer(store)
        return ApiContext(store, rights, authenticator, accounts, gates or Gates.default(), now, new_uid)
