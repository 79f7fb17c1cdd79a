"""Init containers and sidecars: the peak of requests over a pod's phases."""

from __future__ import annotations

from hypothesis import given

from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.amounts import Amounts, max_amounts, sum_amounts
from plimsoll.ledger.containers import ContainerRole, list_uses, pair_amounts, sum_with_init_containers
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import amounts, pods, texts


def requests(container: Container) -> Amounts:
    return container.resources.requests


def peak_requests(pod: Pod) -> dict[str, Quantity]:
    """Return the largest sum of requests of containers that run together (naive reference)."""
    running: list[Amounts] = []
    phases: list[dict[str, Quantity]] = []
    for each in pod.spec.init_containers:
        phases.append(sum_amounts([*running, requests(each)]))
        if each.restart_policy == "Always":
            running.append(requests(each))
    phases.append(sum_amounts([*running, *map(requests, pod.spec.containers)]))
    return max_amounts(*phases)


@given(pods())
def test_a_pod_requests_its_peak_usage(pod: Pod) -> None:
    assert sum_with_init_containers(*pair_amounts(pod, requests)) == peak_requests(pod)


@given(pods())
def test_uses_add_up_to_the_pod_request(pod: Pod) -> None:
    pairs = pair_amounts(pod, requests)
    found = list_uses(*pairs)
    regular = [use.amounts for use in found if use.role is ContainerRole.REGULAR]
    init = [use for use in found if use.role is not ContainerRole.REGULAR]
    sidecars = next((use.amounts for use in reversed(init) if use.role is ContainerRole.SIDECAR), {})
    whole = sum_amounts([*regular, sidecars])
    assert max_amounts(whole, *(use.amounts for use in init)) == sum_with_init_containers(*pairs)
    assert [use.container.name for use in init] == [c.name for c in pod.spec.init_containers]


def test_sidecars_add_to_what_comes_after_them() -> None:
    given_pod = pod(
        "p",
        container("app", cpu="1"),
        init=(
            container("first", cpu="3"),
            sidecar("log", cpu="500m"),
            container("second", cpu="2"),
            sidecar("mesh", cpu="250m"),
        ),
    )
    pairs = pair_amounts(given_pod, requests)
    assert texts(sum_with_init_containers(*pairs)) == {"cpu": "3"}
    found = [(use.container.name, texts(use.amounts)["cpu"]) for use in list_uses(*pairs)]
    assert found == [("app", "1"), ("first", "3"), ("log", "500m"), ("second", "2500m"), ("mesh", "750m")]


def test_a_regular_container_that_restarts_is_no_sidecar() -> None:
    given_pod = pod("p", sidecar("a", cpu="1"), init=(container("i", cpu="3"),))
    assert texts(sum_with_init_containers(*pair_amounts(given_pod, requests))) == {"cpu": "3"}


def test_containers_can_be_selected_and_changed() -> None:
    given_pod = pod("p", container("a", cpu="1"), container("b", cpu="2"), init=(sidecar("s", cpu="4"),))
    regular, init = pair_amounts(given_pod, requests)
    assert texts(sum_with_init_containers(regular[:1], init)) == {"cpu": "5"}
    doubled = pair_amounts(given_pod, lambda c: sum_amounts([requests(c), requests(c)]))
    assert texts(sum_with_init_containers(*doubled)) == {"cpu": "14"}


def test_a_name_with_zero_stays() -> None:
    zero = amounts(cpu="0")
    assert sum_with_init_containers(*pair_amounts(pod("p", container("a", cpu="0")), requests)) == zero
    assert sum_with_init_containers(*pair_amounts(pod("p", container("a")), requests)) == {}


def test_nothing_is_modified_in_place() -> None:
    given_pod = pod("p", container("a", cpu="1"), init=(sidecar("s", cpu="4"), container("i", cpu="9")))
    sum_with_init_containers(*pair_amounts(given_pod, requests))
    list_uses(*pair_amounts(given_pod, requests))
    assert texts(requests(given_pod.spec.init_containers[0])) == {"cpu": "4"}
    assert texts(requests(given_pod.spec.containers[0])) == {"cpu": "1"}
