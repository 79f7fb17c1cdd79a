"""Extended resources that devices serve, in all tools."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.audit import audit
from plimsoll.tools.audit.audit import find_check
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.explain.verdict import ExplainVerdict
from plimsoll.tools.top import node_rows, pod_rows
from plimsoll.tools.whatif import Whatif
from tests.build import charging_device, device_class, node, pod, resource_slice
from tests.unit.scheduler.overdrafts import find_overdrafts

GPU = "example.com/gpu"


def cluster(count: int = 3, plugin: dict[str, str] | None = None) -> list[Any]:
    """Return a node with devices of a class that serves GPU, each of which charges a CPU."""
    offered = [charging_device(f"d{number}", cpu="1") for number in range(count)]
    return [
        node("n", cpu="8", extended=plugin),
        resource_slice(offered, "n"),
        device_class(extendedResourceName=GPU),
    ]


def asks(name: str, count: int = 1, **fields: Any) -> Pod:
    return pod(name, cpu="1", requests={GPU: str(count)}, **fields)


def scheduled(*objects: Any) -> Whatif:
    whatif = Whatif(ClusterState(ClusterObjects(objects)))
    whatif.schedule()
    return whatif


def claims(whatif: Whatif) -> list[ResourceClaim]:
    return list(whatif.cluster_state.objects.all(ResourceClaim))


def test_whatif_creates_the_claim_and_names_it_in_the_pod() -> None:
    whatif = scheduled(*cluster(), asks("p", 2))
    (made,) = claims(whatif)
    assert made.metadata.name == "p-extended-resources-whatif"
    assert find_requesting_pod(made) is not None
    (bound,) = whatif.cluster_state.pods
    status = bound.status.extended_resource_claim_status
    assert status is not None
    assert status.resource_claim_name == made.metadata.name
    assert verify(whatif.cluster_state.snapshot) == []
    assert find_overdrafts(whatif.cluster_state.snapshot) == []


def test_whatif_reports_what_the_node_is_charged() -> None:
    whatif = Whatif(ClusterState(ClusterObjects([*cluster(), asks("p", 2)])))
    (placed,) = whatif.schedule().placed
    assert placed.charges == {"cpu": 3000}
    assert len(placed.devices) == 2


def test_a_drained_pod_gets_another_claim() -> None:
    other = [node("m"), resource_slice([charging_device("d", cpu="1")], "m")]
    whatif = scheduled(*cluster(1), asks("p"))
    whatif.add(*other)
    whatif.drain("n")
    outcome = whatif.schedule()
    assert outcome.all_placed
    (made,) = claims(whatif)
    assert made.status.allocation is not None
    assert [found.pool for found in made.status.allocation.devices.results] == ["m"]
    assert verify(whatif.cluster_state.snapshot) == []


def test_a_node_is_not_overcommitted_by_what_devices_serve() -> None:
    state = scheduled(*cluster(), asks("p", 2)).cluster_state
    (row,) = node_rows(state)
    assert [each.resource for each in row.rows] == ["cpu", "memory"]
    assert audit(state, checks=[find_check("PLM001")], live=True, now=0).findings == ()
    (of_pod,) = pod_rows(state)
    assert of_pod.claims == ("p-extended-resources-whatif",)
    assert len(of_pod.devices) == 2
    assert of_pod.amounts["cpu"] == (1000, 2000, 0)


def test_what_no_device_serves_is_overcommitted() -> None:
    """A pod that was bound manually has no claim."""
    state = ClusterState(ClusterObjects([*cluster(), asks("p", 2, node="n")]))
    (row,) = node_rows(state)
    assert {each.resource: each.free for each in row.rows if each.free < 0} == {GPU: -2}


def test_a_node_that_advertises_the_resource_shows_it() -> None:
    state = scheduled(*cluster(plugin={GPU: "4"}), asks("p", 3)).cluster_state
    (row,) = node_rows(state)
    assert {each.resource: each.free for each in row.rows}[GPU] == 1


def test_explain_names_the_resource_of_a_request() -> None:
    whatif = scheduled(*cluster(), asks("p", 2), asks("q", 2))
    (pending,) = whatif.cluster_state.pending
    report = explain_pod(whatif.cluster_state, pending)
    assert report.verdict is ExplainVerdict.PENDING
    assert f"request container-0-request-1 ({GPU} of main)" in str(report.as_json())


def test_explain_shows_which_devices_serve_a_scheduled_pod() -> None:
    state = scheduled(*cluster(), asks("p", 2)).cluster_state
    (bound,) = state.pods
    report = explain_pod(state, bound)
    texts = [each.text for section in report.sections for each in section.branches]
    assert f"{GPU} 2  served by devices, claim p-extended-resources-whatif" in texts
    assert sum(f"({GPU} of main)" in text for text in texts) == 2


def test_audit_finds_a_pod_whose_claim_is_gone() -> None:
    state = scheduled(*cluster(), asks("p", 2)).cluster_state
    (made,) = state.objects.all(ResourceClaim)
    state.remove(made)
    messages = [finding.message for finding in audit(state, live=True, now=0).findings]
    assert f"is bound, but its claim {made.metadata.name} does not exist" in messages


def test_audit_finds_a_pod_whose_claim_belongs_to_another() -> None:
    state = scheduled(*cluster(), asks("p", 2)).cluster_state
    (made,) = state.objects.all(ResourceClaim)
    state.set(replace(made, metadata=replace(made.metadata, owner_references=())))
    messages = [finding.message for finding in audit(state, live=True, now=0).findings]
    assert f"uses claim {made.metadata.name}, which was created for another pod" in messages
