"""Base of the features: what a case asks each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.simulation.events import Event
from tests.simulation.faults import Dice

if TYPE_CHECKING:
    from tests.simulation.case import Case

Tree = dict[str, Any]
Action = Callable[[Dice], str]


class Feature:
    """Part of the load of a case; every method may do nothing."""

    name = ""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.admin = case.admin
        #: Whether faults have ended: stand-ins give up failing, and whatever is late comes.
        self.is_calm = False
        self._reactions: dict[str, int] = {}

    def create_objects(self) -> None:
        """Create what the cluster has from the start."""

    def events(self) -> Iterator[Event]:
        """Yield the events of the case."""
        yield from ()

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        """Check a write, and let stand-ins react to it some time later."""

    def help_to_rest(self) -> None:
        """Bring what is late, again and again while the cluster comes to rest."""

    def find_unrest(self) -> Iterator[str]:
        """Yield what is wrong at rest."""
        yield from ()

    def nodes_of(self, pod: Tree) -> frozenset[str] | None:
        """Return the nodes on which it can be judged whether a pending pod fits; None: all of them."""
        return None

    # -- for subclasses

    def repeat(self, key: str, per_second: float, action: Action, fault: str = "") -> Iterator[Event]:
        """Yield events at random times."""
        seconds = self.case.seconds
        for number in range(int(per_second * seconds)):
            name = f"{self.name}/{key}/{number}"
            yield Event(self.case.dice(f"{name}/at").random() * seconds, name, action, fault)

    def react(self, key: str, seconds: float, act: Callable[[Dice], None]) -> None:
        """Act at most `seconds` later, as a controller that has seen a write."""
        count = self._reactions[key] = self._reactions.get(key, 0) + 1
        dice = self.case.dice(f"{self.name}/{key}/{count}")
        loop = self.case.loop
        loop.call_at_global(loop.now + dice.random() * seconds, act, dice)

    def report(self, violation: str) -> None:
        self.case.report(violation)

    def tree(self, plural: str, name: str, namespace: str = "") -> Tree | None:
        """Return an object of the server."""
        for each in self.case.api.list_trees(plural):
            meta = each["metadata"]
            if meta["name"] == name and meta.get("namespace", "") == namespace:
                return each
        return None


def is_bound_now(old: Tree | None, new: Tree | None) -> bool:
    """Return whether a write bound a pod."""
    was = old is not None and old["spec"].get("nodeName")
    return new is not None and bool(new["spec"].get("nodeName")) and not was
