"""The rules that say where a pod may go, a small module each; `filter.py` is what they have in common."""

from __future__ import annotations

from plimsoll.schedule.filters.filter import Filter

#: In kube-scheduler's order; the first rule that a node breaks is the one that is told. Devices come last.
FILTERS: tuple[type[Filter], ...] = ()
