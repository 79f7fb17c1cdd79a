"""Arguments of plugins, and kube-scheduler's checks of them.

A check raises a DecodeError that names the field below `where`; the texts are those of kube-scheduler where
it has one (`pkg/scheduler/apis/config/validation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.api.core import NodeAffinity, TopologySpreadConstraint
from plimsoll.api.names import label_key
from plimsoll.api.node_selection import find_selector_problem, find_term_problem
from plimsoll.errors import DecodeError

#: Highest score of a `ShapePoint`; kube-scheduler's MaxCustomPriorityScore.
SHAPE_SCORE_MAX = 10
UTILIZATION_MAX = 100
WHEN_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePoint:
    """Point of a function from utilization (0 to 100) to a score (0 to 10)."""

    utilization: int = 0
    score: int = 0


def check_shape(shape: Sequence[ShapePoint], where: str) -> None:
    """Check a function shape: at least one point, in increasing order."""
    if not shape:
        raise DecodeError("at least one point must be specified", where)
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            raise DecodeError("values must be sorted in increasing order", f"{where}[{index}].utilization")
    for index, point in enumerate(shape):
        for name, value, most in (
            ("utilization", point.utilization, UTILIZATION_MAX),
            ("score", point.score, SHAPE_SCORE_MAX),
        ):
            if not 0 <= value <= most:
                raise DecodeError(f"not in valid range [0, {most}], got {value}", f"{where}[{index}].{name}")


def check_ignored(resources: Sequence[str], groups: Sequence[str], where: str = "") -> None:
    """Check the resources and resource groups that NodeResourcesFit ignores."""
    for index, name in enumerate(resources):
        if problems := label_key(name):
            raise DecodeError(f"{name!r}: {problems[0]}", f"{where}ignoredResources[{index}]")
    for index, group in enumerate(groups):
        problem = "resource group name can't contain '/'" if "/" in group else "".join(label_key(group)[:1])
        if problem:
            raise DecodeError(f"{group!r}: {problem}", f"{where}ignoredResourceGroups[{index}]")


def check_added_affinity(affinity: NodeAffinity, where: str) -> None:
    """Check the node affinity that is added to that of each pod."""
    if affinity.required is not None:
        at = f"{where}.requiredDuringSchedulingIgnoredDuringExecution"
        if problem := find_selector_problem(affinity.required):
            raise DecodeError(problem.message, f"{at}.{problem.field}")
    for index, term in enumerate(affinity.preferred):
        at = f"{where}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if term.weight and (problem := find_term_problem(term.preference, at)):
            raise DecodeError(problem.message, problem.field)


def check_default_constraints(constraints: Sequence[TopologySpreadConstraint], where: str) -> None:
    """Check spread constraints that have no selector of their own."""
    seen: set[tuple[str, str]] = set()
    for index, each in enumerate(constraints):
        at = f"{where}[{index}]"
        if each.max_skew <= 0:
            raise DecodeError(f"not in valid range (0, inf), got {each.max_skew}", f"{at}.maxSkew")
        if not each.topology_key:
            raise DecodeError("can not be empty", f"{at}.topologyKey")
        if problems := label_key(each.topology_key):
            raise DecodeError(f"{each.topology_key!r}: {problems[0]}", f"{at}.topologyKey")
        if not each.when_unsatisfiable:
            raise DecodeError("can not be empty", f"{at}.whenUnsatisfiable")
        if each.when_unsatisfiable not in WHEN_UNSATISFIABLE:
            words = ", ".join(WHEN_UNSATISFIABLE)
            raise DecodeError(
                f"must be one of {words}, not {each.when_unsatisfiable!r}", f"{at}.whenUnsatisfiable"
            )
        if each.label_selector is not None:
            raise DecodeError(
                "constraint must not define a selector, as they deduced for each pod", f"{at}.labelSelector"
            )
        key = each.topology_key, each.when_unsatisfiable
        if key in seen:
            raise DecodeError(f"duplicate value: {{{key[0]}, {key[1]}}}", at)
        seen.add(key)
