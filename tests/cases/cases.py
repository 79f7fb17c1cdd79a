"""Files of `../shared/cases`: clusters of real drivers and small ones, with right answers in its README."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dumps import make_cluster_state

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


def case_path(name: str) -> Path:
    """Return the path of a file such as `small/nic.yaml`; skips the test where it is absent."""
    path = CASES / name
    if not path.exists():
        pytest.skip(f"{name} not found in ../shared/cases")
    return path


@cache
def case_objects(*names: str) -> list[dict[str, Any]]:
    """Return the objects of files as trees; lists are unpacked."""
    found: list[dict[str, Any]] = []
    for name in names:
        path = case_path(name)
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        trees = [json.loads(data)] if ".json" in path.name else yaml.safe_load_all(data)
        for tree in filter(None, trees):
            found += tree.get("items", [tree])
    return found


def case_state(*names: str) -> Any:
    """Return a cluster state of its own with the objects of files."""
    return make_cluster_state(case_objects(*names))
