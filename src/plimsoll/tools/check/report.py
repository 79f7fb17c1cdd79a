"""Validation of many objects, and its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from plimsoll.api.gates import Gates
from plimsoll.api.kinds import KINDS
from plimsoll.apiserver.registry.api_lifecycle import NEWEST, OLDEST, Release
from plimsoll.errors import InputError
from plimsoll.tools.check.object_check import CheckContext, CheckResult, check_in_context
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.colors import PLAIN, Paint

#: Kinds that are read from a cluster unless others are named, in the order they are read.
CLUSTER_KINDS = (
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
    "ResourceClaimTemplate",
    "ResourceClaim",
    "Pod",
)
_SHORT = {"slices": "ResourceSlice", "classes": "DeviceClass", "rules": "DeviceTaintRule"} | {
    "templates": "ResourceClaimTemplate",
    "claims": "ResourceClaim",
}
#: Namespaces that every API server creates, without labels that matter here.
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Validated objects with their results."""

    results: tuple[tuple[ParsedObject, CheckResult], ...]
    server: str = ""  #: cluster they were read from; "" for files

    @property
    def refused(self) -> int:
        return sum(1 for _, checked in self.results if checked.problems)

    @property
    def warned(self) -> int:
        return sum(1 for _, checked in self.results if checked.warnings)

    def lines(self, paint: Paint = PLAIN, *, wide: bool = False) -> Iterator[str]:
        """Yield the problems by object and a summary line; `wide` also lists valid objects."""
        for found, checked in self.results:
            title = f"{found.kind} {found.full_name if self.server else _name(found)}".strip()
            place = "" if self.server else f" ({found.where})"
            if checked.problems:
                yield f"{paint.red(title)}{place}:"
                yield from (f"  {problem}" for problem in checked.problems)
            elif checked.warnings:
                yield f"{title}{place}:"
            elif wide:
                yield f"{title}{place}: {'valid' if checked.known else 'this kind is not validated'}"
            yield from (f"  {paint.yellow('warning')}: {warning}" for warning in checked.warnings)
        known = sum(1 for _, checked in self.results if checked.known)
        others = len(self.results) - known
        skipped = f"; {others} of kinds that are not validated" if others else ""
        warned = f", {self.warned} with warnings" if self.warned else ""
        invalid = f"{self.refused} invalid"
        if self.refused:
            invalid = paint.red(invalid)
        counted = f"{known} of {self.server} checked:" if self.server else f"{known} checked,"
        yield f"{counted} {known - self.refused} valid, {invalid}{warned}{skipped}"

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


def _name(found: ParsedObject) -> str:
    metadata = found.tree.get("metadata")
    generated = metadata.get("generateName") if isinstance(metadata, dict) else ""
    return found.name or (f"{generated}*" if generated else "")


def read_kinds(names: Iterable[str], *, of_files: bool = False) -> dict[str, str]:
    """Return {plural: kind} for the names users write, such as `slices,pods`; by default all of a cluster.

    Files can have more kinds: all of the API.
    """
    known = {
        name: (each.plural, each.kind)
        for each in reversed(KINDS)  # `events` are those of the core group
        if of_files or each.kind in CLUSTER_KINDS
        for name in (each.plural, each.kind.lower(), *each.short_names)
    }
    known |= {short: known[kind.lower()] for short, kind in _SHORT.items()}
    requested = [name for text in names for name in text.split(",") if name]
    for name in requested:
        if name.lower() not in known:
            valid = "" if of_files else f"; valid kinds: {', '.join(CLUSTER_KINDS)}"
            fix = "; pass files with -f" if "." in name or "/" in name else ""
            raise InputError(f"{name}: this kind is not validated{valid}{fix}")
    return dict([known[name.lower()] for name in requested or CLUSTER_KINDS])


def parse_release(text: str) -> Release:
    """Parse the version of a server, such as 1.34 or v1.34.2. Raise InputError if it is out of range."""
    major, _, rest = text.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        raise InputError(f"{text}: not a version of Kubernetes; write 1.34")
    release = int(major), int(minor)
    if not OLDEST <= release <= NEWEST:
        known = " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))
        raise InputError(f"{text}: the rules of this version are not known; valid: {known}")
    return release


def check_all(
    objects: Iterable[ParsedObject],
    now: datetime,
    gates: Gates,
    server: str = "",
    *,
    release: Release | None = None,
    kinds: Mapping[str, str] | None = None,
) -> CheckReport:
    """Validate many objects with the LimitRanges and Namespaces among them; `server` is the cluster they were
    read from, if any, `release` the one they are written for. Only `kinds` are reported, if given.
    """
    given = list(objects)
    ranges: dict[str, list[dict[str, Any]]] = {}
    labels: dict[str, Mapping[str, str]] = {name: {} for name in _NAMESPACES}
    for found in given:
        if found.kind == "LimitRange":
            ranges.setdefault(found.namespace or "default", []).append(found.tree)
        elif found.kind == "Namespace":
            labels[found.name] = _labels(found)
    unknown = _ADMIN_ACCESS if server and len(labels) == len(_NAMESPACES) else None
    context = CheckContext(now, gates, release, strict=not server)

    def check(found: ParsedObject) -> CheckResult:
        namespace = found.namespace or "default"
        here = labels.get(namespace, unknown)
        return check_in_context(
            found.tree,
            replace(context, namespace_labels=here, limit_ranges=tuple(ranges.get(namespace, ()))),
        )

    reported = [
        found
        for found in given
        if (found.kind in kinds.values() if kinds is not None else not server or found.kind in CLUSTER_KINDS)
    ]
    return CheckReport(tuple((found, check(found)) for found in reported), server)


def _labels(namespace: ParsedObject) -> Mapping[str, str]:
    metadata = namespace.tree.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}
