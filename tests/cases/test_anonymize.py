"""Anonymized dumps of the clusters of `../shared/cases`: no name of a site remains, answers are the same."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.tools.audit import audit
from plimsoll.tools.check import check_object
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dump import Pseudonyms, anonymize, trees_of
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.report import as_text
from plimsoll.tools.top.top import top
from tests.cases.cases import case_objects, case_state

CLUSTERS = [f"real/{name}.json.gz" for name in ("messy-cluster", "gpu-cluster", "cpu-two-modes")]
KEY = b"0123456789abcdef"
NOW = 1_795_132_800.0


def anonymized(state: ClusterState) -> ClusterState:
    return ClusterState(anonymize(state.objects, Pseudonyms(KEY)), origin=state.origin)


def numbers(text: str) -> Counter[Any]:
    """Return the amounts in a text; numbers in names are parts of words."""
    return Counter(re.findall(r"(?<![\w.:/-])\d+(?:\.\d+)?(?![\w.:/-])", text))


def answers(state: ClusterState) -> dict[str, Any]:
    tops = {what: as_text(top(state, what), wide=True) for what in ("nodes", "pools", "claims", "classes")}
    found: dict[str, Counter[Any]] = {f"top {what}": numbers(text) for what, text in tops.items()}
    found["audit"] = Counter(
        (each.id, each.severity, len(each.evidence), tuple(numbers(each.message).items()))
        for each in audit(state, now=NOW).findings
    )
    found["explain"] = Counter(
        (each.verdict, each.preemption != "", tuple(sorted(len(group.nodes) for group in each.groups)))
        for each in (explain_pod(state, pod) for pod in state.pending)
    )
    return found


@pytest.mark.parametrize(
    "name", [CLUSTERS[0], pytest.param(CLUSTERS[1], marks=pytest.mark.slow), CLUSTERS[2]]
)
def test_the_tools_give_the_same_numbers(name: str) -> None:
    before, after = answers(case_state(name)), answers(anonymized(case_state(name)))
    for question in before:
        assert before[question] == after[question], question


@pytest.mark.parametrize("name", CLUSTERS)
def test_an_api_server_takes_the_objects(name: str) -> None:
    now = datetime.fromtimestamp(NOW, UTC)
    invalid = {
        (tree["kind"], tree["metadata"]["name"]): problems
        for tree in trees_of(anonymized(case_state(name)).objects)
        if (problems := check_object(tree, now).problems)
    }
    assert invalid == {}


def test_no_name_of_the_site_remains_in_attributes() -> None:
    """Projects, networks, hosts, blocks, serial numbers, UUIDs and addresses: all are replaced everywhere."""
    private: set[str] = set()
    words = (
        "networkName",
        "host",
        "block",
        "mac",
        "ipv4",
        "serial",
        "uuid",
        "parentUUID",
        "networkProjectNumber",
    )
    for tree in case_objects(CLUSTERS[1]):
        for device in tree["spec"].get("devices", ()) if tree["kind"] == "ResourceSlice" else ():
            for key, value in device.get("attributes", {}).items():
                if key.rpartition("/")[2] in words:
                    private |= {str(each) for each in value.values()}
    assert "628944397724" in private
    private |= {word for text in private for word in re.findall(r"[a-z]+-[0-9]-vpc|block-[0-9]+", text)}
    text = b"\n".join(codec.encode(each) for each in anonymized(case_state(CLUSTERS[1])).objects).decode()
    assert [each for each in private if each in text] == []


def test_public_values_remain() -> None:
    text = b"\n".join(codec.encode(each) for each in anonymized(case_state(CLUSTERS[1])).objects).decode()
    public = (
        "NVIDIA H100 80GB HBM3",
        "1g.12gb",
        "gpu.nvidia.com",
        "Mellanox Technologies",
        "pci0000:15",
        "xe",
    )
    assert [each for each in public if f'"{each}"' not in text and each not in text] == []
