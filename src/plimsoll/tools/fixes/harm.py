"""Harm of removing pods: the work, devices and redundancy that are lost.

Pods that a ReplicaSet recreates lose least; then those of a StatefulSet, of a Job in progress, and pods that
nothing recreates. Devices, priority and an exhausted PodDisruptionBudget add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice, takewhile

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.quantity import NANO
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.placeholders import is_placeholder
from plimsoll.ledger.units import CPU
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state import ClusterState

#: Harm by the kind of the controller, which recreates the pod; "" is a pod without one.
_HARM_BY_CONTROLLER: Mapping[str, int] = {"ReplicaSet": 5, "StatefulSet": 15, "Job": 30, "": 35}
_HARM_OF_OTHERS, _HARM_OF_DEVICE, _HARM_OF_VIOLATION = 20, 10, 25
#: Controllers whose pods return to the node at once: removing them frees nothing.
_STAYING = frozenset({"DaemonSet", "Node"})
#: Lowest priority of pods that the system needs.
_SYSTEM_PRIORITY = 2_000_000_000
#: Sets of pods tried in the order of their harm: in all, and before the most harmful are spared one by one.
_MAX_SETS, _FIRST_SETS = 64, 12


def removable_pods(snapshot: Snapshot, row: int) -> list[Pod]:
    """Return the pods of a node whose removal frees resources, least harmful first.

    Placeholders are none of them: they are removed with the pods that they stand for.
    """
    budgets = DisruptionBudgets(snapshot.all(PodDisruptionBudget))
    found = []
    for pod in snapshot.pods_at(row):
        owner = controller_of(pod.metadata)
        if is_placeholder(pod):
            continue
        if pod.priority < _SYSTEM_PRIORITY and (owner is None or owner.kind not in _STAYING):
            cpu = snapshot.ledger(row).entries[pod_key(pod)].units.get(CPU, 0)
            found.append((removal_harm(pod, snapshot, budgets), cpu, pod.metadata.key, pod))
    return [pod for *_, pod in sorted(found)]


def removal_harm(pod: Pod, snapshot: Snapshot, budgets: DisruptionBudgets | None = None) -> int:
    """Return the harm of removing a pod, comparable between pods; none if it is being deleted anyway."""
    if pod.metadata.deletion_timestamp is not None:
        return 0
    owner = controller_of(pod.metadata)
    harm = _HARM_BY_CONTROLLER.get(owner.kind if owner is not None else "", _HARM_OF_OTHERS)
    harm += 2 * max(pod.priority, 0).bit_length() + _HARM_OF_DEVICE * _count_devices(pod, snapshot)
    budgets = budgets or DisruptionBudgets(snapshot.all(PodDisruptionBudget))
    return harm + _HARM_OF_VIOLATION * bool(budgets.split_violating([pod])[0])


def _count_devices(pod: Pod, snapshot: Snapshot) -> int:
    """Return the devices that a pod holds by claims and by extended resources."""
    claims = resolve_claim_names(pod).values() if uses_claims(pod) else ()
    found = (snapshot.claim(pod.metadata.namespace, name) for name in dict.fromkeys(claims))
    count = sum(len(claim.allocation_results) for claim in found if claim is not None)
    if pod.status.extended_resource_claim_status is None:
        for container in pod.spec.containers:
            amounts = container.resources.requests.items()
            count += sum(amount.nano // NANO for name, amount in amounts if "/" in name)
    return count


def least_harmful_pods(
    cluster_state: ClusterState, node: str, shortage: Mapping[str, int]
) -> tuple[Pod, ...]:
    """Return the pods of a node that free a shortage, units by resource, with the least harm; () if none."""
    snapshot = cluster_state.snapshot
    row = snapshot.row_of(node)
    if row is None:
        return ()
    pods, entries = removable_pods(snapshot, row), snapshot.ledger(row).entries

    def suffices(chosen: Sequence[Pod]) -> bool:
        units = [entries[pod_key(pod)].units for pod in chosen]
        return all(sum(each.get(name, 0) for each in units) >= amount for name, amount in shortage.items())

    useful = [pod for pod in pods if any(entries[pod_key(pod)].units.get(name, 0) > 0 for name in shortage)]
    return choose_pods(useful, snapshot, suffices)


def choose_pods(
    pods: Sequence[Pod], snapshot: Snapshot, suffices: Callable[[Sequence[Pod]], bool]
) -> tuple[Pod, ...]:
    """Return the pods, given least harmful first, whose removal suffices with the least harm; () if none."""
    if not pods or not suffices(pods):
        return ()
    budgets = DisruptionBudgets(snapshot.all(PodDisruptionBudget))
    harms = [removal_harm(pod, snapshot, budgets) for pod in pods]
    tried = cheapest_sets(harms)

    def is_enough(chosen: Sequence[int]) -> bool:
        return suffices([pods[number] for number in chosen])

    found = next(filter(is_enough, islice(tried, _FIRST_SETS)), None)
    if found is None:  # spare the most harmful ones, and look for less harm than that
        found = (*range(len(pods)),)
        for number in reversed(found):
            fewer = tuple(each for each in found if each != number)
            found = fewer if is_enough(fewer) else found
        harm = sum(harms[number] for number in found)
        less = takewhile(lambda chosen: sum(harms[number] for number in chosen) < harm, tried)
        found = next(filter(is_enough, less), found)
    return tuple(pods[number] for number in found)


def cheapest_sets(costs: Sequence[int], most: int = _MAX_SETS) -> Iterator[tuple[int, ...]]:
    """Yield sets of indexes by total cost, of equal cost the smallest first; `costs` are ascending."""
    heap: list[tuple[int, int, tuple[int, ...]]] = [(costs[0], 1, (0,))] if costs else []
    for _ in range(most):
        if not heap:
            return
        cost, size, chosen = heappop(heap)
        yield chosen
        last = chosen[-1]
        if last + 1 < len(costs):
            heappush(heap, (cost + costs[last + 1], size + 1, (*chosen, last + 1)))
            heappush(heap, (cost - costs[last] + costs[last + 1], size, (*chosen[:-1], last + 1)))
