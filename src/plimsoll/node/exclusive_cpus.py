"""Exclusive CPUs that claims gave to containers.

Drivers pin containers through NRI, and the runtime knows what they set. A container has exclusive CPUs if no
other container may run on them and its claims charge at least as many: one that happens to be alone on the
CPUs all others share has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from plimsoll.api.core import Pod
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.charges import read_charges, sum_container_charges
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.machine.machine import parse_cpus

#: CPUs that only one container may use, by pod UID and container name.
UnsharedCpus = Mapping[tuple[str, str], tuple[int, ...]]


def find_unshared_cpus(states: Iterable[ContainerInfo]) -> UnsharedCpus:
    """Return the CPUs of containers that are pinned to CPUs no other container may use.

    They are not exclusive unless a claim gave them: see `exclusive_cpus`.
    """
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


def exclusive_cpus(pod: Pod, unshared: UnsharedCpus) -> dict[str, tuple[int, ...]]:
    """Return the CPUs that claims gave to the containers of a pod exclusively, by container."""
    charges = read_charges(pod)
    found: dict[str, tuple[int, ...]] = {}
    for (uid, name), cpus in unshared.items() if charges else ():
        if uid == pod.metadata.uid:
            claimed = sum_container_charges(charges, name).get("cpu", ZERO)
            if Quantity.parse(str(len(cpus))) <= claimed:
                found[name] = cpus
    return found


def containers_with_claimed_cpus(pod: Pod, states: Iterable[ContainerInfo]) -> frozenset[str]:
    """Return the names of a pod's containers that have exclusive CPUs.

    The kubelet sets no CPU quota for containers with exclusive CPUs: it would throttle them on CPUs that are
    not shared.
    """
    return frozenset(exclusive_cpus(pod, find_unshared_cpus(states)))
