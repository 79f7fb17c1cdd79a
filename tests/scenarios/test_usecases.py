"""Recorded use cases of a real cluster end here in the same state, or in a better one as docs/compat.md
explains.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plimsoll.up.local_cluster import LocalCluster
from tests.scenarios.differences import DEPARTURES, NONE, ExpectedDifference
from tests.scenarios.usecases import USE_CASES, Difference, UseCase, UseCaseRun

COMPAT = Path(__file__).parents[2] / "docs" / "compat.md"
NAMES = (
    sorted(directory.name for directory in USE_CASES.iterdir() if directory.is_dir())
    if USE_CASES.is_dir()
    else []
)


@pytest.mark.skipif(not NAMES, reason="the stories are not here: they lie in ../shared/usecases")
@pytest.mark.parametrize("name", NAMES)
def test_use_case(name: str) -> None:
    with LocalCluster(scheduler=True) as cluster:
        use_case = UseCase(USE_CASES / name)
        departure = DEPARTURES.get(name, NONE)
        found = UseCaseRun(
            use_case, cluster, {pod: bool(end.node) for pod, end in departure.pods.items()}
        ).execute()
    left = [each for each in found if not _is_covered(each, departure)]
    assert not left, "\n".join(_describe(each) for each in left)
    _check_outcomes(found, departure)


def _is_covered(found: Difference, departure: ExpectedDifference) -> bool:
    """Return whether a difference concerns a pod that is expected to differ, its claims or its events."""
    where = re.sub(r"^\d+ ", "", found.where)
    pods = departure.pods
    return (
        where in departure.others
        or where.removeprefix("wait ").removeprefix("pods/").removeprefix("events/Pod/") in pods
        or any(where.startswith(f"resourceclaims/{pod}-") for pod in pods)
        or (where.startswith("resourceclaims/") and where.removeprefix("resourceclaims/") in _NAMED)
    )


_NAMED = {"pre"}  #: claims with names of their own


def _check_outcomes(found: list[Difference], departure: ExpectedDifference) -> None:
    seen = {re.sub(r"^\d+ ", "", each.where): each.ours for each in found}
    assert not departure.pods or any(f"wait {pod}" in seen for pod in departure.pods)
    for pod, wanted in departure.pods.items():
        ours = seen.get(f"wait {pod}")
        if ours is None:
            continue  # upstream got this one right, by chance
        assert ours["nodeName"] == wanted.node
        assert wanted.message in (ours["PodScheduled"].get("message") or "")
        assert tuple(ours["nodeAllocatableResourceClaimStatuses"] or ()) == wanted.charges
    assert departure.others <= seen.keys()


def _describe(found: Difference) -> str:
    return f"{found.where}\n  theirs {found.theirs}\n  ours   {found.ours}"


def test_every_difference_has_a_row_in_the_documentation() -> None:
    text = COMPAT.read_text()
    missing = {each.row for each in DEPARTURES.values() if not re.search(rf"\b{each.row}\b", text)}
    assert not missing
