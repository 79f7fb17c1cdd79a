"""The rule for init containers and sidecars, against a walk through the pod's life."""

from __future__ import annotations

from hypothesis import given

from plimsoll.api.core import Container, Pod
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.amounts import Amounts, greatest, sum_of
from plimsoll.ledger.containers import Role, needs, uses, with_init
from tests.unit.ledger.samples import amounts, pod, pods, sidecar, texts, tree


def requests(container: Container) -> Amounts:
    return container.resources.requests


def live_through(pod: Pod) -> dict[str, Quantity]:
    """The naive twin: what runs at each moment of the pod's life, and the most of it all."""
    running: list[Amounts] = []
    moments: list[dict[str, Quantity]] = []
    for container in pod.spec.init_containers:
        moments.append(sum_of([*running, requests(container)]))
        if container.restart_policy == "Always":
            running.append(requests(container))
    moments.append(sum_of([*running, *map(requests, pod.spec.containers)]))
    return greatest(*moments)


@given(pods())
def test_a_pod_needs_the_most_it_ever_uses(pod: Pod) -> None:
    assert with_init(*needs(pod, requests)) == live_through(pod)


@given(pods())
def test_uses_are_the_moments_of_the_rule(pod: Pod) -> None:
    pairs = needs(pod, requests)
    found = uses(*pairs)
    regular = [use.amounts for use in found if use.role is Role.REGULAR]
    init = [use for use in found if use.role is not Role.REGULAR]
    sidecars = next((use.amounts for use in reversed(init) if use.role is Role.SIDECAR), {})
    whole = sum_of([*regular, sidecars])
    assert greatest(whole, *(use.amounts for use in init)) == with_init(*pairs)
    assert [use.container.name for use in init] == [c.name for c in pod.spec.init_containers]


def test_sidecars_add_to_what_comes_after_them() -> None:
    given_pod = pod(
        tree("app", {"cpu": "1"}),
        init=(
            tree("first", {"cpu": "3"}),
            sidecar("log", {"cpu": "500m"}),
            tree("second", {"cpu": "2"}),
            sidecar("mesh", {"cpu": "250m"}),
        ),
    )
    pairs = needs(given_pod, requests)
    assert texts(with_init(*pairs)) == {"cpu": "3"}
    found = [(use.container.name, texts(use.amounts)["cpu"]) for use in uses(*pairs)]
    assert found == [("app", "1"), ("first", "3"), ("log", "500m"), ("second", "2500m"), ("mesh", "750m")]


def test_a_regular_container_that_restarts_is_no_sidecar() -> None:
    given_pod = pod(tree("a", {"cpu": "1"}, restartPolicy="Always"), init=(tree("i", {"cpu": "3"}),))
    assert texts(with_init(*needs(given_pod, requests))) == {"cpu": "3"}


def test_containers_can_be_selected_and_changed() -> None:
    given_pod = pod(tree("a", {"cpu": "1"}), tree("b", {"cpu": "2"}), init=(sidecar("s", {"cpu": "4"}),))
    regular, init = needs(given_pod, requests)
    assert texts(with_init(regular[:1], init)) == {"cpu": "5"}
    doubled = needs(given_pod, lambda c: sum_of([requests(c), requests(c)]))
    assert texts(with_init(*doubled)) == {"cpu": "14"}


def test_a_name_with_zero_stays() -> None:
    zero = amounts(cpu="0")
    assert with_init(*needs(pod(tree("a", {"cpu": "0"})), requests)) == zero
    assert with_init(*needs(pod(tree("a")), requests)) == {}


def test_nothing_is_changed_in_place() -> None:
    given_pod = pod(tree("a", {"cpu": "1"}), init=(sidecar("s", {"cpu": "4"}), tree("i", {"cpu": "9"})))
    with_init(*needs(given_pod, requests))
    uses(*needs(given_pod, requests))
    assert texts(requests(given_pod.spec.init_containers[0])) == {"cpu": "4"}
    assert texts(requests(given_pod.spec.containers[0])) == {"cpu": "1"}
