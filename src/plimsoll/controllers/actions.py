"""Actions that controllers plan: API writes and events, as values.

Pure `plan_*` functions return them and `action_executor.py` executes them. Executing a plan again after any
part of it ran is safe: every action either names the object and revision it is for or is idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from plimsoll.client.endpoints import Endpoint
from plimsoll.client.event_recorder import EventRecord

if TYPE_CHECKING:
    from plimsoll.client.client import PatchType, Propagation


@dataclass(frozen=True, slots=True)
class CreateAction:
    """Create an object; succeeds if an object of that name already exists."""

    endpoint: Endpoint
    tree: Mapping[str, Any]
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class PatchAction:
    """Patch an object; if it no longer exists, the rest of the plan is skipped."""

    endpoint: Endpoint
    name: str
    patch: Mapping[str, Any]
    namespace: str = ""
    subresource: str = ""
    type: PatchType = "merge"
    field_manager: str = ""  #: for server-side apply
    #: Require the resourceVersion that the previous action returned.
    chained: bool = False


@dataclass(frozen=True, slots=True)
class UpdateAction:
    """Replace an object through a subresource that takes the full object (`namespaces/finalize`).

    If the previous action changed the object, its new resourceVersion is the precondition.
    """

    endpoint: Endpoint
    tree: Mapping[str, Any]
    subresource: str


@dataclass(frozen=True, slots=True)
class DeleteAction:
    """Delete an object; succeeds if it, or the object with this UID, no longer exists."""

    endpoint: Endpoint
    name: str
    namespace: str = ""
    uid: str = ""
    revision: str = ""
    grace: int | None = None
    propagation: Propagation | None = None


Action: TypeAlias = CreateAction | PatchAction | UpdateAction | DeleteAction | EventRecord


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """Actions in order, and when to reconcile the key again."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None  #: seconds after which to reconcile again
    error: str = ""  #: reason for a retry with backoff

    def __bool__(self) -> bool:
        return bool(self.actions)


EMPTY_PLAN = ActionPlan()
