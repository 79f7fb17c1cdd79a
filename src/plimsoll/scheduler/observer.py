"""Observer of scheduling attempts."""

from __future__ import annotations

from typing import ClassVar

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.reasons import NodeReason, Rule


class CycleObserver:
    """Receiver of the steps of a scheduling attempt; override what you need. It must not change anything."""

    #: Whether attempts run in full, even if their result is cached.
    needs_all_steps: ClassVar[bool] = True

    def on_start(self) -> None:
        """Handle the start of an attempt."""

    def on_pre_filter(self, rule: Rule, prepared: Filter | NodeReason | None) -> None:
        """Handle a filter that was prepared, rejects the pod, or does not apply to it (None)."""

    def on_filter(self, rule: Filter, removed: Mask) -> None:
        """Handle the nodes that a filter excluded; for devices, those where no search can succeed."""

    def on_device_search(self, row: int, found: bool) -> None:
        """Handle the end of a device search on a node."""

    def on_node_excluded(self, row: int, reasons: tuple[NodeReason, ...]) -> None:
        """Handle a node that a device search or the pods nominated to it excluded."""

    def on_score(self, scorer: str, weight: int, scores: Column) -> None:
        """Handle the scores of one scorer, which are valid for feasible nodes."""
