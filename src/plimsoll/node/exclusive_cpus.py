"""Exclusive CPUs of containers, as far as the runtime and the claims of a pod show them.

Drivers pin containers through NRI, and the runtime knows what they set. CPUs are a container's own if no
other container may run on them. They come from its claims if those charge at least as many: a container that
happens to be alone on the CPUs all others share has no exclusive CPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plimsoll.api.core import Pod
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.charges import read_charges, sum_container_charges
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.machine.machine import parse_cpus


def exclusive_cpus(states: Iterable[ContainerInfo]) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the CPUs of containers that are pinned to CPUs no other container may use, by pod and name."""
    pinned: dict[tuple[str, str], tuple[int, ...]] = {}
    users: Counter[int] = Counter()
    for state in states:
        if state.phase is ContainerPhase.EXITED:
            continue
        if not state.cpus:
            return {}  # an unpinned container may run on any CPU
        cpus = pinned[state.pod, state.name] = parse_cpus(state.cpus)
        users.update(cpus)
    return {key: cpus for key, cpus in pinned.items() if all(users[cpu] == 1 for cpu in cpus)}


def containers_with_claimed_cpus(pod: Pod, states: Iterable[ContainerInfo]) -> frozenset[str]:
    """Return the names of a pod's containers that have exclusive CPUs from their claims.

    The kubelet sets no CPU quota for containers with exclusive CPUs: it would throttle them on CPUs that are
    not shared.
    """
    charges = read_charges(pod)
    if not charges:
        return frozenset()
    found = set()
    for (uid, name), cpus in exclusive_cpus(states).items():
        claimed = sum_container_charges(charges, name).get("cpu", ZERO)
        if uid == pod.metadata.uid and Quantity.parse(str(len(cpus))) <= claimed:
            found.add(name)
    return frozenset(found)
