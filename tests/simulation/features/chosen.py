"""Features of one case, chosen by its seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.simulation.events import Event
from tests.simulation.features.binding_conditions import BindingConditions
from tests.simulation.features.feature import Feature
from tests.simulation.features.gangs import Gangs
from tests.simulation.features.late_objects import LateObjects
from tests.simulation.features.meddlers import Meddlers
from tests.simulation.features.preemption import Preemption
from tests.simulation.features.volumes import Volumes

if TYPE_CHECKING:
    from tests.simulation.case import Case

Tree = dict[str, Any]
_FEATURES: tuple[type[Feature], ...] = (
    Volumes,
    Gangs,
    BindingConditions,
    Preemption,
    LateObjects,
    Meddlers,
)


class ChosenFeatures:
    """Some features, mostly one or two: what needs many of one kind is not found where all are mixed."""

    def __init__(self, case: Case, *, any_at_all: bool = True) -> None:
        dice = case.dice("features")
        share = dice.choice((0.0, 0.2, 0.4, 0.7))
        self._all = [each(case) for each in _FEATURES if dice.random() < share and any_at_all]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self._all]

    def create_objects(self) -> None:
        for each in self._all:
            each.create_objects()

    def events(self) -> Iterator[Event]:
        for each in self._all:
            yield from each.events()

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        for each in self._all:
            each.on_change(plural, old, new)

    def help_to_rest(self) -> None:
        for each in self._all:
            each.is_calm = True
            each.help_to_rest()

    def find_unrest(self) -> Iterator[str]:
        for each in self._all:
            yield from each.find_unrest()

    def may_judge(self, pod: Tree, node: str) -> bool:
        """Return whether a pending pod must be placed if it fits a node."""
        found = (each.nodes_of(pod) for each in self._all)
        return all(nodes is None or node in nodes for nodes in found)
