"""Validation of `podFailurePolicy` and `successPolicy` of jobs."""

from __future__ import annotations

import re

from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from plimsoll.apiserver.validation.int_or_string import validate_not_negative
from plimsoll.apiserver.validation.name_formats import validate_label_key

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_RULES_MAX = 20
_PATTERNS_MAX = 20
_EXIT_CODES_MAX = 255
_INDEXES_BYTES_MAX = 64 * 1024
_NUMBER = re.compile(r"[+-]?[0-9]+")


def validate_failure_policy(spec: View, path: FieldPath) -> FieldErrors:
    rules = spec.pod_failure_policy.rules
    if len(rules) > _RULES_MAX:
        yield too_many(path.child("rules"), len(rules), _RULES_MAX)
    pod = spec.template.spec
    containers = {each.name for each in (*pod.containers, *pod.init_containers)}
    for index, rule in enumerate(rules):
        yield from _validate_failure_rule(spec, rule, containers, path.child("rules").index(index))


def _validate_failure_rule(spec: View, rule: View, containers: set[str], path: FieldPath) -> FieldErrors:
    if rule.action == "FailIndex" and spec.backoff_limit_per_index is None:
        yield invalid(path.child("action"), rule.action, "requires the backoffLimitPerIndex to be set")
    yield from _validate_choice(rule.action, _ACTIONS, path.child("action"))
    codes, patterns = rule.on_exit_codes, rule.on_pod_conditions
    if codes is not None:
        yield from _validate_exit_codes(codes, containers, path.child("onExitCodes"))
    at = path.child("onPodConditions")
    if len(patterns) > _PATTERNS_MAX:
        yield too_many(at, len(patterns), _PATTERNS_MAX)
    for index, pattern in enumerate(patterns):
        yield from validate_label_key(pattern.type, at.index(index).child("type"))
        yield from _validate_choice(pattern.status, _STATUSES, at.index(index).child("status"))
    if (codes is None) == (not patterns):
        yield invalid(path, None, "must have exactly one of onExitCodes and onPodConditions")


def _validate_exit_codes(codes: View, containers: set[str], path: FieldPath) -> FieldErrors:
    yield from _validate_choice(codes.operator, _OPERATORS, path.child("operator"))
    if codes.container_name is not None and codes.container_name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(path.child("containerName"), codes.container_name, detail)
    at, values = path.child("values"), codes.values
    if not values:
        yield invalid(at, None, "at least one value is required")
    elif len(values) > _EXIT_CODES_MAX:
        yield too_many(at, len(values), _EXIT_CODES_MAX)
    for index, value in enumerate(values):
        if codes.operator == "In" and value == 0:
            yield invalid(at.index(index), value, "must not be 0 for the In operator")
        if value in values[:index]:
            yield duplicate(at.index(index), value)
    if list(values) != sorted(values):
        yield invalid(at, None, "must be ordered")


def _validate_choice(value: str, allowed: tuple[str, ...], path: FieldPath) -> FieldErrors:
    if not value:
        yield required(path, f"must be one of: {', '.join(allowed)}")
    elif value not in allowed:
        yield not_supported(path, value, allowed)


def validate_success_policy(spec: View, path: FieldPath) -> FieldErrors:
    if spec.completion_mode != "Indexed":
        yield invalid(path, None, "requires indexed completion mode")
        return
    rules, at = spec.success_policy.rules, path.child("rules")
    if not rules:
        yield required(at, "at least one rule must be given")
    if len(rules) > _RULES_MAX:
        yield too_many(at, len(rules), _RULES_MAX)
    for index, rule in enumerate(rules):
        yield from _validate_success_rule(rule, spec.completions or 0, at.index(index))


def _validate_success_rule(rule: View, completions: int, path: FieldPath) -> FieldErrors:
    count, indexes, total = rule.succeeded_count, rule.succeeded_indexes, 0
    if count is None and indexes is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if indexes is not None:
        at = path.child("succeededIndexes")
        if len(indexes.encode()) > _INDEXES_BYTES_MAX:
            yield too_long(at, _INDEXES_BYTES_MAX)
        try:
            total = count_ordered_indexes(indexes, completions)
        except ValueError as error:
            yield invalid(at, indexes, f"error parsing succeededIndexes: {error}")
    if count is not None:
        at = path.child("succeededCount")
        yield from validate_not_negative(count, at)
        if count > completions:
            yield invalid(at, count, f"must be at most {completions} (the number of completions)")
        if indexes is not None and count > total:
            yield invalid(at, count, f"must be at most {total} (the number of indexes in succeededIndexes)")


def count_ordered_indexes(text: str, completions: int) -> int:
    """Return how many indexes a text such as `1,3-5` has. Raise ValueError if it is malformed, not in
    ascending order, or has indexes that a job with this number of completions does not have.
    """
    total, last = 0, -1
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2 or not all(map(_NUMBER.fullmatch, limits)):
            raise ValueError(f"{part!r} is neither an index nor a range of indexes")
        first, end = int(limits[0]), int(limits[-1])
        if max(first, end) >= completions:
            raise ValueError(f"too large index: {max(first, end)}")
        if first <= last or (len(limits) == 2 and first >= end):
            raise ValueError(f"{part!r} is not in ascending order")
        total, last = total + end - first + 1, end
    return total
