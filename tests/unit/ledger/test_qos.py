"""QoS classes in both forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from plimsoll.api.core import Pod, ResourceRequirements
from plimsoll.api.forms import Form
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, pod_qos, qos_class
from tests.unit.ledger.samples import pod, pods, sidecar, tree

BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("given_pod", "wanted"),
    [
        (pod(tree("a")), BEST_EFFORT),
        (pod(tree("a", {"cpu": "0"}, {"memory": "0"})), BEST_EFFORT),
        (pod(tree("a", {"ephemeral-storage": "1Gi"})), BEST_EFFORT),
        (pod(tree("a", {"cpu": "1"})), BURSTABLE),
        (pod(tree("a", both=BOTH)), GUARANTEED),
        (pod(tree("a", both={"cpu": "1"})), BURSTABLE),
        (pod(tree("a", {**BOTH, "cpu": "500m"}, BOTH)), BURSTABLE),
        (pod(tree("a", both=BOTH), tree("b")), BURSTABLE),
        (pod(tree("a", both=BOTH), init=(tree("i"),)), BURSTABLE),
        (pod(tree("a", both=BOTH), init=(sidecar("s", both=BOTH),)), GUARANTEED),
        (pod(tree("a"), resources={"requests": BOTH, "limits": BOTH}), GUARANTEED),
        (pod(tree("a", both=BOTH), resources={"requests": {"cpu": "1"}}), BURSTABLE),
        (pod(tree("a", both=BOTH), resources={"limits": {"hugepages-2Mi": "2Mi"}}), BEST_EFFORT),
    ],
)
def test_classes(given_pod: Pod, wanted: str) -> None:
    assert qos_class(given_pod.spec) == wanted
    assert qos_class(given_pod.spec, Form.V1_37) == wanted


@pytest.mark.parametrize("empty", [{}, {"requests": {"ephemeral-storage": "1"}}])
def test_empty_pod_level_resources_count_in_1_36_only(empty: dict[str, Any]) -> None:
    given_pod = pod(tree("a", both=BOTH), resources=empty)
    assert qos_class(given_pod.spec) == BEST_EFFORT
    assert qos_class(given_pod.spec, Form.V1_37) == GUARANTEED
    assert qos_class(given_pod.spec, pod_level=False) == GUARANTEED


def test_claims_never_change_the_class() -> None:
    status = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x", "resources": BOTH}]}
    assert qos_class(pod(tree("a"), status=status).spec, Form.V1_37) == BEST_EFFORT


def test_the_class_written_down_wins() -> None:
    assert pod_qos(pod(tree("a"), status={"qosClass": GUARANTEED})) == GUARANTEED
    assert pod_qos(pod(tree("a"), status={"qosClass": "Splendid"})) == BEST_EFFORT
    assert pod_qos(pod(tree("a", {"cpu": "1"}))) == BURSTABLE


def shape(resources: ResourceRequirements, name: str) -> str:
    request, limit = (found.get(name, ZERO) for found in (resources.requests, resources.limits))
    if request != limit:
        return BURSTABLE
    return GUARANTEED if request else BEST_EFFORT


@given(pods())
def test_the_class_is_that_of_every_container_and_resource(given_pod: Pod) -> None:
    """The naive twin: a pod has a class other than Burstable only if each of its parts has that class.

    Not so where requests above limits (which no API server lets pass) cancel out in the sum.
    """
    spec = given_pod.spec
    containers = [c.resources for c in (*spec.containers, *spec.init_containers)]
    whole = spec.resources
    parts = [whole] if whole is not None and (whole.requests or whole.limits) else containers
    sane = all(
        part.requests.get(name, ZERO) <= part.limits.get(name, part.requests.get(name, ZERO))
        for part in parts
        for name in ("cpu", "memory")
    )
    shapes = {shape(part, name) for part in parts for name in ("cpu", "memory")}
    wanted = shapes.pop() if len(shapes) == 1 else BURSTABLE
    assert not sane or qos_class(spec, Form.V1_37) == wanted
