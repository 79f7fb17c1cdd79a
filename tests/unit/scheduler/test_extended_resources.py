"""Extended resources that device classes serve: classes, the claim of a pod, and placements."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.ledger.requests import pod_requests
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.extended_resource_index import ExtendedResourceClasses
from plimsoll.scheduler.extended_resources import build_requests
from plimsoll.scheduler.filters.node_resources import NodeResourcesFilter
from plimsoll.scheduler.pod_claims import ClaimMessage, read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.profile import SchedulerProfile, Strategy
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    CLASS,
    charging_device,
    claim,
    container,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
    result,
    sidecar,
)
from tests.sizes import examples
from tests.unit.scheduler.overdrafts import find_overdrafts
from tests.unit.scheduler.snapshots import snapshot_of

GPU = "example.com/gpu"
IMPLICIT = DEVICE_CLASS_RESOURCE + CLASS
SERVES = device_class(extendedResourceName=GPU)


def schedule(wanted: Pod, snapshot: Snapshot) -> Placement | FitError:
    found = schedule_pod(wanted, snapshot, SchedulerProfile.default(), lambda: "id")
    assert not isinstance(found, NodeReason), found
    return found


def place(wanted: Pod, snapshot: Snapshot) -> Placement:
    found = schedule(wanted, snapshot)
    assert isinstance(found, Placement), found
    return found


def reasons(wanted: Pod, snapshot: Snapshot) -> dict[str, int]:
    found = schedule(wanted, snapshot)
    assert isinstance(found, FitError), found
    return {render(reason): count for reason, count in found.reasons}


def asks(name: str, resource: str = GPU, count: int = 1, **fields: Any) -> Pod:
    return pod(name, requests={resource: str(count)}, **fields)


def devices(node_name: str, count: int, **charges: Any) -> Any:
    made = [charging_device(f"d{n}", **charges) if charges else device(f"d{n}") for n in range(count)]
    return resource_slice(made, node_name)


def written(placement: Placement, name: str = "p-extended-resources-x") -> tuple[Pod, ResourceClaim]:
    """Return the pod and the claim as the API server has them after a binding."""
    pod_info = placement.pod_info
    built = next(each for each in pod_info.claims if each.metadata.generate_name)
    allocation = placement.allocations[built.metadata.name]
    made = claim(name, reserved=[pod_info.pod.metadata.name], uid=f"uid-{name}")
    meta = replace(built.metadata, name=name, uid=made.metadata.uid)
    status = replace(made.status, allocation=allocation)
    extended = pod_info.pod.status.extended_resource_claim_status
    assert extended is not None
    bound = replace(
        pod_info.stored,
        spec=replace(pod_info.stored.spec, node_name=placement.node),
        status=replace(
            pod_info.stored.status,
            extended_resource_claim_status=replace(extended, resource_claim_name=name),
        ),
    )
    return bound, replace(built, metadata=meta, status=status)


# -- classes


def classes_of(*classes: DeviceClass) -> ExtendedResourceClasses:
    return snapshot_of(*classes).index(ExtendedResourceClasses)


def dated(name: str, when: str | None, resource: str | None = GPU) -> DeviceClass:
    made = device_class(name, **({"extendedResourceName": resource} if resource else {}))
    return replace(made, metadata=replace(made.metadata, creation_timestamp=when))


def test_a_class_serves_its_explicit_and_its_implicit_name() -> None:
    found = classes_of(SERVES)
    assert (found.find(GPU), found.find(IMPLICIT)) == (CLASS, CLASS)
    assert found.find("example.com/other") is None
    assert found.find(DEVICE_CLASS_RESOURCE + "other") is None


@pytest.mark.parametrize("order", [1, -1])
def test_the_newest_class_of_a_name_serves_it(order: int) -> None:
    old, new = dated("a", "2026-01-01T00:00:00Z"), dated("b", "2026-01-02T00:00:00Z")
    assert classes_of(*[old, new][::order]).find(GPU) == "b"


@pytest.mark.parametrize("order", [1, -1])
def test_equally_old_classes_serve_by_name(order: int) -> None:
    one, other = dated("b", "2026-01-01T00:00:00Z"), dated("a", "2026-01-01T00:00:00Z")
    assert classes_of(*[one, other][::order]).find(GPU) == "a"


def test_the_next_class_serves_the_resource() -> None:
    """After the class that served it is deleted, or gets another name."""
    old, new = dated("a", "2026-01-01T00:00:00Z"), dated("b", "2026-01-02T00:00:00Z")
    snapshot = snapshot_of(old, new)
    found = snapshot.index(ExtendedResourceClasses)
    renamed = dated("b", "2026-01-02T00:00:00Z", "example.com/other")
    snapshot.set(renamed)
    assert (found.find(GPU), found.find("example.com/other")) == ("a", "b")
    snapshot.set(new)
    snapshot.remove(new)
    assert (found.find(GPU), found.find(DEVICE_CLASS_RESOURCE + "b")) == ("a", None)
    snapshot.remove(old)
    assert found.find(GPU) is None


# -- requests of the claim


def mapped(made: Pod, **classes: str) -> tuple[dict[str, tuple[str, int]], list[tuple[str, str, str]]]:
    requests, mappings = build_requests(made, classes or {GPU: CLASS})
    return (
        {r.name: (r.exactly.device_class_name, r.exactly.count) for r in requests if r.exactly is not None},
        [(m.container_name, m.resource_name, m.request_name) for m in mappings],
    )


def test_each_container_has_a_request_named_by_its_place() -> None:
    """The index of the container, and that of the resource among all its requests."""
    made = pod("p", container("a", cpu="1", **{GPU: "2"}), container("b", **{GPU: "1"}))
    requests, mappings = mapped(made)
    assert requests == {"container-0-request-1": (CLASS, 2), "container-1-request-0": (CLASS, 1)}
    assert mappings == [("a", GPU, "container-0-request-1"), ("b", GPU, "container-1-request-0")]


def test_explicit_and_implicit_names_are_separate_requests() -> None:
    made = pod("p", container("a", **{GPU: "1", IMPLICIT: "2"}))
    requests, _ = mapped(made, **{GPU: CLASS, IMPLICIT: CLASS})
    assert requests == {"container-0-request-0": (CLASS, 2), "container-0-request-1": (CLASS, 1)}


def test_init_containers_use_the_devices_of_later_containers() -> None:
    made = pod("p", container("main", **{GPU: "2"}), init=[container("setup", **{GPU: "2"})])
    requests, mappings = mapped(made)
    assert requests == {"container-1-request-0": (CLASS, 2)}
    assert mappings == [("main", GPU, "container-1-request-0"), ("setup", GPU, "container-1-request-0")]


def test_init_containers_share_the_largest_addition() -> None:
    init = [container("one", **{GPU: "2"}), container("two", **{GPU: "4"}), container("three", **{GPU: "4"})]
    requests, mappings = mapped(pod("p", container("main", **{GPU: "1"}), init=init))
    assert requests == {"container-1-request-0": (CLASS, 3), "container-3-request-0": (CLASS, 1)}
    both = ["container-3-request-0", "container-1-request-0"]
    assert mappings == [
        ("main", GPU, "container-3-request-0"),
        *((name, GPU, request) for name in ("one", "two", "three") for request in both),
    ]


def test_a_sidecar_keeps_its_devices_from_later_init_containers() -> None:
    init = [container("one", **{GPU: "1"}), sidecar("side", **{GPU: "1"}), container("two", **{GPU: "2"})]
    requests, mappings = mapped(pod("p", container("main"), init=init))
    assert requests == {"container-1-request-0": (CLASS, 1), "container-2-request-0": (CLASS, 2)}
    assert mappings == [
        ("side", GPU, "container-1-request-0"),
        ("one", GPU, "container-1-request-0"),
        ("two", GPU, "container-2-request-0"),
    ]


def test_requests_are_sorted_as_texts() -> None:
    many = [container(f"c{n}", **{GPU: "1"}) for n in range(11)]
    requests, _ = build_requests(pod("p", *many), {GPU: CLASS})
    names = [request.name for request in requests]
    assert names == sorted(names)
    assert names[1] == "container-1-request-0"
    assert names[2] == "container-10-request-0"


def test_zero_is_no_request() -> None:
    assert mapped(asks("p", count=0)) == ({}, [])


RESOURCES = (GPU, "example.com/other", IMPLICIT)
AMOUNTS = st.dictionaries(st.sampled_from((*RESOURCES, "cpu")), st.integers(0, 5).map(str), max_size=4)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    init = [
        (sidecar if draw(st.booleans()) else container)(f"i{n}", **draw(AMOUNTS))
        for n in range(draw(st.integers(0, 4)))
    ]
    return pod("p", *(container(f"c{n}", **draw(AMOUNTS)) for n in range(draw(st.integers(1, 3)))), init=init)


def naive_requests(made: Pod, classes: dict[str, str]) -> tuple[dict[str, int], set[tuple[str, str, str]]]:
    """Give every container its own devices one by one, then let init containers borrow."""
    counts: dict[str, int] = {}
    uses: set[tuple[str, str, str]] = set()
    every = [*made.spec.init_containers, *made.spec.containers]
    for resource in classes:
        rows = []
        for index, each in enumerate(every):
            keys = sorted(each.resources.requests)
            if resource in keys and (wanted := each.resources.requests[resource].value()):
                starts = index < len(made.spec.init_containers) and each.restart_policy != "Always"
                rows.append(
                    (index, each.name, f"container-{index}-request-{keys.index(resource)}", wanted, starts)
                )
        for _, name, request, wanted, starts in rows:
            if not starts:
                counts[request] = wanted
                uses.add((name, resource, request))
        lacking = {}
        for index, name, request, wanted, starts in rows:
            if starts:
                for other, _, lent, size, other_starts in rows:
                    if other > index and not other_starts and wanted > 0:
                        uses.add((name, resource, lent))
                        wanted -= size
                if wanted > 0:
                    lacking[name, request] = wanted
        if lacking:
            (_, chosen), most = max(lacking.items(), key=lambda item: item[1])
            counts[chosen] = most
            uses |= {(name, resource, chosen) for name, _ in lacking}
    return counts, uses


@given(pods())
@settings(max_examples=examples(200))
def test_requests_equal_those_of_the_naive_computation(made: Pod) -> None:
    classes = dict.fromkeys(RESOURCES, CLASS)
    requests, mappings = mapped(made, **classes)
    counts, uses = naive_requests(made, classes)
    assert {name: count for name, (_, count) in requests.items()} == counts
    assert set(mappings) == uses
    assert len(mappings) == len(uses)


@given(pods())
@settings(max_examples=examples(200))
def test_a_claim_has_as_many_devices_as_the_pod_requests(made: Pod) -> None:
    """And the requests of each container cover what it asks for."""
    total = pod_requests(made)
    for name in RESOURCES:
        requests, mappings = mapped(made, **{name: CLASS})
        effective = total[name].value() if name in total else 0
        assert sum(count for _, count in requests.values()) == effective
        for each in (*made.spec.init_containers, *made.spec.containers):
            amount = each.resources.requests.get(name)
            covered = sum(requests[request][1] for who, _, request in mappings if who == each.name)
            assert covered >= (amount.value() if amount is not None else 0)


# -- placements


def test_devices_serve_a_resource_that_no_node_advertises() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 2), SERVES)
    placement = place(asks("p", count=2), snapshot)
    assert placement.devices == ("gpu.example.com/n/d0", "gpu.example.com/n/d1")
    (built,) = placement.pod_info.claims
    assert built.metadata.generate_name == "p-extended-resources-"
    assert built.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = built.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid, owner.controller) == (
        "v1", "Pod", "p", "uid-p", True,
    )  # fmt: skip


def test_the_implicit_name_is_served() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 1), device_class())
    assert place(asks("p", IMPLICIT), snapshot).devices == ("gpu.example.com/n/d0",)


def test_without_a_class_the_resource_is_insufficient() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 1), device_class())
    assert reasons(asks("p"), snapshot) == {f"Insufficient {GPU}": 1}


def test_with_the_gate_off_the_resource_is_insufficient() -> None:
    gates = Gates.of({"DRAExtendedResource": False})
    snapshot = snapshot_of(node("n"), devices("n", 1), SERVES, gates=gates)
    assert reasons(asks("p"), snapshot) == {f"Insufficient {GPU}": 1}


def test_too_few_devices() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 1), SERVES)
    assert reasons(asks("p", count=2), snapshot) == {"cannot allocate all claims": 1}


def test_a_node_that_advertises_the_resource_needs_no_claim() -> None:
    plugin = node("n", extended={GPU: "1"})
    snapshot = snapshot_of(plugin, devices("n", 4), SERVES)
    placement = place(asks("p"), snapshot)
    assert placement.pod_info.claims == ()
    assert placement.allocations == {}
    assert placement.pod_info.pod.status.extended_resource_claim_status is None
    snapshot.assume(placement)
    assert reasons(asks("q"), snapshot) == {f"Insufficient {GPU}": 1}


def test_advertising_none_of_the_resource_leaves_it_to_devices() -> None:
    """A device plugin that was removed leaves an amount of zero."""
    snapshot = snapshot_of(node("n", extended={GPU: "0"}), devices("n", 1), SERVES)
    assert len(place(asks("p"), snapshot).devices) == 1


def test_device_plugin_nodes_next_to_dra_nodes() -> None:
    snapshot = snapshot_of(node("dra"), devices("dra", 1), node("plugin", extended={GPU: "1"}), SERVES)
    chosen = {}
    for name in ("p", "q"):
        placement = place(asks(name), snapshot)
        snapshot.assume(placement)
        chosen[placement.node] = len(placement.devices)
    assert chosen == {"dra": 1, "plugin": 0}
    assert reasons(asks("r"), snapshot) == {f"Insufficient {GPU}": 1, "cannot allocate all claims": 1}
    assert verify(snapshot) == []
    assert find_overdrafts(snapshot) == []


def test_a_node_may_provide_one_resource_and_devices_the_other() -> None:
    wanted = pod("p", requests={GPU: "1", IMPLICIT: "1"})
    snapshot = snapshot_of(node("n", extended={GPU: "1"}), devices("n", 1), SERVES)
    placement = place(wanted, snapshot)
    (built,) = placement.pod_info.claims
    assert [request.name for request in built.spec.devices.requests] == ["container-0-request-0"]
    status = placement.pod_info.pod.status.extended_resource_claim_status
    assert status is not None
    assert [m.resource_name for m in status.request_mappings] == [IMPLICIT]


def test_own_claims_and_extended_resources_share_the_devices() -> None:
    snapshot = snapshot_of(
        node("n"), devices("n", 2), SERVES, claim("c", exactly()), claim("d", exactly(count=2))
    )
    assert len(place(asks("p", claims=["c"]), snapshot).devices) == 2
    assert reasons(asks("q", claims=["d"]), snapshot) == {"cannot allocate all claims": 1}


def test_own_claims_on_a_node_that_advertises_the_resource() -> None:
    """Upstream fails to bind such a pod, because the claim has no requests."""
    snapshot = snapshot_of(node("n", extended={GPU: "1"}), devices("n", 1), SERVES, claim("c", exactly()))
    placement = place(asks("p", claims=["c"]), snapshot)
    assert [each.metadata.name for each in placement.pod_info.claims] == ["c"]


def test_devices_are_assumed_until_the_claim_has_them() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 1), SERVES)
    placement = place(asks("p"), snapshot)
    snapshot.assume(placement)
    assert reasons(asks("q"), snapshot) == {"cannot allocate all claims": 1}
    bound, made = written(placement)
    unallocated = replace(made, status=replace(made.status, allocation=None, reserved_for=()))
    for state in (unallocated, made):
        snapshot.set(state)
        assert verify(snapshot) == []
        assert find_overdrafts(snapshot) == []
        assert reasons(asks("q"), snapshot) == {"cannot allocate all claims": 1}
    snapshot.confirm("uid-p")
    snapshot.set(bound)
    snapshot.remove(bound)
    assert reasons(asks("q"), snapshot) == {"cannot allocate all claims": 1}
    snapshot.remove(made)
    assert place(asks("q"), snapshot)
    assert verify(snapshot) == []


@pytest.mark.parametrize("allocated", [False, True])
def test_forgetting_a_placement_frees_what_the_api_has_not(allocated: bool) -> None:
    snapshot = snapshot_of(node("n"), devices("n", 1), SERVES)
    placement = place(asks("p"), snapshot)
    snapshot.assume(placement)
    _, made = written(placement)
    if allocated:
        snapshot.set(made)
    snapshot.forget("uid-p")
    assert isinstance(schedule(asks("q"), snapshot), FitError if allocated else Placement)
    assert verify(snapshot) == []


def test_a_claim_that_was_never_seen_is_freed_with_its_pod() -> None:
    """The claim was created and deleted while the watch was interrupted."""
    snapshot = snapshot_of(node("n"), devices("n", 1), SERVES)
    placement = place(asks("p"), snapshot)
    snapshot.assume(placement)
    bound, _ = written(placement)
    snapshot.confirm("uid-p")
    snapshot.set(bound)
    snapshot.remove(bound)
    assert place(asks("q"), snapshot)
    assert verify(snapshot) == []


def test_a_claim_that_an_interrupted_binding_left_must_go_first() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 2), SERVES)
    _, made = written(place(asks("p"), snapshot))
    snapshot.set(made)
    found = schedule(asks("p"), snapshot)
    assert isinstance(found, FitError)
    assert [(reason.message, count) for reason, count in found.reasons] == [(ClaimMessage.STALE, 1)]
    assert found.pod_info.stale_claim is made
    snapshot.remove(made)
    assert place(asks("p"), snapshot)


def test_a_status_that_an_interrupted_binding_left_is_ignored() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 2), device_class())
    status = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "gone",
            "requestMappings": [{"containerName": "main", "resourceName": GPU, "requestName": "r"}],
        }
    }
    assert reasons(asks("p", status=status), snapshot) == {f"Insufficient {GPU}": 1}


def test_a_new_class_invalidates_cached_results() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 1))
    assert reasons(asks("p"), snapshot) == {f"Insufficient {GPU}": 1}
    snapshot.set(SERVES)
    assert place(asks("p"), snapshot)
    snapshot.remove(SERVES)
    assert reasons(asks("p"), snapshot) == {f"Insufficient {GPU}": 1}


def test_nodes_in_the_same_state_differ_by_what_they_advertise() -> None:
    """The cached refusal of one node is not that of a node with a device plugin."""
    wanted = pod("p", requests={GPU: "2", IMPLICIT: "1"})
    one, other = node("a"), node("b", extended={GPU: "2"})
    snapshot = snapshot_of(one, devices("a", 1), other, devices("b", 1), SERVES)
    assert place(wanted, snapshot).node == "b"


# -- charges


def test_devices_of_extended_resources_charge_the_node() -> None:
    snapshot = snapshot_of(node("n", cpu="4"), devices("n", 4, cpu="2"), SERVES)
    first = place(asks("p", count=1, cpu="1"), snapshot)
    (charged,) = first.charged_claims
    assert charged.charge.containers == ("main",)
    assert str(charged.charge.resources["cpu"].quantity) == "2"
    snapshot.assume(first)
    assert snapshot.ledger(first.row).headroom()["cpu"] == 1000
    assert reasons(asks("q", count=1), snapshot) == {"Insufficient cpu": 1}
    assert verify(snapshot) == []


def test_a_bound_pod_without_recorded_charges_is_charged() -> None:
    snapshot = snapshot_of(node("n", cpu="4"), devices("n", 4, cpu="2"), SERVES)
    bound, made = written(place(asks("p"), snapshot))
    snapshot.set(made)
    snapshot.set(bound)
    row = snapshot.row_of("n")
    assert row is not None
    assert snapshot.ledger(row).headroom()["cpu"] == 2000


# -- preemption


def test_the_devices_of_victims_are_freed_for_extended_resources() -> None:
    snapshot = snapshot_of(node("n"), devices("n", 1), SERVES)
    bound, made = written(place(asks("low", priority=1), snapshot), "low-extended-resources-x")
    snapshot.set(made)
    snapshot.set(bound)
    found = schedule(asks("high", priority=10), snapshot)
    assert isinstance(found, FitError)
    plan = plan_preemption(found, snapshot, SchedulerProfile.default())
    assert isinstance(plan, Preemption)
    assert [victim.metadata.name for victim in plan.victims] == ["low"]
    assert verify(snapshot) == []


def test_a_pod_of_a_device_plugin_node_is_preempted_by_its_request() -> None:
    snapshot = snapshot_of(node("n", extended={GPU: "1"}), SERVES, asks("low", priority=1, node="n"))
    found = schedule(asks("high", priority=10), snapshot)
    assert isinstance(found, FitError)
    plan = plan_preemption(found, snapshot, SchedulerProfile.default())
    assert isinstance(plan, Preemption)
    assert [victim.metadata.name for victim in plan.victims] == ["low"]


# -- scores


@pytest.mark.parametrize(("strategy", "chosen"), [("LeastAllocated", "large"), ("MostAllocated", "small")])
def test_nodes_are_scored_by_the_devices_that_serve_a_weighed_resource(strategy: str, chosen: str) -> None:
    """By those of the class, allocated or not; a node with a device plugin by what it advertises."""
    profile = SchedulerProfile(strategy=Strategy(strategy), resources={GPU: 1})
    for large in (
        [node("large"), devices("large", 9)],
        [node("large", extended={GPU: "9"})],
    ):
        snapshot = snapshot_of(node("small"), devices("small", 3), *large, SERVES)
        for name in ("p", "q"):
            placement = schedule_pod(asks(name), snapshot, profile, lambda: "id")
            assert isinstance(placement, Placement)
            assert placement.node == chosen
            snapshot.assume(placement)


# -- bulk and pointwise


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5),
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 2).map(str), max_size=3),
    st.booleans(),
)
@settings(max_examples=examples(100))
def test_the_resource_filter_agrees_with_its_pointwise_form(
    advertised: list[tuple[int, int]], wanted: dict[str, str], served: bool
) -> None:
    nodes = [
        node(f"n{n}", extended={GPU: str(one), IMPLICIT: str(other)})
        for n, (one, other) in enumerate(advertised)
    ]
    snapshot = snapshot_of(*nodes, *([SERVES] if served else []))
    pod_info = read_pod_info(pod("p", cpu="1", requests=wanted), snapshot)
    assert isinstance(pod_info, PodInfo)
    rule = NodeResourcesFilter(pod_info, snapshot)
    mask = rule.filter()
    for row in snapshot.rows():
        assert mask[row] == (not rule.filter_node(row))


def test_results_name_their_requests() -> None:
    """`result` of the builders and the claim agree on the form of results."""
    snapshot = snapshot_of(node("n"), devices("n", 1), SERVES)
    placement = place(asks("p"), snapshot)
    (allocation,) = placement.allocations.values()
    (found,) = allocation.devices.results
    expected = result("d0", pool="n", request="container-0-request-0")
    assert (found.request, found.pool, found.device) == (
        expected["request"], expected["pool"], expected["device"],
    )  # fmt: skip
