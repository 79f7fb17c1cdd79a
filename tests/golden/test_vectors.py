"""All public golden vectors pass, if the vectors are available next to the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.runner import Mismatch, find_differences, load_check, run

VECTORS = Path(__file__).parents[3] / "shared" / "vectors"

FILES = {
    "quantity": ["accounting/quantity.jsonl.gz"],
    "validation": ["api/validation.jsonl.gz"],
    "field-dropping": ["api/field_dropping.jsonl.gz"],
    "cel": ["api/cel.jsonl.gz"],
    "pod-requests": ["accounting/pod_requests.jsonl.gz"],
    "qos-cgroup": ["accounting/qos_cgroup.jsonl.gz", "accounting/qos_cgroup_v137.jsonl.gz"],
    "node-allocatable": ["accounting/node_allocatable.jsonl.gz"],
    "allocator": [
        "allocator/upstream_tables.jsonl.gz",
        "allocator/edge_cases.jsonl.gz",
        "allocator/fuzz_public.jsonl.gz",
        "allocator/perf_cases.jsonl.gz",
    ],
    "capacity-rounding": ["allocator/capacity_rounding.jsonl.gz"],
    "nri": ["node/nri_session.jsonl.gz"],
    "checkpoint": ["node/dra_checkpoint.jsonl.gz"],
}


@pytest.mark.parametrize("suite", FILES)
def test_public_vectors(suite: str) -> None:
    paths = [VECTORS / file for file in FILES[suite]]
    if not all(path.exists() for path in paths):
        pytest.skip("golden vectors not found in ../shared/vectors")
    mismatches: list[Mismatch] = []
    differences = find_differences(suite, paths)
    passed = run(load_check(suite), paths, mismatches.append, differences=differences)
    assert mismatches == []
    assert passed > 0


def test_public_vectors_under_the_profile_of_upstream() -> None:
    path = VECTORS / "accounting" / "node_allocatable.jsonl.gz"
    if not path.exists():
        pytest.skip("golden vectors not found in ../shared/vectors")
    mismatches: list[Mismatch] = []
    passed = run(load_check("node-allocatable", "upstream-1.36"), [path], mismatches.append)
    assert mismatches == []
    assert passed > 0
