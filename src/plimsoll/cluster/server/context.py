"""What every part of the API works with: the store, the gates, the clock and the source of identities."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from plimsoll.api.gates import Gates
from plimsoll.cluster.server.security.authorization import Authorizer
from plimsoll.cluster.store import Store


def _now() -> datetime:
    return datetime.now(UTC)


def _new_uid() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True)
class Context:
    """Shared by the parts of one API."""

    store: Store
    authorizer: Authorizer
    gates: Gates = field(default_factory=Gates.all_on)
    now: Callable[[], datetime] = _now
    new_uid: Callable[[], str] = _new_uid
