"""Which pods were promised which node.

Owns `Nominations`. A pod whose victims are on their way out is nominated to their node; until it gets there,
pods of the same or of lower priority must leave it room (`filter_node`). Promises come from a pod's
`status.nominatedNodeName` and from our own preemptions, which count at once: what the API says is believed
again when it has heard of them. A pod that is bound, assumed or gone has no use for a promise: `drop` it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.importance import most_important_first, priority_of
from plimsoll.scheduler.preemption.node_filter import Examination
from plimsoll.scheduler.preemption.simulated_node import Hypothesis
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.snapshot.snapshot import TERMINAL_PHASES, Snapshot


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pod and the node it was promised."""

    pod: Pod
    node: str
    written: bool  #: whether the pod's status said so when it was last heard of
    victims: frozenset[str] = frozenset()  #: keys of pods that have been asked to go, or will be at once


class Nominations:
    """The promises of a cluster."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Nomination] = {}
        self._by_node: dict[str, dict[str, Nomination]] = {}
        #: Grows whenever a promise is made or withdrawn.
        self.version = 0

    def __len__(self) -> int:
        return len(self._by_pod)

    # -- hearing of promises

    def hear(self, pod: Pod) -> None:
        """A pod is new or has changed."""
        key, name = pod_key(pod), pod.status.nominated_node_name
        if pod.spec.node_name or pod.status.phase in TERMINAL_PHASES:
            self.drop(key)
            return
        known = self._by_pod.get(key)
        if known is not None and not known.written and name != known.node:
            self._put(replace(known, pod=pod))  # the API does not know yet what we decided
        elif name:
            victims = known.victims if known is not None and known.node == name else frozenset()
            self._put(Nomination(pod, name, True, victims))
        else:
            self.drop(key)

    def nominate(self, pod: Pod, node: str, victims: Iterable[Pod] = ()) -> None:
        """Promise a node to a pod, as of now; as long as `victims` are there, it waits for them to go."""
        written = pod.status.nominated_node_name == node
        self._put(Nomination(pod, node, written, frozenset(map(pod_key, victims))))

    def drop(self, key: str) -> None:
        """A promise is void; one that was never made does no harm."""
        known = self._by_pod.pop(key, None)
        if known is None:
            return
        self.version += 1
        here = self._by_node[known.node]
        del here[key]
        if not here:
            del self._by_node[known.node]

    def _put(self, nomination: Nomination) -> None:
        key = pod_key(nomination.pod)
        self.drop(key)
        self.version += 1
        self._by_pod[key] = nomination
        self._by_node.setdefault(nomination.node, {})[key] = nomination

    # -- asking

    def of(self, key: str) -> Nomination | None:
        return self._by_pod.get(key)

    def at(self, node: str, priority: int, but: str = "") -> list[Pod]:
        """The pods a node was promised to that one of this priority must leave room for, except `but`."""
        here = self._by_node.get(node)
        if not here:
            return []
        found = (each.pod for key, each in here.items() if key != but)
        return most_important_first(pod for pod in found if priority_of(pod) >= priority)

    def lower_at(self, node: str, priority: int) -> list[Pod]:
        """The pods of lower priority that a node was promised to."""
        here = self._by_node.get(node, {})
        return [each.pod for each in here.values() if priority_of(each.pod) < priority]

    def filter_node(
        self, pod_info: PodInfo, row: int, snapshot: Snapshot, settings: SchedulerProfile | None = None
    ) -> tuple[NodeReason, ...]:
        """Why a pod that fits on a node must leave it to those it was promised to; empty if it need not."""
        if not self._by_node:
            return ()
        others = self.at(snapshot.node(row).metadata.name, pod_info.priority, pod_info.key)
        if not others:
            return ()
        examination = Examination(pod_info, snapshot, settings or SchedulerProfile.default(), standing=False)
        with Hypothesis(snapshot, row, examination.claims_beside(others)) as hypothesis:
            answer = examination.ask_among(others, hypothesis)
        return () if isinstance(answer, NodeFit) else answer
