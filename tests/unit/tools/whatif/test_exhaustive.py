"""Existence of a placement, compared with a brute-force search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.whatif import Whatif
from plimsoll.tools.whatif.exhaustive import Proof, ProofVerdict
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)
from tests.sizes import examples
from tests.unit.tools.whatif.workloads import select, whatif_of, whole_or_half


def names(proof: Proof) -> dict[str, str]:
    return {name: found.node for (_, name), found in proof.placement.items()}


# -- examples


def test_a_better_choice_of_devices_is_found() -> None:
    whatif = whole_or_half()
    with whatif.branch() as greedy:
        assert [pending.pod for pending in greedy.schedule().pending] == [("default", "b-picky")]
    proof = whatif.prove()
    assert (proof.verdict, proof.greedy, proof.most) == (ProofVerdict.ALL, 1, 2)
    chosen = {name: found.devices for (_, name), found in proof.placement.items()}
    assert chosen == {"a-easy": (f"{DRIVER}/n/b-half",), "b-picky": (f"{DRIVER}/n/a-whole",)}


def test_the_search_restores_the_state() -> None:
    whatif = whole_or_half()
    before = list(whatif.cluster_state.objects)
    whatif.prove()
    assert sorted(map(repr, whatif.cluster_state.objects)) == sorted(map(repr, before))
    assert verify(whatif.cluster_state.snapshot) == []


def test_a_better_choice_of_nodes_is_found() -> None:
    """The small pod is scheduled to the emptier node, the only one that fits the large pod."""
    whatif = whatif_of(node("a", cpu="2"), node("b", cpu="4"), pod("p0", cpu="1"), pod("p1", cpu="4"))
    with whatif.branch() as greedy:
        assert len(greedy.schedule().pending) == 1
    proof = whatif.prove()
    assert proof.verdict is ProofVerdict.ALL
    assert names(proof) == {"p0": "a", "p1": "b"}


def test_impossibility_is_proved_with_the_maximum() -> None:
    pods = [pod(f"p{number}", cpu="2") for number in range(5)]
    proof = whatif_of(node("a", cpu="3"), node("b", cpu="3"), node("c", cpu="3"), *pods).prove()
    assert (proof.verdict, proof.most, proof.settled, proof.placement) == (
        ProofVerdict.IMPOSSIBLE,
        3,
        True,
        {},
    )


def test_a_pod_with_a_missing_claim_ends_the_search() -> None:
    proof = whatif_of(node("a"), pod("p", cpu="1"), pod("q", claims=["nope"])).prove()
    assert proof.verdict is ProofVerdict.IMPOSSIBLE
    assert proof.why == 'default/q: could not find ResourceClaim "nope"'
    assert proof.most == 1


def test_a_search_is_given_up() -> None:
    pods = [pod(f"p{number}", cpu=f"{100 + number}m") for number in range(12)]
    nodes = [node(f"n{number}", cpu=f"{300 + number}m") for number in range(5)]
    proof = whatif_of(*nodes, *pods).prove(steps=50)
    assert (proof.verdict, proof.settled) == (ProofVerdict.GAVE_UP, False)
    assert proof.steps == 50


def test_an_order_is_found_where_pods_need_each_other() -> None:
    """The first in the queue has affinity to the second, which is not bound yet."""
    near = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    nodes = [node(name, cpu="2", labels={"kubernetes.io/hostname": name}) for name in ("a", "b")]
    web = pod("a-web", cpu="1", affinity=near)
    proof = whatif_of(*nodes, web, pod("b-db", cpu="1", labels={"app": "db"}), pod("c", cpu="2")).prove()
    assert proof.verdict is ProofVerdict.ALL


def test_equal_pods_do_not_multiply_the_search() -> None:
    pods = [pod(f"p{number}", cpu="1") for number in range(13)]
    nodes = [node(f"n{number}", cpu="3") for number in range(4)]
    proof = whatif_of(*nodes, *pods, pod("q", cpu="1", memory="1Gi")).prove()
    assert proof.verdict is ProofVerdict.IMPOSSIBLE
    assert proof.settled
    assert proof.steps < 500


# -- brute force


@dataclass(frozen=True)
class DeviceSpec:
    """Device: its kind and CPU charge."""

    kind: str
    cpu: int


@dataclass(frozen=True)
class PodSpec:
    """Pod: its CPU request and one of these alternatives (kind or any, number of devices)."""

    cpu: int
    alternatives: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Case:
    nodes: tuple[tuple[int, tuple[DeviceSpec, ...]], ...]
    pods: tuple[PodSpec, ...]


def most_by_force(case: Case) -> int:
    """Return the most pods that can be placed, trying every node and device."""
    line = [cpu for cpu, _ in case.nodes]
    devices = [list(offers) for _, offers in case.nodes]

    def choices(want: PodSpec, place: int, taken: frozenset[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
        if not want.alternatives:
            yield ()
        for kind, count in want.alternatives:
            free = [
                number
                for number, offer in enumerate(devices[place])
                if (place, number) not in taken and kind in ("any", offer.kind)
            ]
            yield from combinations(free, count)

    def best(pods: Sequence[PodSpec], used: tuple[int, ...], taken: frozenset[tuple[int, int]]) -> int:
        if not pods:
            return 0
        want, rest = pods[0], pods[1:]
        most = best(rest, used, taken)
        for place in range(len(line)):
            for chosen in choices(want, place, taken):
                cost = want.cpu + sum(devices[place][number].cpu for number in chosen)
                if cost and used[place] + cost > line[place]:
                    continue
                more = (*used[:place], used[place] + cost, *used[place + 1 :])
                picked = taken | {(place, number) for number in chosen}
                most = max(most, 1 + best(rest, more, picked))
        return most

    return best(case.pods, (0,) * len(line), frozenset())


def world_of(case: Case) -> Whatif:
    objects: list[Any] = [device_class()]
    for place, (cpu, offers) in enumerate(case.nodes):
        objects.append(node(f"n{place}", cpu=str(cpu)))
        made = [_device(f"d{number}", offer) for number, offer in enumerate(offers)]
        if made:
            objects.append(resource_slice(made, f"n{place}"))
    for number, want in enumerate(case.pods):
        names = []
        if want.alternatives:
            alternatives = [
                exactly(f"a{place}", count, **({} if kind == "any" else {"select": select(kind)}))
                for place, (kind, count) in enumerate(want.alternatives)
            ]
            request = first_available("r", *alternatives) if len(alternatives) > 1 else alternatives[0]
            objects.append(claim(f"c{number}", request))
            names = [f"c{number}"]
        objects.append(pod(f"p{number}", cpu=str(want.cpu) if want.cpu else None, claims=names))
    return whatif_of(*objects)


def _device(name: str, offer: DeviceSpec) -> dict[str, Any]:
    fields = {"attributes": {"kind": {"string": offer.kind}}}
    if not offer.cpu:
        return device(name, kind=offer.kind)
    made: dict[str, Any] = charging_device(name, cpu=str(offer.cpu), fields=fields)
    return made


offers = st.builds(DeviceSpec, st.sampled_from("ab"), st.integers(0, 2))
alternative = st.tuples(st.sampled_from(["a", "b", "any"]), st.integers(1, 2))
wants = st.builds(PodSpec, st.integers(0, 2), st.lists(alternative, max_size=2, unique=True).map(tuple))
cases = st.builds(
    Case,
    st.lists(
        st.tuples(st.integers(1, 4), st.lists(offers, max_size=3).map(tuple)), min_size=1, max_size=3
    ).map(tuple),
    st.lists(wants, min_size=1, max_size=4).map(tuple),
)


@settings(max_examples=examples(80), deadline=None)
@given(cases)
def test_agreement_with_brute_force(case: Case) -> None:
    whatif = world_of(case)
    proof = whatif.prove(steps=200_000)
    most = most_by_force(case)
    assert proof.settled
    assert proof.most == most
    assert (proof.verdict is ProofVerdict.ALL) == (most == len(case.pods))
    assert proof.placement == {} or len(proof.placement) == most
    assert verify(whatif.cluster_state.snapshot) == []
    with whatif.branch() as greedy:
        assert len(greedy.schedule(preempt=False).placed) <= most
