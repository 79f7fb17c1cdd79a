"""What a controller means to do, as values: writes to the API, events, and when to look again.

Owns the vocabulary between the plans, which only decide, and `perform.py`, which only carries out. A plan
is a list of actions in order. Promises: performing a plan again after any part of it was performed does no
harm, because every action either says which object and revision it is for, or has the same outcome twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from plimsoll.client.endpoints import Endpoint
from plimsoll.client.event_recorder import Report

if TYPE_CHECKING:
    from plimsoll.client.client import PatchType, Propagation


@dataclass(frozen=True, slots=True)
class Create:
    """Make an object; that one with its name is there already is as good."""

    endpoint: Endpoint
    tree: Mapping[str, Any]
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object; if it is gone, the rest of the plan is moot."""

    endpoint: Endpoint
    name: str
    patch: Mapping[str, Any]
    namespace: str = ""
    subresource: str = ""
    type: PatchType = "merge"
    manager: str = ""  #: who owns the fields that are applied
    #: Only if nobody else changed the object since the action before this one.
    chained: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """Replace an object by what a subresource takes in full (`namespaces/finalize`).

    If the action before changed the object, its new revision is the one that must still be there.
    """

    endpoint: Endpoint
    tree: Mapping[str, Any]
    subresource: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object; that it, or the one with this UID, is gone already is as good."""

    endpoint: Endpoint
    name: str
    namespace: str = ""
    uid: str = ""
    revision: str = ""
    grace: int | None = None
    propagation: Propagation | None = None


Action: TypeAlias = Create | Patch | Update | Delete | Report


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order, and what comes after them."""

    actions: tuple[Action, ...] = ()
    again: float | None = None  #: seconds after which to look again though nothing changed
    trouble: str = ""  #: why this is not finished; looked at again with growing delay

    def __bool__(self) -> bool:
        return bool(self.actions)


NOTHING = Plan()
