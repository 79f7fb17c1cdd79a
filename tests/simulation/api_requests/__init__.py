"""Random requests to an API server: those of the simulated components, and wrong variants of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.client.transport import Request
from tests.simulation.api_requests import claims, devices, others, pods, reads
from tests.simulation.api_requests.dice import ENDPOINTS, NAMESPACES, Dice
from tests.simulation.api_requests.reads import watch_objects

__all__ = ["Dice", "choose_weights", "next_request", "setup_requests", "watch_objects"]

#: Requests by their weight; those without an object to be about are None.
_REQUESTS: dict[Callable[[Dice], Request | None], int] = {
    pods.create_pod: 14,
    pods.bind_pod: 10,
    pods.write_pod_status: 14,
    pods.apply_pod_status: 4,
    pods.change_pod: 8,
    pods.evict_pod: 9,
    claims.create_claim: 6,
    claims.write_claim_status: 16,
    claims.change_claim: 6,
    claims.apply_claim_status: 3,
    claims.write_template: 3,
    devices.write_slice: 6,
    devices.write_class: 3,
    devices.write_taint_rule: 3,
    devices.write_node: 7,
    others.write_namespace: 4,
    others.write_lease: 7,
    others.write_event: 4,
    others.write_budget: 9,
    others.write_group: 2,
    reads.delete_object: 12,
    reads.remove_finalizers: 7,
    reads.delete_collection: 2,
    reads.get_object: 8,
    reads.list_objects: 10,
    reads.send_nonsense: 2,
}


def setup_requests(dice: Dice) -> list[Request]:
    """Return the requests that prepare a server: a namespace, accounts, a priority class, two nodes."""
    bodies: list[tuple[str, str, Any]] = [("namespaces", "", {"metadata": {"name": NAMESPACES[1]}})]
    bodies += [("serviceaccounts", name, {"metadata": {"name": "default"}}) for name in NAMESPACES]
    bodies.append(("priorityclasses", "", devices.make_priority_class("high", 1000)))
    bodies += [("nodes", "", devices.make_node(f"n{number}")) for number in range(2)]
    return [dice.send("POST", ENDPOINTS[plural].path(namespace), body) for plural, namespace, body in bodies]


def choose_weights(dice: Dice) -> list[int]:
    """Return the weights of the kinds of requests in one sequence: some are left out, some are frequent.

    A sequence about few things gets them into states that an even mix rarely reaches.
    """
    return [weight * dice.one((0, 1, 1, 5)) for weight in _REQUESTS.values()]


def next_request(dice: Dice, weights: list[int]) -> Request:
    makers = (*_REQUESTS, reads.list_objects)  # one that is always possible
    while True:
        request = dice.rng.choices(makers, [*weights, 1])[0](dice)
        if request is not None:
            return request
