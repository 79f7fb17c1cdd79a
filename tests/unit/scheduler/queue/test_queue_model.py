"""Random operations: the queue agrees with a naive one, and no pod is lost or in two states."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, NodeCapacity, classify_change, make_release_event
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.queue import QueueSettings, QueueState, SchedulingQueue
from plimsoll.scheduler.queue.unschedulable_pods import UnschedulablePods
from plimsoll.scheduler.reasons import NodeReason, Rule
from tests.build import claim, device, device_class, node, pod, resource_slice
from tests.sizes import examples, seeds
from tests.unit.scheduler.queue.naive_queue import NaiveQueue, naive_helps

NAMES = "abcdef"
ZONE = "topology.kubernetes.io/zone"
_DAEMON = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        }
    }
}


def _near(kind: str, label: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": ZONE}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
]
_VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "pvc"}}]
_FIELDS: list[dict[str, Any]] = [
    {},
    {"cpu": "1"},
    {"cpu": "6"},
    {"cpu": "1", "priority": 5},
    {"labels": {"app": "x"}},
    {"claims": ["c1"]},
    {"claims": ["c1", "c2"], "cpu": "1"},
    {"tolerations": [{"key": "t", "operator": "Exists"}]},
    {"node_selector": {"disk": "ssd"}},
    {"affinity": _DAEMON, "cpu": "1"},
    {"affinity": _near("podAffinity", "x"), "labels": {"app": "x"}},
    {"affinity": _near("podAntiAffinity", "x")},
    {"topology_spread_constraints": _SPREAD},
    {"host_ports": [80]},
    {"volumes": _VOLUMES},
    {"scheduling_gates": [{"name": "g"}]},
    {"priority": -1},
]
_RULES = [each for each in Rule if each is not Rule.SCHEDULING_GATES]

pods = st.builds(lambda name, fields: pod(name, **fields), st.sampled_from(NAMES), st.sampled_from(_FIELDS))
rule_sets = st.frozensets(st.sampled_from(_RULES), max_size=3)

_NODES = [
    node("n1"),
    node("n1", cpu="16"),
    node("n1", labels={"disk": "ssd", ZONE: "a"}),
    node("n1", taints=["t:NoSchedule"]),
    node("n1", unschedulable=True),
    node("n2", cpu="2"),
    node("n2", cpu="4", labels={"disk": "ssd"}, taints=["u:NoExecute"]),
]
_DEVICE = {"request": "r", "driver": "d", "pool": "n1", "device": "x"}
_CLAIMS = [
    claim("c1"),
    claim("c1", results=[_DEVICE], node="n1"),
    claim("c1", results=[_DEVICE], node="n1", reserved=["a"]),
    claim("c2"),
    claim("c1", namespace="away"),
]
_BOUND = [
    pod("z", node="n1", cpu="4"),
    pod("z", node="n1", cpu="2", labels={"app": "x"}),
    pod("z", node="n2", claims=["c9"]),
    pod("z", node="n1", host_ports=[80], volumes=_VOLUMES),
    pod("z", node="n1", affinity=_near("podAntiAffinity", "x"), labels={"app": "y"}),
    pod("z", node="n1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    pod("z", status={"nominatedNodeName": "n1"}),
    pod("z", node="n1", status={"phase": "Succeeded"}),
]
_ROOMS = [
    None,
    NodeCapacity(node("n1"), {"cpu": 8000, "pods": 110}, {"cpu": 500, "pods": 3}, 0),
    NodeCapacity(node("n1"), {"cpu": 8000, "pods": 110}, {"cpu": 2000, "pods": 0}, None),
    NodeCapacity(node("n1"), {"cpu": 8000, "pods": 110}, {"cpu": -500, "memory": -1, "pods": 3}, 1),
    NodeCapacity(
        node("n1", taints=["t:NoSchedule"]), {"cpu": 8000, "pods": 110}, {"cpu": 7000, "pods": 3}, 5
    ),
]


def _changes() -> list[ClusterEvent]:
    """Return all events of these objects."""
    states: list[list[Any]] = [
        [None, *(each for each in _NODES if each.metadata.name == name)] for name in ("n1", "n2")
    ]
    states += [[None, *_CLAIMS[:3]], [None, _CLAIMS[3]], [None, _CLAIMS[4]], [None, *_BOUND]]
    states += [[None, device_class("class-a")], [None, resource_slice([device("x")], "n1")]]
    found = [
        classify_change(old, new, room)
        for same in states
        for old in same
        for new in same
        for room in (_ROOMS if same[-1] is _BOUND[-1] and new is None else [None])
        if old is not new
    ]
    found += [
        make_release_event(pod("w", claims=["c1"])),
        *(make_release_event(pod("w"), room) for room in _ROOMS),
    ]
    return [each for each in found if each is not None]


EVENTS = _changes()
events = st.sampled_from(EVENTS)

_QUEUE = QueueSettings(
    initial_backoff_ms=10,
    max_backoff_ms=60,
    flush_ms=400,
    eager_failures=2,
    eager_tries=2,
    retries_in_a_row=2,
)
_WHY = [
    NodeReason(Rule.DEVICES, ClaimMessage.MISSING, VerdictCode.UNRESOLVABLE, {"claim": "c1"}),
    NodeReason(Rule.DEVICES, ClaimMessage.NOT_CREATED, VerdictCode.UNRESOLVABLE, {"pod": "p"}),
]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), pods, st.just(None)),
        st.tuples(st.just("update"), pods, st.just(None)),
        st.tuples(st.just("remove"), pods, st.just(None)),
        st.tuples(
            st.just("bound"), st.sampled_from(NAMES).map(lambda name: pod(name, node="n1")), st.just(None)
        ),
        st.tuples(st.just("hold"), pods, st.sampled_from(_WHY)),
        st.tuples(st.just("pop"), st.just(None), st.integers(1, 4)),
        st.tuples(st.just("done"), st.integers(0, 9), st.just(None)),
        st.tuples(st.just("mark_unschedulable"), st.integers(0, 9), rule_sets),
        st.tuples(st.just("mark_unschedulable"), st.integers(0, 9), rule_sets),
        st.tuples(st.just("retry"), st.integers(0, 9), st.just(None)),
        st.tuples(st.just("hold flying"), st.integers(0, 9), st.sampled_from(_WHY)),
        st.tuples(st.just("on_event"), events, st.just(None)),
        st.tuples(st.just("on_event"), events, st.just(None)),
        st.tuples(st.just("activate"), pods, st.just(None)),
        st.tuples(st.just("wait"), st.sampled_from([1, 5, 10, 30, 100, 500]), st.just(None)),
    ),
    max_size=80,
)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_agrees_with_the_naive_queue(script: list[tuple[str, Any, Any]]) -> None:
    quick, naive, now = SchedulingQueue(_QUEUE), NaiveQueue(_QUEUE), 0
    flying: list[tuple[str, Pod]] = []
    for what, subject, more in script:
        if what in ("done", "mark_unschedulable", "retry", "hold flying"):
            if not flying:
                continue
            key, tried = flying.pop(subject % len(flying))
            if what == "done":
                quick.done(key, now)
                naive.done(key, now)
            elif what == "mark_unschedulable":
                quick.mark_unschedulable(key, more, now)
                naive.mark_unschedulable(key, more, now)
            elif what == "retry":
                quick.retry(key, now)
                naive.retry(key, now)
            else:
                quick.hold(tried, more, now)
                naive.hold(tried, more, now)
        elif what == "pop":
            for _ in range(more):
                attempt = quick.pop(now)
                assert (attempt and attempt.key) == naive.pop(now)
                if attempt is not None:
                    assert attempt.attempts == naive.waiters[attempt.key].attempts
                    flying.append((attempt.key, attempt.pod))
        elif what == "hold":
            if all(key != subject.metadata.uid for key, _ in flying):
                quick.hold(subject, more, now)
                naive.hold(subject, more, now)
        elif what == "on_event":
            assert quick.on_event(subject, now) == naive.on_event(subject, now)
        elif what == "wait":
            now += subject
        elif what in ("remove", "activate"):
            key = subject.metadata.uid
            if what == "remove":
                quick.remove(key)
                naive.remove(key)
            else:
                quick.activate([key], now)
                naive.activate([key], now)
        else:
            each = "add" if what == "add" else "update"
            getattr(quick, each)(subject, now)
            getattr(naive, each)(subject, now)
        _check(quick, naive, now, flying)


def _check(quick: SchedulingQueue, naive: NaiveQueue, now: int, flying: list[tuple[str, Pod]]) -> None:
    assert {key: quick.state_of(key) for key in naive.waiters} == {
        key: each.where for key, each in naive.waiters.items()
    }
    assert len(quick) == len(naive.waiters), "no pod is lost or invented"
    assert {key for key, each in naive.waiters.items() if each.where is QueueState.IN_FLIGHT} == {
        key for key, _ in flying
    }
    assert quick.in_flight() == len(flying)
    lengths = quick.lengths()
    assert sum(lengths.values()) + len(flying) == len(quick), "no pod is in two places"
    assert lengths["gated"] == sum(
        each.where in (QueueState.GATED, QueueState.HELD) for each in naive.waiters.values()
    )
    due = quick.next_due(now)
    assert due is None or due >= 0
    if any(
        each.where in (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.UNSCHEDULABLE)
        for each in naive.waiters.values()
    ):
        assert due is not None, "time will do something for them"


#: What pods usually wait for; few sets, so that many pods wait for the same.
_USUAL = [frozenset({rule}) for rule in _RULES] + [
    frozenset({Rule.RESOURCES, Rule.TAINTS}),
    frozenset({Rule.RESOURCES, Rule.DEVICES, Rule.NODE_AFFINITY}),
]


@pytest.mark.parametrize("seed", seeds(25))
def test_agrees_with_the_naive_queue_for_long(seed: int) -> None:
    """The same with many pods and long runs, where the next operation depends on the state."""
    dice = random.Random(seed)
    quick, naive, now = SchedulingQueue(_QUEUE), NaiveQueue(_QUEUE), 0
    flying: list[tuple[str, Pod]] = []
    usual = dice.sample(_USUAL, 4)
    for _ in range(400):
        what = dice.choices(
            [
                "add",
                "update",
                "remove",
                "pop",
                "done",
                "mark_unschedulable",
                "retry",
                "hold",
                "on_event",
                "activate",
                "wait",
            ],
            [20, 4, 1, 30, 6, 25, 6, 2, 8, 1, 6],
        )[0]
        one = pod(f"p{dice.randrange(30)}", **dice.choice(_FIELDS))
        key = one.metadata.uid
        if what in ("done", "mark_unschedulable", "retry", "hold") and flying:
            key, one = flying.pop(dice.randrange(len(flying)))
        elif what in ("done", "mark_unschedulable", "retry", "hold"):
            continue
        more: list[Any] = [key]
        match what:
            case "add" | "update":
                more = [one]
            case "mark_unschedulable":
                more = [key, dice.choice(usual)]
            case "hold":
                more = [one, dice.choice(_WHY)]
            case "on_event":
                more = [dice.choice(EVENTS)]
            case "activate":
                more = [[key]]
        if what == "wait":
            now += dice.choice([1, 3, 10, 40])
        elif what == "pop":
            attempt = quick.pop(now)
            assert (attempt and attempt.key) == naive.pop(now)
            if attempt is not None:
                assert attempt.attempts == naive.waiters[attempt.key].attempts
                flying.append((attempt.key, attempt.pod))
        elif what == "remove":
            quick.remove(key)
            naive.remove(key)
        else:
            extra = {"needs_capacity": dice.random() < 0.5} if what == "mark_unschedulable" else {}
            answers = [getattr(each, what)(*more, now, **extra) for each in (quick, naive)]
            if what == "on_event":
                assert answers[0] == answers[1]
        _check(quick, naive, now, flying)


@pytest.mark.parametrize("seed", seeds(12))
def test_agrees_with_many_equal_pods(seed: int) -> None:
    dice = random.Random(seed)
    index, naive = UnschedulablePods(), dict[str, tuple[Pod, frozenset[Rule], bool]]()
    usual = dice.sample(_USUAL, 3)
    for number in range(60):
        one = pod(f"p{number}", **dice.choice(_FIELDS))
        naive[f"k{number}"] = one, dice.choice(usual), dice.random() < 0.5
        index.add(f"k{number}", *naive[f"k{number}"])
    for event in EVENTS:
        assert {*index.helped_by(event)} == {
            key for key, (each, rules, room) in naive.items() if naive_helps(event, rules, each, room)
        }


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(pods, rule_sets), max_size=12), st.lists(events, max_size=6), st.data())
def test_an_event_finds_the_pods_it_helps(
    waiting: list[tuple[Pod, frozenset[Rule]]], events: list[ClusterEvent], data: st.DataObject
) -> None:
    index, naive = UnschedulablePods(), dict[str, tuple[Pod, frozenset[Rule]]]()
    for number, (each, rules) in enumerate(waiting):
        index.add(f"k{number}", each, rules)
        naive[f"k{number}"] = (each, rules)
    for event in events:
        found = index.helped_by(event)
        assert len(found) == len({*found})
        assert {*found} == {key for key, (each, rules) in naive.items() if naive_helps(event, rules, each)}
        if naive:
            key = data.draw(st.sampled_from(sorted(naive)))
            assert index.remove(key)
            assert not index.remove(key)
            del naive[key]
    assert len(index) == len(naive)
    assert index.counts() == {
        rule: count for rule in Rule if (count := sum(rule in rules for _, rules in naive.values()))
    }
    for key in list(naive):
        index.remove(key)
    assert not any((index.groups, index.by_rule, index.by_name, index.unexplained, index.names_of))
