"""Runner of golden vectors: reads the files and passes each case to the check of its suite.

A check is a function from a case to None (it passes) or to one line that says what differs. A check that
raises has failed: the exception is the mismatch.
"""

from __future__ import annotations

import gzip
import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = "dict[str, Any]"
Check: TypeAlias = Callable[[Row], "str | None"]

#: Suite name -> module with its `check`.
SUITES: dict[str, str] = {
    "quantity": "tests.conformance.quantity",
    "validation": "tests.conformance.validation",
    "field-dropping": "tests.conformance.field_dropping",
    "cel": "tests.conformance.cel",
    "pod-requests": "tests.conformance.pod_requests",
    "qos-cgroup": "tests.conformance.qos_cgroup",
    "node-allocatable": "tests.conformance.node_allocatable",
    "allocator": "tests.conformance.allocator",
    "capacity-rounding": "tests.conformance.capacity_rounding",
    "nri": "tests.conformance.nri",
    "checkpoint": "tests.conformance.checkpoint",
    "cpu-assignment": "tests.conformance.cpu_assignment",
    "cpuset": "tests.conformance.cpuset",
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Case whose result differs from the vector."""

    name: str
    text: str


def load_check(suite: str, profile: str | None = None) -> Check:
    """Return the check of a suite, under one of its profiles if it has any; ValueError if it has not."""
    module = importlib.import_module(SUITES[suite])
    check: Check = module.check
    if profile is not None:
        if not hasattr(module, "check_under"):
            raise ValueError(f"suite {suite} has no profiles")
        check = module.check_under(profile)
    return check


def find_differences(suite: str, paths: Iterable[Path]) -> list[Path]:
    """Return the files beside the vectors with the results of newer Kubernetes versions."""
    pattern = getattr(importlib.import_module(SUITES[suite]), "DIFFERENCES", None)
    if pattern is None:
        return []
    return sorted({found for path in paths for found in path.parent.glob(pattern)})


def read_rows(path: Path) -> Iterator[Row]:
    """Read the cases of one file; ValueError names an invalid line."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON: {error.msg}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: a case must be a JSON object")
            yield row


def run(
    check: Check,
    paths: Iterable[Path],
    report: Callable[[Mismatch], None],
    limit: int | None = None,
    name: str | None = None,
    differences: Iterable[Path] = (),
) -> int:
    """Check the cases, report each mismatch, return how many passed.

    Where a row of the same name stands in `differences`, what that one expects is right.
    """
    newer = {name_of(row): row["expect"] for path in differences for row in read_rows(path)}
    rows = (row for path in paths for row in read_rows(path))
    chosen = (row for row in rows if name is None or name in name_of(row))
    passed = 0
    for row in islice(chosen, limit):
        if name_of(row) in newer:
            row = {**row, "expect": newer[name_of(row)]}
        text = _checked(check, row)
        if text is None:
            passed += 1
        else:
            report(Mismatch(name_of(row), text))
    return passed


def name_of(row: Row) -> str:
    """Return the name of a case."""
    return str(row.get("id", row.get("name", "?")))


def _checked(check: Check, row: Row) -> str | None:
    try:
        return check(row)
    except Exception as error:  # a crash is a mismatch, and the run goes on
        return f"raised {type(error).__name__}: {error}"
