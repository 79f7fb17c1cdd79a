"""Charges cached by pod shape equal computed ones."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import ResourceSlice
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.policies import compare_policies, comparison
from plimsoll.tools.policies.shapes import shape_of
from tests.build import charging_device, claim, container, node, pod, resource_slice, result
from tests.sizes import examples
from tests.unit.ledger.samples import REQUESTS, bodies, make_pod, rules

SHARING = AccountingProfile(name="sharing", share_per_claim=True)


def _with(view: Any, kind: type[Any], **changes: dict[str, Any]) -> Any:
    tree: Any = codec.to_tree(view)
    for field, change in changes.items():
        tree.setdefault(field, {}).update(change)
    return codec.convert(tree, kind)


def _cluster(devices: list[Any], places: list[list[dict[str, Any]]], apart: bool = True) -> Iterator[Any]:
    """Return nodes with the same devices, and each body as a pod; `apart`: every pod has its own claims."""
    for number, variants in enumerate(places):
        name = f"node-{number}"
        yield node(name, cpu="9")
        slice = resource_slice(devices, nodeName=name, pool=name)
        yield _with(slice, ResourceSlice, metadata={"name": name})
        for index, body in enumerate(variants):
            namespace = f"team-{number}-{index}" if apart else f"team-{number}"
            for each in range(5) if apart or not index else ():
                part = result(f"d{each}", pool=name)
                yield claim(f"claim-{each}", results=[part], namespace=namespace, uid=f"{namespace}-{each}")
            meta = {"namespace": namespace, "uid": f"{namespace}-p{index}"}
            yield _with(make_pod(f"p{index}", body), Pod, metadata=meta, spec={"nodeName": name})


def _nearly(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """Return the same body except for one field that changes the shape."""
    near = deepcopy(body)
    place = draw(st.sampled_from([*near["containers"], *near["init"]]))
    match draw(st.integers(0, 3)):
        case 0:
            place["resources"]["requests"] = draw(REQUESTS)
        case 1:
            near["overhead"] = draw(REQUESTS)
        case 2:
            place["resources"]["claims"] = (
                [] if place["resources"]["claims"] else [{"name": body["claims"][0]}]
            )
        case _:
            near["claims"] = draw(st.sampled_from([["claim-0"], ["claim-1"], ["claim-2", "claim-3"]]))
    return near


@st.composite
def cluster_states(draw: st.DrawFn) -> ClusterState:
    devices = [charging_device(f"d{i}", **draw(rules())) for i in range(5)]
    kinds = [draw(bodies().filter(lambda body: body["claims"] and "resources" not in body))]
    kinds += [_nearly(draw, kinds[0]) for _ in range(draw(st.integers(0, 3)))]
    several = st.lists(st.sampled_from(kinds), min_size=1, max_size=2)
    places = draw(st.lists(several, min_size=2, max_size=6))
    profile = SHARING if draw(st.booleans()) else AccountingProfile.default()
    return ClusterState(
        ClusterObjects(_cluster(devices, places, draw(st.integers(0, 4)) > 0)), profile=profile
    )


@settings(max_examples=examples(120), deadline=None)
@given(cluster_states())
def test_cached_charges_equal_computed_ones(cluster_state: ClusterState) -> None:
    quick = compare_policies(cluster_state)
    with patch.object(comparison, "shape_of", lambda *_: None):
        naive = compare_policies(cluster_state)
    assert quick.as_json() == naive.as_json()


def test_replicas_share_one_cached_shape() -> None:
    body = {"containers": [container("c", "claim-0", cpu="1")], "claims": ["claim-0"]}
    devices = [charging_device(f"d{i}", cpu="2") for i in range(5)]
    cluster_state = ClusterState(ClusterObjects(_cluster(devices, [[body]] * 20)))
    with patch.object(comparison, "recharge", wraps=comparison.recharge) as recharged:
        assert len(compare_policies(cluster_state).pods) == 20
    assert recharged.call_count == 4  # one node, under each policy


def test_shapes_ignore_names_and_include_amounts() -> None:
    one, other = (pod(name, container("c", cpu="1")) for name in ("a", "b"))
    assert shape_of(one) == shape_of(other)
    assert shape_of(one) != shape_of(pod("a", container("c", cpu="2")))
    assert shape_of(one) != shape_of(pod("a", container("d", cpu="1")))
    assert shape_of(pod("a", container("c", cpu="1"), resources={"requests": {"cpu": "1"}})) is None
    charged_claims = [
        ChargedClaim(ClaimCharge(claim, ("c",), {"cpu": ResourceCharge(Quantity.of(amount), policy=policy)}))
        for claim, amount, policy in (("x", 1, "Max"), ("y", 1, "Max"), ("x", 2, "Max"), ("x", 1, ""))
    ]
    shapes = [shape_of(one, [charged_claim]) for charged_claim in charged_claims]
    assert shapes[0] == shapes[1]
    assert len(set(shapes)) == 3
    report = {"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}}
    resized = _with(one, Pod, status={"containerStatuses": [report]})
    assert shape_of(resized) != shape_of(one)
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    assert shape_of(_with(one, Pod, status={"conditions": [pending]})) is None
