"""`CHECKS`: all checks in the order of their IDs, with the texts of `checks.toml`."""

import tomllib
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

from plimsoll.tools.audit.checks import (
    advertisers,
    allocations,
    capacity,
    claims,
    devices,
    drivers,
    ledgers,
    limits,
    mappings,
    placeholders,
    pods,
    pools,
    setup,
    topology,
    unreachable,
)
from plimsoll.tools.audit.facts import AuditFacts
from plimsoll.tools.audit.findings import Check, CheckProblem
from plimsoll.tools.findings import Severity

_MODULES = (
    advertisers, ledgers, pods, mappings, drivers, devices, capacity, pools, allocations, claims, limits,
    topology, unreachable, setup, placeholders,
)  # fmt: skip


def _read_checks() -> tuple[Check, ...]:
    functions = {id: function for module in _MODULES for id, function in module.CHECKS.items()}
    rows = tomllib.loads((files("plimsoll.tools.audit") / "checks.toml").read_text(encoding="utf-8"))
    return tuple(_make_check(id, row, functions.pop(id)) for id, row in sorted(rows.items()))


def _make_check(id: str, row: dict[str, Any], run: Callable[[AuditFacts], Iterator[CheckProblem]]) -> Check:
    title, explanation, fix = (" ".join(row[name].split()) for name in ("title", "explanation", "fix"))
    severity = Severity(row["severity"])
    return Check(id, row["name"], severity, title, explanation, fix, run, tuple(row["needs"]))


CHECKS = _read_checks()
