"""NodePorts: host ports that a pod's containers need.

A port is used on one host address or on all (no address, or 0.0.0.0). Two pods conflict if protocol and port
are equal and the addresses are equal or one of them is 0.0.0.0. Ports of sidecars count, those of other init
containers do not. In a pod on the host network every container port is a host port.

DIFF: a port that two manually bound pods of a node use is free when both are gone; upstream frees it with the
first (test_a_port_is_free_when_its_last_user_is_gone).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Self, TypeAlias

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, EventKind
from plimsoll.scheduler.filters.filter import SingleReasonFilter
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodePortsMessage(ReasonMessage):
    """Message of NodePorts."""

    CONFLICT = "node(s) didn't have free ports for the requested pod ports"


EVERY_ADDRESS = "0.0.0.0"
#: Protocol and port number.
Port: TypeAlias = "tuple[str, int]"
#: Address and port.
Socket: TypeAlias = "tuple[str, Port]"


def host_sockets(pod: Pod) -> tuple[Socket, ...]:
    """Return the distinct host ports a running pod needs."""
    return tuple(dict.fromkeys(_sockets(pod)))


def _sockets(pod: Pod) -> Iterator[Socket]:
    on_host = pod.spec.host_network
    for container in (*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if on_host else 0)
            if number > 0:
                yield port.host_ip or EVERY_ADDRESS, (port.protocol or "TCP", number)


def ports_conflict(one: Socket, other: Socket) -> bool:
    """Return whether two host ports conflict."""
    same_address = one[0] == other[0] or EVERY_ADDRESS in (one[0], other[0])
    return same_address and one[1] == other[1]


class UsedPorts(SnapshotIndex):
    """Index of the host ports in use on each node."""

    #: Maximum number of cached masks.
    kept: ClassVar[int] = 512

    def __init__(self) -> None:
        self._size = 0
        self._users: dict[Port, dict[int, dict[str, int]]] = {}  # port -> row -> address -> number of pods
        self.cached: dict[Port, dict[str, Mask]] = {}  # port -> address -> mask of nodes where it is free

    def addresses(self, port: Port, row: int) -> Mapping[str, int]:
        """Return the addresses on which a port is used on a node, with the number of pods."""
        return self._users.get(port, {}).get(row, {})

    def used_at(self, socket: Socket, row: int) -> bool:
        """Return whether a host port conflicts with one in use on a node."""
        return any(ports_conflict(socket, (address, socket[1])) for address in self.addresses(socket[1], row))

    def free(self, socket: Socket) -> Mask:
        """Return the nodes on which a host port is free."""
        address, port = socket
        known = self.cached.get(port, {}).get(address)
        if known is None:
            known = np.ones(self._size, dtype=np.bool_)
            known[[row for row in self._users.get(port, ()) if self.used_at(socket, row)]] = False
            if len(self.cached) >= self.kept:
                del self.cached[next(iter(self.cached))]
            answers = self.cached.setdefault(port, {})
            if len(answers) >= self.kept:
                answers.clear()
            answers[address] = known
        return known

    def resized(self, size: int) -> None:
        self._size = size
        self.cached.clear()

    def pod_added(self, row: int, pod: Pod) -> None:
        for address, port in host_sockets(pod):
            addresses = self._users.setdefault(port, {}).setdefault(row, {})
            addresses[address] = addresses.get(address, 0) + 1
            self._update_masks(port, row)

    def pod_removed(self, row: int, pod: Pod) -> None:
        for address, port in host_sockets(pod):
            rows = self._users[port]
            addresses = rows[row]
            addresses[address] -= 1
            if not addresses[address]:
                del addresses[address]
            if not addresses:
                del rows[row]
            if not rows:
                del self._users[port]
            self._update_masks(port, row)

    def _update_masks(self, port: Port, row: int) -> None:
        for address, mask in self.cached.get(port, {}).items():
            mask[row] = not self.used_at((address, port), row)


class NodePortsFilter(SingleReasonFilter):
    """Filter by free host ports."""

    rule = Rule.PORTS
    reason = NodeReason(rule, NodePortsMessage.CONFLICT, VerdictCode.UNSCHEDULABLE)

    depends_on_pods = True
    events = frozenset({EventKind.NODE_ADDED, EventKind.POD_DELETED})
    pod_fields = frozenset({"containers", "init_containers"})

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot, sockets: tuple[Socket, ...]) -> None:
        super().__init__(pod_info, snapshot)
        self.sockets = sockets

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | None:
        sockets = host_sockets(pod_info.pod)
        return cls(pod_info, snapshot, sockets) if sockets else None

    def filter(self) -> Mask:
        index = self.snapshot.index(UsedPorts)
        masks = [index.free(socket) for socket in self.sockets]
        return masks[0] if len(masks) == 1 else np.logical_and.reduce(masks)

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        used = {socket for pod in self.snapshot.pods_at(row) for socket in host_sockets(pod)}
        free = not any(ports_conflict(wanted, socket) for wanted in self.sockets for socket in used)
        return () if free else (self.reason,)

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        if event.kind is EventKind.POD_DELETED:
            own = waiting_pod.value(host_sockets)
            return any(ports_conflict(socket, other) for socket in host_sockets(event.old) for other in own)
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def hint_key(cls, pod: Pod) -> object:
        return host_sockets(pod)
