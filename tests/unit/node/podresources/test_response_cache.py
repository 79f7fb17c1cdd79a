"""Response cache, compared with newly built responses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.node.claim_info import PreparedDevice
from plimsoll.node.podresources.pod_view import (
    PodResourcesGates,
    PodResourcesView,
    build_alpha_pod_message,
    build_pod_message,
    collect_resources,
    view_pod,
)
from plimsoll.node.podresources.response_cache import ResponseCache, frame
from plimsoll.node.podresources.source import MemoryBlock, PluginDevices
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.protocols.messages import podresources_v1alpha1 as v1alpha1

from .sources import NAMESPACE, FakeNode, make_claim, make_pod

NAMES = st.sampled_from(["p", "q", "r"])
CLAIMS = st.sampled_from(["a", "b", "c"])
DEVICES = st.builds(
    PreparedDevice,
    st.sampled_from(["pool", "other"]),
    st.text(max_size=3),
    cdi=st.lists(st.text(max_size=200), max_size=3).map(tuple),
    share_id=st.none() | st.text(max_size=3),
)
PODS = st.builds(
    make_pod,
    NAMES,
    st.dictionaries(st.sampled_from(["one", "two"]), st.lists(CLAIMS, max_size=3), max_size=2),
    sidecars=st.lists(st.sampled_from(["s", "t"]), max_size=2, unique=True),
    uid=st.sampled_from(["1", "2", "3", "4"]),
)
BLOCK = MemoryBlock("memory", 5, (0,))
CPUS = st.lists(st.integers(0, 300), max_size=4).map(tuple)


def _view(pod: Pod, node: FakeNode, gates: PodResourcesGates) -> PodResourcesView:
    return view_pod(pod, collect_resources(pod, node, gates), gates)


def _add(node: FakeNode, pod: Pod) -> None:
    node.known = [known for known in node.known if known.metadata.uid != pod.metadata.uid]
    node.add(pod)


def _changes() -> st.SearchStrategy[Callable[[FakeNode], object]]:
    uids = st.sampled_from(["1", "2", "3", "4"])
    return st.one_of(
        PODS.map(lambda pod: lambda node: _add(node, pod)),
        uids.map(lambda uid: lambda node: node.ended.symmetric_difference_update({uid})),
        st.builds(
            lambda name, devices: lambda node: node.prepare(make_claim(name, *devices)),
            CLAIMS,
            st.lists(DEVICES, max_size=3),
        ),
        CLAIMS.map(lambda name: lambda node: node.claims.pop((NAMESPACE, name), None)),
        st.builds(lambda uid, cpus: lambda node: node.cpus.update({(uid, "one"): cpus}), uids, CPUS),
        st.builds(lambda uid, cpus: lambda node: node.pod_cpus.update({uid: cpus}), uids, CPUS),
        uids.map(lambda uid: lambda node: node.memory.update({(uid, "two"): (BLOCK,)})),
        uids.map(lambda uid: lambda node: node.devices.update({(uid, "s"): (PluginDevices("e/x", (uid,)),)})),
    )


@given(st.lists(_changes(), max_size=12), st.booleans(), st.booleans())
def test_list_get_and_the_naive_reply_agree(
    changes: list[Callable[[FakeNode], object]], active_only: bool, claims: bool
) -> None:
    node, gates = FakeNode(), PodResourcesGates(claims=claims)
    answers = ResponseCache(node, gates, active_only=active_only)
    for change in [lambda node: None, *changes]:
        change(node)
        node.changes += 1
        listed = v1.ListPodResourcesResponse.FromString(answers.list())
        pods = [pod for pod in node.known if node.is_active(pod) or not active_only]
        naive = [build_pod_message(_view(pod, node, gates)) for pod in pods]
        assert list(listed.pod_resources) == naive
        alpha = v1alpha1.ListPodResourcesResponse.FromString(answers.list_alpha())
        assert list(alpha.pod_resources) == [
            build_alpha_pod_message(_view(p, node, gates)) for p in node.known
        ]
        for name in ("p", "q", "r"):
            living = [pod for pod in node.known if pod.metadata.name == name and node.is_active(pod)]
            found = answers.get(NAMESPACE, name)
            if not living:
                assert found is None
                continue
            assert found is not None
            got = v1.GetPodResourcesResponse.FromString(found).pod_resources
            assert got in listed.pod_resources
            assert got == build_pod_message(_view(living[-1], node, gates))


def test_one_change_encodes_one_message() -> None:
    node = FakeNode()
    for number in range(110):
        node.prepare(make_claim(f"c{number}", PreparedDevice("pool", "d")))
        node.add(make_pod(f"p{number}", {"app": [f"c{number}"]}))
    answers = ResponseCache(node, PodResourcesGates())
    first = answers.list()
    assert answers.made == 110
    asked = node.asked
    assert answers.list() is first, "nothing changed, nothing is made or even joined again"
    assert answers.get(NAMESPACE, "p7") is not None
    assert node.asked == asked
    node.prepare(make_claim("c7", PreparedDevice("pool", "e")))
    assert answers.list() != first
    assert answers.made == 111
    node.end("uid-p8")
    assert answers.get(NAMESPACE, "p8") is None
    node.ended.clear()
    node.changes += 1
    assert answers.get(NAMESPACE, "p8") is not None
    assert answers.made == 111


@pytest.mark.parametrize("length", [0, 100, 120, 127, 128, 16_370, 16_383, 16_384, 2_100_000])
def test_cached_rows_are_fields_of_the_response(length: int) -> None:
    pod = v1.PodResources(name="n" * length)
    assert frame(pod) == v1.GetPodResourcesResponse(pod_resources=pod).SerializeToString()
    assert (
        frame(pod) + frame(pod) == v1.ListPodResourcesResponse(pod_resources=[pod, pod]).SerializeToString()
    )
