"""Builders of affinity terms and spread constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.core import Namespace
from tests.unit.scheduler.topology.clusters import HOSTNAME, PREFERRED, REQUIRED

__all__ = ["HOSTNAME", "affinity", "namespace", "spread", "term"]


def term(app: str | None = "a", key: str = "zone", **fields: Any) -> dict[str, Any]:
    """Return a term for pods with the label `app` (None: no selector), in a topology; with further fields."""
    chosen = {} if app is None else {"labelSelector": {"matchLabels": {"app": app}}}
    return {**chosen, "topologyKey": key, **fields}


def affinity(
    *near: Mapping[str, Any],
    apart: tuple[Mapping[str, Any], ...] = (),
    likes: tuple[tuple[int, Mapping[str, Any]], ...] = (),
    dislikes: tuple[tuple[int, Mapping[str, Any]], ...] = (),
) -> dict[str, Any]:
    """Return required and preferred affinity and anti-affinity, with weights."""

    def side(required: Any, preferred: Any) -> dict[str, Any]:
        weighted = [{"weight": weight, "podAffinityTerm": dict(each)} for weight, each in preferred]
        return {REQUIRED: [dict(each) for each in required], PREFERRED: weighted}

    return {"podAffinity": side(near, likes), "podAntiAffinity": side(apart, dislikes)}


def spread(key: str = "zone", skew: int = 1, must: bool = True, app: str | None = "a", **fields: Any) -> Any:
    """Return a spread constraint over pods with the label `app`."""
    chosen = {} if app is None else {"labelSelector": {"matchLabels": {"app": app}}}
    when = "DoNotSchedule" if must else "ScheduleAnyway"
    return {**chosen, "topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, **fields}


def namespace(name: str, **labels: str) -> Namespace:
    return convert({"metadata": {"name": name, "labels": labels}}, Namespace)
