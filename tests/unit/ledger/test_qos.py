"""QoS classes in both forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from plimsoll.api.core import Pod, ResourceRequirements
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, pod_qos, qos_class
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge, charged_pods, pods

BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("given_pod", "wanted"),
    [
        (pod("p", container("a")), BEST_EFFORT),
        (pod("p", container("a", limits={"memory": "0"}, cpu="0")), BEST_EFFORT),
        (pod("p", container("a", ephemeral_storage="1Gi")), BEST_EFFORT),
        (pod("p", container("a", cpu="1")), BURSTABLE),
        (pod("p", container("a", limits=BOTH, **BOTH)), GUARANTEED),
        (pod("p", container("a", limits={"cpu": "1"}, cpu="1")), BURSTABLE),
        (pod("p", container("a", limits=BOTH, **{**BOTH, "cpu": "500m"})), BURSTABLE),
        (pod("p", container("a", limits=BOTH, **BOTH), container("b")), BURSTABLE),
        (pod("p", container("a", limits=BOTH, **BOTH), init=(container("i"),)), BURSTABLE),
        (
            pod("p", container("a", limits=BOTH, **BOTH), init=(sidecar("s", limits=BOTH, **BOTH),)),
            GUARANTEED,
        ),
        (pod("p", container("a"), resources={"requests": BOTH, "limits": BOTH}), GUARANTEED),
        (pod("p", container("a", limits=BOTH, **BOTH), resources={"requests": {"cpu": "1"}}), BURSTABLE),
        (
            pod("p", container("a", limits=BOTH, **BOTH), resources={"limits": {"hugepages-2Mi": "2Mi"}}),
            BEST_EFFORT,
        ),
    ],
)
def test_classes(given_pod: Pod, wanted: str) -> None:
    assert qos_class(given_pod.spec) == wanted
    assert qos_class(given_pod.spec, Form.V1_37) == wanted


@pytest.mark.parametrize("empty", [{}, {"requests": {"ephemeral-storage": "1"}}])
def test_empty_pod_level_resources_count_in_1_36_only(empty: dict[str, Any]) -> None:
    given_pod = pod("p", container("a", limits=BOTH, **BOTH), resources=empty)
    assert qos_class(given_pod.spec) == BEST_EFFORT
    assert qos_class(given_pod.spec, Form.V1_37) == GUARANTEED
    assert qos_class(given_pod.spec, pod_level=False) == GUARANTEED


def charged(*containers: Any, resources: Any = BOTH, **fields: Any) -> Pod:
    entry = {"resourceClaimName": "x", "containers": ["a"], "resources": resources}
    return pod("p", *containers, status={"nodeAllocatableResourceClaimStatuses": [entry], **fields})


def test_claims_do_not_change_the_class_unless_they_count() -> None:
    given_pod = charged(container("a"))
    assert qos_class(given_pod.spec, Form.V1_37) == BEST_EFFORT
    assert pod_qos(given_pod, Form.V1_37) == BEST_EFFORT


@pytest.mark.parametrize("resources", [{"cpu": "1"}, {"memory": "1Gi"}, BOTH])
def test_claims_make_a_best_effort_pod_burstable(resources: dict[str, str]) -> None:
    assert pod_qos(charged(container("a"), resources=resources), claims=True) == BURSTABLE
    recorded = charged(container("a"), resources=resources, qosClass=BEST_EFFORT)
    assert pod_qos(recorded, claims=True) == BURSTABLE


@pytest.mark.parametrize("resources", [{"cpu": "0"}, {"hugepages-2Mi": "2Mi"}, {"ephemeral-storage": "1Gi"}])
def test_only_cpu_and_memory_of_claims_count(resources: dict[str, str]) -> None:
    assert pod_qos(charged(container("a"), resources=resources), claims=True) == BEST_EFFORT


def test_a_pool_that_containers_draw_nothing_from_does_not_count() -> None:
    drawn = charge("x", "a", policy="ConsumeFrom", cpu="4")
    assert pod_qos(pod("p", container("a")), claims=True, charges=[drawn]) == BEST_EFFORT
    excess = charge("x", "a", policy="Max", cpu="4")
    assert pod_qos(pod("p", container("a")), claims=True, charges=[excess]) == BURSTABLE


@given(charged_pods())
def test_claims_change_no_other_class(found: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = found
    before = pod_qos(given_pod, Form.V1_37)
    after = pod_qos(given_pod, Form.V1_37, claims=True, charges=charges)
    assert after == before or (before, after) == (BEST_EFFORT, BURSTABLE)


def test_the_recorded_class_wins() -> None:
    assert pod_qos(pod("p", container("a"), status={"qosClass": GUARANTEED})) == GUARANTEED
    assert pod_qos(pod("p", container("a"), status={"qosClass": "Splendid"})) == BEST_EFFORT
    assert pod_qos(pod("p", container("a", cpu="1"))) == BURSTABLE


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
