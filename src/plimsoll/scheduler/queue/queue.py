"""Scheduling queue: the order of pending pods, and the pods that wait for an event.

A pod is in exactly one state: active (ready), back-off (failed, waits for a time), unschedulable (waits for
an event that can help it), gated or held (must not be tried yet), or in flight (popped, until `done`,
`mark_unschedulable`, `retry` or `hold`). Events that arrive while a pod is in flight are recorded for it.
Times are integer milliseconds, given by the caller, and never decrease.

Order and fairness: pods are popped by priority; among equals, those never tried first, then retries, oldest
first. A flood of unschedulable pods does not starve others:

- each is tried once, then waits until an event can help it, and backs off after that;
- after `retries_in_a_row` retries of higher-priority pods, a pod of any priority is popped: one that was
  never tried, or else the one with the fewest attempts;
- new pods do not starve retries either: after as many first attempts that passed over a retry of the same
  priority, that retry is popped.

A pod that was never tried is never passed over by one of lower priority.

DIFF: upstream pops pods of one priority strictly by the time they were added, and never one of lower priority
first, so that pods that keep failing can starve others
(test_a_flood_of_unschedulable_high_priority_pods_does_not_starve_others,
test_first_attempts_come_before_retries).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.events import ClusterEvent
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queue.backoff import QueueSettings, backoff_ms
from plimsoll.scheduler.queue.entry import QueuedPodInfo, QueueEntry, QueueState
from plimsoll.scheduler.queue.in_flight_events import InFlightEvents
from plimsoll.scheduler.queue.ordered_keys import OrderedKeys
from plimsoll.scheduler.queue.pod_groups import PodGroupMembers, pod_group_key
from plimsoll.scheduler.queue.unschedulable_pods import UnschedulablePods
from plimsoll.scheduler.queueing_hints import (
    any_event_helps,
    make_waiting_pod,
    rules_affected_by_update,
    update_helps,
)
from plimsoll.scheduler.reasons import NodeReason, Rule


class SchedulingQueue:
    """Queue of pods without a node."""

    def __init__(
        self,
        settings: QueueSettings | None = None,
        profiles: Mapping[str, SchedulerProfile] | None = None,
    ) -> None:
        """Create a queue; `profiles` are those of its pods, by scheduler name."""
        self.settings = settings or QueueSettings()
        self._profiles = profiles or {}
        self._entries: dict[str, QueueEntry] = {}
        self._number = 0
        # -- active: never tried; tried, by priority; tried, by attempts
        self._fresh, self._tried, self._least = OrderedKeys(), OrderedKeys(), OrderedKeys()
        self._retries = self._firsts = 0  # consecutive pops of either kind that passed over others
        self._turns = 0  # turns given to pods that were tried less
        # -- back-off: by time, and those that may be popped early if the active queue is empty
        self._backoff, self._eager = OrderedKeys(), OrderedKeys()
        # -- unschedulable: by rule, and by flush time
        self._waiting, self._flush = UnschedulablePods(self._profiles), OrderedKeys()
        # -- gated and held, and those held by claim
        self._gated: dict[str, None] = {}
        self._held: dict[tuple[str, str], dict[str, None]] = {}
        self._groups = PodGroupMembers()
        self.log = InFlightEvents()

    # -- lookups

    def __len__(self) -> int:
        """Return the number of pods, those in flight included."""
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Pod]:
        """Iterate over the pods in no particular order."""
        return (entry.pod for entry in self._entries.values())

    def state_of(self, key: str) -> QueueState | None:
        """Return the state of a pod, or None if it is not queued."""
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def pod(self, key: str) -> Pod | None:
        """Return a pod as last observed."""
        entry = self._entries.get(key)
        return None if entry is None else entry.pod

    def members(self, group: tuple[str, str]) -> Set[str]:
        """Return the keys of the pods of a PodGroup, in the order in which they were added."""
        return self._groups.of(group)

    def lengths(self) -> Mapping[str, int]:
        """Return the number of pods per state, without those in flight."""
        return {
            QueueState.ACTIVE.value: len(self._fresh) + len(self._tried),
            QueueState.BACKOFF.value: len(self._backoff),
            QueueState.UNSCHEDULABLE.value: len(self._waiting),
            QueueState.GATED.value: len(self._gated),
        }

    def is_in_flight(self, key: str) -> bool:
        return self.state_of(key) is QueueState.IN_FLIGHT

    def in_flight(self) -> int:
        return len(self.log)

    def unschedulable_by_rule(self) -> Mapping[Rule, int]:
        """Return the number of unschedulable pods each rule rejected."""
        return self._waiting.counts()

    def next_due(self, now: int) -> int | None:
        """Return the milliseconds until `pop` may return a pod, or None if time alone makes none ready."""
        if self._fresh or self._tried or self._eager:
            return 0
        times = [first[0][0] for each in (self._backoff, self._flush) if (first := each.first()) is not None]
        return max(0, min(times) - now) if times else None

    # -- adding, updating and removing pods

    def add(self, pod: Pod, now: int) -> None:
        """Add a pod."""
        key = pod_key(pod)
        known = self._entries.get(key)
        if known is not None:
            if known.removed:
                known.readded = None if needs_no_node(pod) else pod
            else:
                self.update(pod, now)
        elif not needs_no_node(pod):
            self._admit(self._create(key, pod, now), now)

    def update(self, pod: Pod, now: int) -> None:
        """Update a pod; changes that scheduling reads may make it ready again."""
        key = pod_key(pod)
        entry = self._entries.get(key)
        if entry is None or entry.removed:
            self.add(pod, now)
            return
        if needs_no_node(pod):
            self.remove(key)
            return
        old, entry.pod = entry.pod, pod
        changed = rules_affected_by_update(old, pod)
        match entry.state:
            case QueueState.IN_FLIGHT:
                entry.changed |= changed
            case QueueState.ACTIVE | QueueState.BACKOFF:
                if old.priority != entry.priority:
                    self._place(entry, entry.state)
            case QueueState.UNSCHEDULABLE:
                if update_helps(changed, entry.rules):
                    self._wake(entry, now)
                elif changed:
                    self._waiting.add(key, pod, entry.rules, entry.needs_capacity)
            case QueueState.GATED:
                if not pod.spec.scheduling_gates:
                    self._admit(entry, now)
            case QueueState.HELD:
                if changed:
                    self._admit(entry, now)

    def remove(self, key: str) -> None:
        """Remove a pod that was deleted or assigned."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.state is QueueState.IN_FLIGHT:
            entry.removed, entry.readded = True, None
        else:
            self._leave(entry)
            self._delete(key)

    def hold(self, pod: Pod, reason: NodeReason, now: int) -> None:
        """Hold a pod whose claims, PodGroup or fellow members are missing; this does not count as an attempt.

        It is released when such a claim, the group or the pod itself changes, not by time.
        """
        key = pod_key(pod)
        entry = self._entries.get(key)
        if entry is None:
            if needs_no_node(pod):
                return
            entry = self._create(key, pod, now)
        elif entry.state is QueueState.IN_FLIGHT:
            entry.attempts -= 1
            if not entry.attempts:
                entry.first_tried_at = None
            missed = self.log.since(key)
            self.log.end(key)
            if self._was_removed(entry, now):
                return
            watched, group = _claims_to_watch(entry.pod, reason), pod_group_key(entry.pod)
            if entry.changed or missed is None or any(_concerns(each, watched, group) for each in missed):
                self._admit(entry, now)
                return
        else:
            self._leave(entry)
        entry.watched = _claims_to_watch(entry.pod, reason)
        self._place(entry, QueueState.HELD)

    # -- attempts

    def pop(self, now: int) -> QueuedPodInfo | None:
        """Return the next pod, which is in flight from then on, or None."""
        self._move_due_pods(now)
        key = self._choose()
        early = key is None
        key = key or self._eager.pop()
        if key is None:
            return None
        return self._take(self._entries[key], now, early=early)

    def pop_members(self, group: tuple[str, str], now: int) -> list[QueuedPodInfo]:
        """Return the pods of a PodGroup that can be attempted now, which are in flight from then on.

        Pods that back off or wait for an event are among them: they are attempted together with the one that
        was popped. Gated and held pods are not.
        """
        entries = [self._entries[key] for key in self.members(group)]
        return [
            self._take(entry, now)
            for entry in entries
            if entry.state in (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.UNSCHEDULABLE)
        ]

    def _take(self, entry: QueueEntry, now: int, *, early: bool = False) -> QueuedPodInfo:
        """Put a pod in flight."""
        key = entry.key
        entry.early = early
        self._leave(entry)
        entry.state = QueueState.IN_FLIGHT
        entry.attempts += 1
        entry.changed, entry.activated = frozenset(), False
        if entry.first_tried_at is None:
            entry.first_tried_at = now
        self.log.begin(key)
        return QueuedPodInfo(entry.pod, key, entry.attempts, entry.queued_at, entry.first_tried_at)

    def done(self, key: str, now: int) -> None:
        """Remove a pod in flight that was assigned to a node."""
        entry = self._end_flight(key)
        if entry is not None:
            self._delete(key)
            if entry.readded is not None:
                self.add(entry.readded, now)

    def mark_unschedulable(
        self, key: str, rules: frozenset[Rule], now: int, *, needs_capacity: bool = True
    ) -> None:
        """Queue a pod in flight that these rules rejected until an event can help it.

        Without rules every event can. `needs_capacity` is False if only devices were missing (see
        `devices.needs_capacity`).
        """
        missed = self.log.since(key)
        entry = self._end_flight(key)
        if entry is None or self._was_removed(entry, now):
            return
        entry.errors = 0
        entry.rules, entry.needs_capacity = rules, needs_capacity
        if entry.early:
            entry.eager -= 1
        else:
            if now - entry.since > 2 * self.settings.max_backoff_ms:
                entry.failures = 0
            entry.failures += 1
            entry.due = now + backoff_ms(self.settings, entry.failures)
            entry.eager = self.settings.eager_tries
        self._stamp(entry, now)
        if entry.activated:
            self._place(entry, QueueState.ACTIVE)
        elif (
            missed is None
            or update_helps(entry.changed, rules)
            or any_event_helps(missed, self._waiting_pod(entry))
        ):
            self._place(entry, QueueState.BACKOFF)
        else:
            self._place(entry, QueueState.UNSCHEDULABLE)

    def _waiting_pod(self, entry: QueueEntry) -> WaitingPod:
        profile = self._profiles.get(entry.pod.spec.scheduler_name)
        return make_waiting_pod(entry.pod, entry.rules, entry.needs_capacity, profile)

    def retry(self, key: str, now: int) -> None:
        """Queue a pod in flight for another attempt after an error or a conflict."""
        entry = self._end_flight(key)
        if entry is None or self._was_removed(entry, now):
            return
        entry.errors += 1
        self._stamp(entry, now)
        entry.due = now + backoff_ms(self.settings, entry.errors)
        entry.rules = frozenset()
        self._place(entry, QueueState.ACTIVE if entry.activated else QueueState.BACKOFF)

    # -- events

    def on_event(self, event: ClusterEvent, now: int) -> int:
        """Wake the pods that an event may help; return their number."""
        self.log.add(event)
        keys = self._waiting.helped_by(event)
        for key in keys:
            self._wake(self._entries[key], now)
        held = {key for name in event.claims for key in self._held.get(name, ())}
        if event.group is not None:
            states = {key: self._entries[key].state for key in self.members(event.group)}
            held |= {key for key, state in states.items() if state is QueueState.HELD}
        for key in sorted(held):
            self._admit(self._entries[key], now)
        return len(keys) + len(held)

    def activate(self, keys: Iterable[str], now: int) -> int:
        """Make pods ready at once, regardless of back-off and of what holds them; return their number."""
        count = 0
        for key in keys:
            entry = self._entries.get(key)
            if entry is None or entry.removed:
                continue
            if entry.state is QueueState.IN_FLIGHT:
                entry.activated = True
            elif entry.state in (QueueState.BACKOFF, QueueState.UNSCHEDULABLE):
                self._place(entry, QueueState.ACTIVE)
            elif entry.state is QueueState.HELD:
                self._admit(entry, now)
            else:
                continue
            count += 1
        return count

    # -- internals

    def _create(self, key: str, pod: Pod, now: int) -> QueueEntry:
        entry = self._entries[key] = QueueEntry(key, pod, now, now)
        self._groups.add(key, pod)
        return entry

    def _delete(self, key: str) -> None:
        self._groups.remove(key, self._entries.pop(key).pod)

    def _admit(self, entry: QueueEntry, now: int) -> None:
        """Make a pod ready, or gate it."""
        self._stamp(entry, now)
        self._place(entry, QueueState.GATED if entry.pod.spec.scheduling_gates else QueueState.ACTIVE)

    def _stamp(self, entry: QueueEntry, now: int) -> None:
        """Set the time that orders pods of equal priority."""
        self._number += 1
        entry.since, entry.number = now, self._number

    def _wake(self, entry: QueueEntry, now: int) -> None:
        self._place(entry, QueueState.ACTIVE if entry.due <= now else QueueState.BACKOFF)

    def _move_due_pods(self, now: int) -> None:
        """Make the pods ready whose back-off or flush time has come."""
        for key in self._backoff.pop_up_to(now):
            self._place(self._entries[key], QueueState.ACTIVE)
        for key in self._flush.pop_up_to(now):
            self._wake(self._entries[key], now)

    def _choose(self) -> str | None:
        """Return the next of the active pods, in the order described at the top of the module."""
        fresh, tried = self._fresh.first(), self._tried.first()
        if tried is None:
            self._firsts = self._retries = 0
            return None if fresh is None else fresh[1]
        if fresh is None:
            self._firsts = 0
            return self._retry(tried[1], self._is_turn())
        if tried[0][0] < fresh[0][0]:  # the retry has a higher priority
            if not self._is_turn():
                return self._retry(tried[1], False)
            least = self._entries[self._least.first_key()]
            if self._turns % 2 and -least.priority <= fresh[0][0]:
                return self._retry(tried[1], True)
        elif tried[0][0] == fresh[0][0]:
            if self._firsts >= self.settings.retries_in_a_row:
                self._firsts = 0
                return self._retry(tried[1], False)
            self._firsts += 1
        self._turns += self._is_turn()
        self._retries = 0
        return fresh[1]

    def _is_turn(self) -> bool:
        """Return whether it is the turn of pods that were tried less."""
        return self._retries >= self.settings.retries_in_a_row

    def _retry(self, key: str, turn: bool) -> str:
        """Return the pod to retry: the given one, or the one tried least if it is its turn."""
        if not turn:
            self._retries += 1
            return key
        self._retries = 0
        self._turns += 1
        return self._least.first_key()

    def _place(self, entry: QueueEntry, where: QueueState) -> None:
        """Move a pod to a state."""
        self._leave(entry)
        key, entry.state = entry.key, where
        match where:
            case QueueState.ACTIVE:
                order = (-entry.priority, entry.since, entry.number)
                if entry.attempts:
                    self._tried.put(key, order)
                    self._least.put(key, (entry.attempts, entry.since, entry.number))
                else:
                    self._fresh.put(key, order)
            case QueueState.BACKOFF:
                self._backoff.put(key, (entry.due,))
                if entry.rules and entry.eager > 0 and entry.failures <= self.settings.eager_failures:
                    self._eager.put(key, (-entry.priority, entry.since, entry.number))
            case QueueState.UNSCHEDULABLE:
                self._waiting.add(key, entry.pod, entry.rules, entry.needs_capacity)
                self._flush.put(key, (entry.since + self.settings.flush_ms,))
            case QueueState.HELD | QueueState.GATED:
                self._gated[key] = None
                for name in entry.watched:
                    self._held.setdefault(name, {})[key] = None

    def _leave(self, entry: QueueEntry) -> None:
        """Remove a pod from the structures of its state."""
        key = entry.key
        match entry.state:
            case QueueState.ACTIVE:
                if not self._fresh.remove(key):
                    self._tried.remove(key)
                    self._least.remove(key)
            case QueueState.BACKOFF:
                self._backoff.remove(key)
                self._eager.remove(key)
            case QueueState.UNSCHEDULABLE:
                self._waiting.remove(key)
                self._flush.remove(key)
            case QueueState.HELD | QueueState.GATED:
                self._gated.pop(key, None)
                for name in entry.watched:
                    users = self._held.get(name, {})
                    users.pop(key, None)
                    if not users:
                        self._held.pop(name, None)
                entry.watched = ()

    def _end_flight(self, key: str) -> QueueEntry | None:
        """Return the entry of a pod that was in flight; it no longer is."""
        entry = self._entries.get(key)
        if entry is None or entry.state is not QueueState.IN_FLIGHT:
            return None
        self.log.end(key)
        return entry

    def _was_removed(self, entry: QueueEntry, now: int) -> bool:
        """Return whether a pod was removed while in flight; one that was added again is queued as new."""
        if not entry.removed:
            return False
        self._delete(entry.key)
        if entry.readded is not None:
            self.add(entry.readded, now)
        return True


def needs_no_node(pod: Pod) -> bool:
    """Return whether a pod needs no node: it is assigned, finished or terminating."""
    return bool(pod.spec.node_name or pod.metadata.deletion_timestamp is not None or pod.has_terminated)


def _claims_to_watch(pod: Pod, reason: NodeReason) -> tuple[tuple[str, str], ...]:
    """Return the claims whose change can end a hold: the one that the reason names, or all."""
    names = set(resolve_claim_names(pod).values())
    named = str(reason.facts.get("claim", "")).rpartition("/")[2]
    if named in names:
        names = {named}
    return tuple((pod.metadata.namespace, name) for name in sorted(names))


def _concerns(
    event: ClusterEvent, watched: tuple[tuple[str, str], ...], group: tuple[str, str] | None
) -> bool:
    if event.group is not None and event.group == group:
        return True
    return any(name in watched for name in event.claims)
