"""Would the API server take this object? The validator asked from outside.

Owns checking objects as if they were created now. Kinds without rules of their own are passed by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plimsoll.api.gates import Gates
from plimsoll.cluster.dump import Found
from plimsoll.errors import DecodeError
from plimsoll.validate import Prepared, Write, prepare

KINDS = ("DeviceClass", "DeviceTaintRule", "Pod", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_NAMESPACED = ("Pod", "ResourceClaim", "ResourceClaimTemplate")
_ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}


@dataclass(frozen=True, slots=True)
class Checked:
    """What checking one object found; `known` is False for a kind we have no rules for."""

    known: bool
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_object(tree: Mapping[str, Any], now: datetime, gates: Gates | None = None) -> Checked:
    """Check an object as a create; an object that cannot even be decoded has that one problem.

    An object without a namespace goes to `default`, as with kubectl. The namespace itself is not at hand, so
    admin access is taken to be allowed there.
    """
    kind = str(tree.get("kind", ""))
    if kind not in KINDS:
        return Checked(False)
    given = dict(tree)
    metadata = given.get("metadata")
    if kind in _NAMESPACED and isinstance(metadata, Mapping) and not metadata.get("namespace"):
        given["metadata"] = {**metadata, "namespace": "default"}
    write = Write(kind, "create", given, now, gates=gates or Gates.all_on(), namespace_labels=_ADMIN_ACCESS)
    try:
        prepared: Prepared = prepare(write)
    except DecodeError as error:
        return Checked(True, (str(error),))
    return Checked(True, tuple(str(problem) for problem in prepared.problems), prepared.warnings)


@dataclass(frozen=True, slots=True)
class Report:
    """The objects that were looked at, each with what was found."""

    results: tuple[tuple[Found, Checked], ...]

    @property
    def refused(self) -> int:
        return sum(1 for _, checked in self.results if checked.problems)

    def lines(self) -> Iterator[str]:
        """What is wrong, object by object, and a closing line that counts."""
        for found, checked in self.results:
            if checked.problems:
                yield f"{found.kind} {found.name} ({found.where}):"
                yield from (f"  {problem}" for problem in checked.problems)
            for warning in checked.warnings:
                yield f"{found.kind} {found.name}: warning: {warning}"
        known = sum(1 for _, checked in self.results if checked.known)
        others = len(self.results) - known
        passed_by = f"; {others} of kinds without rules here" if others else ""
        yield f"{known} checked, {known - self.refused} fine, {self.refused} refused{passed_by}"

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "kind": found.kind,
                "name": found.name,
                "where": found.where,
                "checked": checked.known,
                "problems": list(checked.problems),
                "warnings": list(checked.warnings),
            }
            for found, checked in self.results
        ]


def check_all(objects: Iterable[Found], now: datetime, gates: Gates) -> Report:
    """Check many objects."""
    return Report(tuple((found, check_object(found.tree, now, gates)) for found in objects))
