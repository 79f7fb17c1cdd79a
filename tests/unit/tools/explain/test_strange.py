"""Any cluster is explained, and every proposed fix works."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from plimsoll.scheduler.result import Placement
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import ExplainVerdict, explain_node, explain_pending, explain_pod
from plimsoll.tools.fixes import apply_fix
from tests.sizes import examples
from tests.unit.scheduler.samples import NODES, SEEDS, Draws
from tests.unit.tools.explain.symptoms import make_cluster_state
from tests.unit.tools.fixes.clusters import schedule

TERM = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
RULES: tuple[dict[str, Any], ...] = (
    {},
    {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
    {"topologySpreadConstraints": [{**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
)


def draw_cluster(seed: int) -> list[Any]:
    draws = Draws(seed)
    nodes = [draws.node(name) for name in NODES[: draws.random.randint(0, 4)]]
    labels = [{"app": "a"}, {}]
    pods = [
        draws.pod(f"on-{name}-{number}", bound_to=name, labels=draws.one(*labels), **draws.one(*RULES))
        for name in NODES[:4]
        for number in range(draws.random.randint(0, 2))
    ]
    return [*nodes, *pods, draws.pod("p", labels=draws.one(*labels), **draws.one(*RULES))]


@settings(max_examples=examples(50), deadline=None)
@given(SEEDS)
def test_any_cluster_is_explained(seed: int) -> None:
    objects = draw_cluster(seed)
    cluster_state = make_cluster_state(objects)
    pod = cluster_state.pod("p")
    explanation = explain_pod(cluster_state, pod)
    outcome = schedule(make_cluster_state(objects), pod)
    assert (explanation.verdict is ExplainVerdict.FITS) == isinstance(outcome, Placement)
    assert list(explanation.lines(PLAIN))
    assert list(explain_pending(cluster_state).lines(PLAIN))
    for node in cluster_state.nodes:
        assert list(explain_node(cluster_state, pod, node.metadata.name).lines(PLAIN))
    for other in cluster_state.pods:
        assert list(explain_pod(cluster_state, other).lines(PLAIN))
    for fix in explanation.fixes:
        copy, changed = apply_fix(make_cluster_state(objects), pod, fix)
        assert isinstance(schedule(copy, changed), Placement), fix.text
