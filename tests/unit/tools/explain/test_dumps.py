"""Recorded explanations of every pending pod of real clusters."""

from __future__ import annotations

import pytest

from plimsoll.api.core import Node
from plimsoll.api.resource import ResourceClaim
from plimsoll.tools.cluster_state import Source, read_cluster_state
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import explain_claim, explain_node, explain_pending, explain_pod
from plimsoll.tools.report import Report
from tests.dumps import USECASES, usecase_dump
from tests.outputs import check_output


@pytest.mark.parametrize("name", USECASES or ["none"])
def test_a_real_cluster_is_reported(name: str) -> None:
    cluster_state = read_cluster_state(Source((str(usecase_dump(name)),)))
    text = "\n".join(explain_pending(cluster_state).lines(PLAIN)) + "\n"
    for pod in cluster_state.pending:
        text += "\n---\n" + "\n".join(explain_pod(cluster_state, pod).lines(PLAIN)) + "\n"
    check_output(f"explain/usecases/{name}.txt", text)


@pytest.mark.parametrize("name", USECASES or ["none"])
def test_every_pod_and_claim_of_a_real_cluster_is_explained(name: str) -> None:
    cluster_state = read_cluster_state(Source((str(usecase_dump(name)),)))
    reports: list[Report] = [
        explain_claim(cluster_state, each) for each in cluster_state.objects.all(ResourceClaim)
    ]
    for pod in cluster_state.pods:
        reports.append(explain_pod(cluster_state, pod))
        for node in cluster_state.objects.all(Node):
            reports.append(explain_node(cluster_state, pod, node.metadata.name))
    for report in reports:
        assert list(report.lines(PLAIN))
        assert report.as_json()
