"""Pods of one shape: what was worked out for one is what would have been worked out for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceSlice
from plimsoll.ledger.profile import Profile
from plimsoll.tools import policies
from plimsoll.tools.picture import Objects, Picture
from plimsoll.tools.policies import compare_policies
from plimsoll.tools.shapes import shape_of
from tests.unit.ledger.books import claim, container, device, piece, pod, result
from tests.unit.ledger.test_node_stateful import bodies, make_pod, rules
from tests.unit.tools.top.test_books import node

SHARING = Profile(name="sharing", share_per_claim=True)


def _with(thing: Any, kind: type[Any], **changes: dict[str, Any]) -> Any:
    tree: Any = codec.to_tree(thing)
    for field, change in changes.items():
        tree.setdefault(field, {}).update(change)
    return codec.convert(tree, kind)


def _cluster(devices: list[Any], places: list[list[dict[str, Any]]]) -> Iterator[Any]:
    """Nodes with the same devices and claims, each of these bodies as a pod; names differ by node."""
    for number, told in enumerate(places):
        name, namespace = f"node-{number}", f"team-{number}"
        yield node(name)
        slice = piece(*devices, nodeName=name, pool=f"pool-{number}")
        yield _with(slice, ResourceSlice, metadata={"name": name})
        for index in range(5):
            part = result(f"d{index}", pool=f"pool-{number}")
            yield claim(f"claim-{index}", part, namespace=namespace, uid=f"{namespace}-{index}")
        for index, body in enumerate(told):
            meta = {"namespace": namespace, "uid": f"{namespace}-p{index}"}
            yield _with(make_pod(f"p{index}", body), Pod, metadata=meta, spec={"nodeName": name})


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    devices = [device(f"d{i}", **draw(rules())) for i in range(5)]
    kinds = draw(st.lists(bodies(), min_size=1, max_size=3))
    places = draw(st.lists(st.lists(st.sampled_from(kinds), max_size=3), min_size=2, max_size=5))
    profile = SHARING if draw(st.booleans()) else Profile.default()
    return Picture(Objects(_cluster(devices, places)), profile=profile)


@settings(max_examples=120, deadline=None)
@given(pictures())
def test_what_is_remembered_is_what_is_worked_out(picture: Picture) -> None:
    quick = compare_policies(picture)
    with patch.object(policies, "shape_of", lambda *_: None):
        naive = compare_policies(picture)
    assert quick.as_json() == naive.as_json()


def test_most_of_a_workload_is_remembered() -> None:
    body = {"containers": [container("c", "claim-0", cpu="1")], "claims": ["claim-0"]}
    devices = [device(f"d{i}", cpu="2") for i in range(5)]
    picture = Picture(Objects(_cluster(devices, [[body]] * 20)))
    with patch.object(policies, "rebook", wraps=policies.rebook) as rebooked:
        assert len(compare_policies(picture).pods) == 20
    assert rebooked.call_count == 4  # one node, under each policy


def test_names_make_no_shape_and_amounts_do() -> None:
    one, other = (pod(name, container("c", cpu="1")) for name in ("a", "b"))
    assert shape_of(one) == shape_of(other)
    assert shape_of(one) != shape_of(pod("a", container("c", cpu="2")))
    assert shape_of(one) != shape_of(pod("a", container("d", cpu="1")))
    assert shape_of(pod("a", container("c", cpu="1"), resources={"requests": {"cpu": "1"}})) is None
    report = {"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}}
    resized = _with(one, Pod, status={"containerStatuses": [report]})
    assert shape_of(resized) != shape_of(one)
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    assert shape_of(_with(one, Pod, status={"conditions": [pending]})) is None
