"""`plimsoll check`: validate objects as the API server would on create.

Kinds that are not validated are reported as such and otherwise skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plimsoll.api.gates import Gates
from plimsoll.api.kinds import is_namespaced
from plimsoll.apiserver.admission.limit_ranges import apply_defaults, find_violations
from plimsoll.apiserver.registry.schema import find_strict_errors
from plimsoll.apiserver.validation import PreparedObject, Write, prepare
from plimsoll.errors import DecodeError, InputError
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.colors import PLAIN, Paint

KINDS = ("DeviceClass", "DeviceTaintRule", "Pod", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
LIMIT_RANGE = "LimitRange"
#: Accepted name -> (plural, kind), in the order they are read.
_NAMES: dict[str, tuple[str, str]] = {
    name: (plural, kind)
    for plural, kind, short in (
        ("resourceslices", "ResourceSlice", "slices"),
        ("deviceclasses", "DeviceClass", "classes"),
        ("devicetaintrules", "DeviceTaintRule", "rules"),
        ("resourceclaimtemplates", "ResourceClaimTemplate", "templates"),
        ("resourceclaims", "ResourceClaim", "claims"),
        ("pods", "Pod", "po"),
    )
    for name in (plural, kind.lower(), short)
}
_ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Validation result of one object; `known` is False if the kind is not validated."""

    known: bool
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_object(
    tree: Mapping[str, Any],
    now: datetime,
    gates: Gates | None = None,
    limit_ranges: Iterable[dict[str, Any]] = (),
) -> CheckResult:
    """Validate an object as a create; an object that cannot be decoded has that single problem.

    `limit_ranges` are those of its namespace, which pods must not violate.

    An object without a namespace is placed in `default`, as kubectl does. The Namespace object is not
    available, so admin access is assumed to be allowed in it.
    """
    kind = str(tree.get("kind", ""))
    if kind not in KINDS:
        return CheckResult(False)
    given = dict(tree)
    metadata = given.get("metadata")
    if is_namespaced(kind) and isinstance(metadata, Mapping) and not metadata.get("namespace"):
        given["metadata"] = {**metadata, "namespace": "default"}
    write = Write(kind, "create", given, now, gates=gates or Gates.default(), namespace_labels=_ADMIN_ACCESS)
    try:
        prepared: PreparedObject = prepare(write)
    except DecodeError as error:
        return CheckResult(True, (str(error),))
    warnings = (*prepared.warnings, *find_strict_errors(tree))
    problems = tuple(str(problem) for problem in prepared.errors)
    if kind == "Pod" and not problems:
        ranges = list(limit_ranges)
        refusal = find_violations(kind, apply_defaults(prepared.tree, ranges), ranges)
        problems = (refusal,) if refusal else ()
    return CheckResult(True, problems, warnings)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Validated objects with their results."""

    results: tuple[tuple[ParsedObject, CheckResult], ...]
    server: str = ""  #: cluster they were read from; "" for files

    @property
    def refused(self) -> int:
        return sum(1 for _, checked in self.results if checked.problems)

    def lines(self, paint: Paint = PLAIN, *, wide: bool = False) -> Iterator[str]:
        """Yield the problems by object and a summary line; `wide` also lists valid objects."""
        for found, checked in self.results:
            title = f"{found.kind} {found.full_name if self.server else found.name}"
            place = "" if self.server else f" ({found.where})"
            if checked.problems:
                yield f"{paint.red(title)}{place}:"
                yield from (f"  {problem}" for problem in checked.problems)
            elif wide:
                yield f"{title}{place}: {'valid' if checked.known else 'this kind is not validated'}"
            for warning in checked.warnings:
                yield f"{title}: {paint.yellow('warning')}: {warning}"
        known = sum(1 for _, checked in self.results if checked.known)
        others = len(self.results) - known
        skipped = f"; {others} of kinds that are not validated" if others else ""
        invalid = f"{self.refused} invalid"
        if self.refused:
            invalid = paint.red(invalid)
        counted = f"{known} of {self.server} checked:" if self.server else f"{known} checked,"
        yield f"{counted} {known - self.refused} valid, {invalid}{skipped}"

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "kind": found.kind,
                "name": found.name,
                **({"namespace": found.namespace} if found.namespace else {}),
                "where": found.where,
                "checked": checked.known,
                "problems": list(checked.problems),
                "warnings": list(checked.warnings),
            }
            for found, checked in self.results
        ]


def read_kinds(names: Iterable[str]) -> dict[str, str]:
    """Return {plural: kind} for the names users write, such as `slices,pods`; all kinds if none is named."""
    requested = [name for text in names for name in text.split(",") if name]
    for name in requested:
        if name.lower() not in _NAMES:
            known = ", ".join(dict(_NAMES.values()))
            fix = "; pass files with -f" if "." in name or "/" in name else ""
            raise InputError(f"{name}: this kind is not validated; valid kinds: {known}{fix}")
    wanted = {_NAMES[name.lower()][0] for name in requested}
    return {plural: kind for plural, kind in _NAMES.values() if plural in wanted or not requested}


def check_all(objects: Iterable[ParsedObject], now: datetime, gates: Gates, server: str = "") -> CheckReport:
    """Validate many objects, pods also by the LimitRanges among them; `server` is the cluster they were read
    from, if any.
    """
    given = list(objects)
    ranges: dict[str, list[dict[str, Any]]] = {}
    for found in given:
        if found.kind == LIMIT_RANGE:
            ranges.setdefault(found.namespace or "default", []).append(found.tree)
    results = (
        (found, check_object(found.tree, now, gates, ranges.get(found.namespace or "default", ())))
        for found in given
        if not server or found.kind != LIMIT_RANGE
    )
    return CheckReport(tuple(results), server)
