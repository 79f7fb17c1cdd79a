"""Reading of an earlier report, so that only new findings count.

Findings are the same if check, subject and key are equal; their numbers may differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from plimsoll.errors import InputError


def read_baseline(path: Path) -> frozenset[tuple[str, str, str]]:
    """Return the finding identities of a JSON report. Raise InputError if it is not one."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}; create it with plimsoll audit -o json") from None
    findings = tree.get("findings") if isinstance(tree, dict) else None
    if not isinstance(findings, list):
        raise InputError(f"{path}: no findings field; create it with plimsoll audit -o json")
    return frozenset(_identity(path, number, each) for number, each in enumerate(findings))


def _identity(path: Path, number: int, finding: Any) -> tuple[str, str, str]:
    if isinstance(finding, dict):
        id, subject, key = finding.get("id"), finding.get("subject"), finding.get("key", "")
        if isinstance(id, str) and isinstance(subject, str) and isinstance(key, str):
            return id, subject, key
    raise InputError(f"{path}: findings[{number}]: must have id, subject and key")
