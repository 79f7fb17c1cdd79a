"""Naive scheduling queue on plain lists, to compare the real one with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.events import ClusterEvent, EventKind
from plimsoll.scheduler.queue import QueueSettings, QueueState
from plimsoll.scheduler.queueing_hints import (
    affected_rules,
    helps,
    make_waiting_pod,
    rules_affected_by_update,
)
from plimsoll.scheduler.reasons import NodeReason, Rule

_CLAIMS = (
    EventKind.CLAIM_CHANGED,
    EventKind.CLAIM_FREED,
    EventKind.VOLUME_CLAIM_CHANGED,
)


def can_help(
    event: ClusterEvent,
    rule: Rule,
    pod: Pod,
    rules: frozenset[Rule] = frozenset(),
    needs_capacity: bool = True,
) -> bool:
    """Return whether an event may help a pod that a rule rejected; `rules` are all that did."""
    waiting_pod = make_waiting_pod(pod, rules | {rule}, needs_capacity)
    return rule in affected_rules(event) and helps(event, rule, waiting_pod)


def naive_helps(event: ClusterEvent, rules: frozenset[Rule], pod: Pod, needs_capacity: bool = True) -> bool:
    """Return whether an event may help a pod, asking every rule in turn."""
    if not rules:
        return True
    return any(
        can_help(event, rule, pod, rules, needs_capacity) for rule in rules if rule in affected_rules(event)
    )


@dataclass
class Waiter:
    pod: Pod
    since: int
    where: QueueState
    number: int  #: which of those of one moment it was
    failures: int = 0
    errors: int = 0
    attempts: int = 0
    due: int = 0
    eager: int = 0
    early: bool = False
    needs_capacity: bool = True
    rules: frozenset[Rule] = frozenset()
    watched: frozenset[str] = frozenset()
    missed: list[ClusterEvent] = field(default_factory=list)
    changed: frozenset[Rule] = frozenset()
    activated: bool = False
    gone: bool = False
    again: Pod | None = None

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


class NaiveQueue:
    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.waiters: dict[str, Waiter] = {}
        self.number = self.retries = self.firsts = self.turns = 0

    def _to(self, waiter: Waiter, where: QueueState) -> None:
        waiter.where = where

    def _stamp(self, waiter: Waiter, now: int) -> None:
        self.number += 1
        waiter.since, waiter.number = now, self.number

    def _those(self, where: QueueState) -> list[Waiter]:
        return [each for each in self.waiters.values() if each.where is where]

    def _ready(self, waiter: Waiter, now: int) -> None:
        self._stamp(waiter, now)
        self._to(waiter, QueueState.GATED if waiter.pod.spec.scheduling_gates else QueueState.ACTIVE)

    def _wait_ms(self, count: int) -> int:
        wait = self.settings.initial_backoff_ms
        for _ in range(count - 1):
            wait = min(2 * wait, self.settings.max_backoff_ms)
        return wait

    def add(self, pod: Pod, now: int) -> None:
        known = self.waiters.get(pod_key(pod))
        if known is None and pod.spec.node_name:
            return
        if known is None:
            self.waiters[pod_key(pod)] = made = Waiter(pod, now, QueueState.ACTIVE, 0)
            self._ready(made, now)
        elif known.gone:
            known.again = None if pod.spec.node_name else pod
        else:
            self.update(pod, now)

    def update(self, pod: Pod, now: int) -> None:
        waiter = self.waiters.get(pod_key(pod))
        if waiter is None or waiter.gone:
            self.add(pod, now)
            return
        if pod.spec.node_name:
            self.remove(pod_key(pod))
            return
        old, waiter.pod = waiter.pod, pod
        changed = rules_affected_by_update(old, pod)
        if waiter.where is QueueState.IN_FLIGHT:
            waiter.changed |= changed
        elif waiter.where in (QueueState.ACTIVE, QueueState.BACKOFF):
            if (old.spec.priority or 0) != waiter.priority:
                self._to(waiter, waiter.where)
        elif waiter.where is QueueState.UNSCHEDULABLE:
            if (changed & waiter.rules) if waiter.rules else changed:
                self._to(waiter, QueueState.ACTIVE if waiter.due <= now else QueueState.BACKOFF)
        elif waiter.where is QueueState.GATED:
            if not pod.spec.scheduling_gates:
                self._ready(waiter, now)
        elif changed:
            self._ready(waiter, now)

    def remove(self, key: str) -> None:
        waiter = self.waiters.get(key)
        if waiter is not None and waiter.where is QueueState.IN_FLIGHT:
            waiter.gone, waiter.again = True, None
        elif waiter is not None:
            del self.waiters[key]

    def _land(self, key: str, now: int) -> Waiter | None:
        waiter = self.waiters.get(key)
        if waiter is None or waiter.where is not QueueState.IN_FLIGHT:
            return None
        if waiter.gone:
            del self.waiters[key]
            if waiter.again is not None:
                self.add(waiter.again, now)
            return None
        return waiter

    def done(self, key: str, now: int) -> None:
        waiter = self.waiters.get(key)
        if waiter is not None and waiter.where is QueueState.IN_FLIGHT:
            del self.waiters[key]
            if waiter.again is not None:
                self.add(waiter.again, now)

    def mark_unschedulable(
        self, key: str, rules: frozenset[Rule], now: int, *, needs_capacity: bool = True
    ) -> None:
        waiter = self._land(key, now)
        if waiter is None:
            return
        waiter.errors, waiter.rules, waiter.needs_capacity = 0, rules, needs_capacity
        if waiter.early:
            waiter.eager -= 1
        else:
            slept = now - waiter.since > 2 * self.settings.max_backoff_ms
            waiter.failures = 1 if slept else waiter.failures + 1
            waiter.due = now + self._wait_ms(waiter.failures)
            waiter.eager = self.settings.eager_tries
        self._stamp(waiter, now)
        helped = any(naive_helps(each, rules, waiter.pod, needs_capacity) for each in waiter.missed)
        helped = helped or bool(waiter.changed & rules if rules else waiter.changed)
        if waiter.activated:
            self._to(waiter, QueueState.ACTIVE)
        else:
            self._to(waiter, QueueState.BACKOFF if helped else QueueState.UNSCHEDULABLE)

    def retry(self, key: str, now: int) -> None:
        waiter = self._land(key, now)
        if waiter is None:
            return
        waiter.errors += 1
        waiter.due, waiter.rules = now + self._wait_ms(waiter.errors), frozenset()
        self._stamp(waiter, now)
        self._to(waiter, QueueState.ACTIVE if waiter.activated else QueueState.BACKOFF)

    def hold(self, pod: Pod, why: NodeReason, now: int) -> None:
        key = pod_key(pod)
        known = self.waiters.get(key)
        if known is None:
            known = self.waiters[key] = Waiter(pod, now, QueueState.HELD, 0)
        was_in_flight = known.where is QueueState.IN_FLIGHT
        if was_in_flight:
            known.attempts -= 1
            if self._land(key, now) is None:
                return
        names = frozenset(resolve_claim_names(known.pod).values())
        named = why.facts.get("claim")
        known.watched = frozenset({str(named)}) if named in names else names
        if was_in_flight and (known.changed or any(self._concerns(each, known) for each in known.missed)):
            self._ready(known, now)
        else:
            self._to(known, QueueState.HELD)

    @staticmethod
    def _concerns(event: ClusterEvent, waiter: Waiter) -> bool:
        meta = event.object.metadata
        if meta.namespace != waiter.pod.metadata.namespace:
            return False
        if event.kind is EventKind.POD_DELETED:
            names = {*resolve_claim_names(event.old).values()}
            return not event.old.spec.node_name and not waiter.watched.isdisjoint(names)
        return event.kind in _CLAIMS and meta.name in waiter.watched

    def on_event(self, event: ClusterEvent, now: int) -> int:
        for each in self._those(QueueState.IN_FLIGHT):
            each.missed.append(event)
        helped = [
            each
            for each in self._those(QueueState.UNSCHEDULABLE)
            if naive_helps(event, each.rules, each.pod, each.needs_capacity)
        ]
        for each in helped:
            self._to(each, QueueState.ACTIVE if each.due <= now else QueueState.BACKOFF)
        held = [each for each in self._those(QueueState.HELD) if self._concerns(event, each)]
        for each in sorted(held, key=lambda waiter: pod_key(waiter.pod)):
            self._ready(each, now)
        return len(helped) + len(held)

    def activate(self, keys: Iterable[str], now: int) -> None:
        for key in keys:
            waiter = self.waiters.get(key)
            if waiter is None or waiter.gone:
                continue
            if waiter.where is QueueState.IN_FLIGHT:
                waiter.activated = True
            elif waiter.where in (QueueState.BACKOFF, QueueState.UNSCHEDULABLE):
                self._to(waiter, QueueState.ACTIVE)
            elif waiter.where is QueueState.HELD:
                self._ready(waiter, now)

    def pop(self, now: int) -> str | None:
        for each in self._those(QueueState.BACKOFF):
            if each.due <= now:
                self._to(each, QueueState.ACTIVE)
        for each in self._those(QueueState.UNSCHEDULABLE):
            if each.since + self.settings.flush_ms <= now:
                self._to(each, QueueState.ACTIVE if each.due <= now else QueueState.BACKOFF)
        chosen = self._choose()
        if chosen is None:
            return None
        chosen.early = chosen.where is QueueState.BACKOFF
        chosen.where, chosen.missed, chosen.changed, chosen.activated = (
            QueueState.IN_FLIGHT,
            [],
            frozenset(),
            False,
        )
        chosen.attempts += 1
        return pod_key(chosen.pod)

    def _choose(self) -> Waiter | None:
        active = sorted(self._those(QueueState.ACTIVE), key=lambda e: (-e.priority, e.since, e.number))
        fresh = next((each for each in active if not each.attempts), None)
        tried = [each for each in active if each.attempts]
        enough = self.settings.retries_in_a_row
        if not tried:
            self.firsts = self.retries = 0
            return fresh if fresh is not None else self._early()
        least = min(tried, key=lambda e: (e.attempts, e.since, e.number))
        turn = self.retries >= enough
        if fresh is None:
            self.firsts = 0
            take_retry, by_turn = True, turn
        elif tried[0].priority > fresh.priority:
            by_turn = turn and bool(self.turns % 2) and least.priority >= fresh.priority
            take_retry = not turn or by_turn
        elif tried[0].priority == fresh.priority:
            take_retry, by_turn = self.firsts >= enough, False
            self.firsts = 0 if take_retry else self.firsts + 1
        else:
            take_retry = by_turn = False
        if take_retry:
            self.retries = 0 if by_turn else self.retries + 1
            self.turns += by_turn
            return least if by_turn else tried[0]
        self.turns += turn
        self.retries = 0
        return fresh

    def _early(self) -> Waiter | None:
        early = [
            each
            for each in self._those(QueueState.BACKOFF)
            if each.rules and each.eager > 0 and each.failures <= self.settings.eager_failures
        ]
        return min(early, key=lambda e: (-e.priority, e.since, e.number), default=None)
