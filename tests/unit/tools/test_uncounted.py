"""Claims of drivers without mappings: shown as not counted by every tool, and counted on request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.forms import CLASS_KEY
from plimsoll.api.resource import Device, DeviceClass
from plimsoll.tools.audit import audit
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.cluster_state.node_resources import guess_node_resources
from plimsoll.tools.explain import explain_claim, explain_node, explain_pod
from plimsoll.tools.report import as_text
from plimsoll.tools.top.nodes import ResourceRow, node_rows
from plimsoll.tools.top.top import top
from plimsoll.tools.top.uncounted_notes import note_uncounted
from plimsoll.tools.uncounted import uncounted_claims, uncounted_on
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.build import claim, container, device, device_class, exactly, node, pod, resource_slice, result

DRIVER, CLASS = "dra.cpu", "exclusive-cpus"
CAPACITY = "dra.cpu/cpu"
MAPPED = {"cpu": {"allocationMultiplier": "1", "capacityKey": CAPACITY}}


def cpu_class(**annotations: str) -> DeviceClass:
    made = device_class(CLASS, select=f'device.driver == "{DRIVER}"')
    return replace(made, metadata=replace(made.metadata, annotations=annotations))


def cpu_claim(name: str, cpus: str, *pods: str, of: str = "socket0", on: str = "n1") -> Any:
    share = {"shareID": f"00000000-0000-4000-8000-{abs(hash(name)) % 10**12:012d}"}
    taken = {**result(of, DRIVER, on), "consumedCapacity": {CAPACITY: cpus}, **share}
    return claim(name, exactly(device_class=CLASS), results=[taken], node=on, reserved=pods)


def test_a_device_is_judged_by_its_driver() -> None:
    """Guesses are kept by device; the same device of another driver has others."""
    made, plain = (codec.convert(tree, Device) for tree in (device("d", capacity={"cpu": "4"}), device("d")))
    for _ in range(2):
        assert [each.sure for each in guess_node_resources("dra.cpu", made)] == [True]
        assert [each.sure for each in guess_node_resources("cpu.example.com", made)] == [False]
        assert guess_node_resources("gpu.example.com", plain) == ()


def sockets(on: str = "n1", cpus: str = "64") -> Any:
    shared = device("socket0", shared=True, capacity={CAPACITY: cpus})
    return resource_slice([shared], driver=DRIVER, pool=on, node=on)


def recorded_charge(name: str) -> dict[str, Any]:
    return {"containers": ["main"], "resourceClaimName": name, "resources": {"cpu": "4"}}


def overcommitted() -> list[Any]:
    """Return a node of 63 CPUs: 41.35 requested, of which 2 by the pod of a claim for 33."""
    return [
        node("n1", cpu="63"),
        cpu_class(),
        sockets(),
        pod("web", cpu="39350m", node="n1"),
        pod("train", cpu="2", claims=["c"], node="n1"),
        cpu_claim("c", "33", "train"),
        pod("more", cpu="20"),
    ]


def state(things: list[Any], *, assume: bool = False) -> ClusterState:
    return ClusterState(ClusterObjects(things), assume_mapping=assume)


def cpu_row(cluster_state: ClusterState, name: str = "n1") -> ResourceRow:
    (row,) = node_rows(cluster_state, names=[name])
    return row.row("cpu")


# -- recognition


@pytest.mark.parametrize(
    ("driver", "published", "amount", "resource"),
    [
        (DRIVER, device("d", capacity={CAPACITY: "8"}), 8000, "cpu"),
        (DRIVER, device("d", capacity={"cpu": "8"}), 8000, "cpu"),
        (DRIVER, device("d", cpuID=3), 1000, "cpu"),
        (DRIVER, device("d", numCPUs=4), 4000, "cpu"),
        (DRIVER, device("d", coreID=3), 1000, "cpu"),
        (
            "cpus.example.com",
            device("d", fields={"attributes": {"cpus.example.com/cpuID": {"int": 3}}}),
            1000,
            "cpu",
        ),
        ("any.example.com", device("d", capacity={"cpus": "2500m"}), 2500, "cpu"),
        ("any.example.com", device("d", capacity={"hugepages-2Mi": "64Mi"}), 64 * 2**20, "hugepages-2Mi"),
        ("dra.memory", device("d", capacity={"size": "4Gi"}), 4 * 2**30, "memory"),
        (
            "dra.memory",
            device("d", capacity={"size": "4Gi"}, hugeTLB=True, pageSize="2Mi"),
            4 * 2**30,
            "hugepages-2Mi",
        ),
        ("memory.example.com", device("d", capacity={"memory": "4Gi"}), 4 * 2**30, "memory"),
    ],
)
def test_devices_that_are_node_resources(driver: str, published: Any, amount: int, resource: str) -> None:
    things = [
        node("n1", cpu="63", hugepages_2Mi="64Gi"),
        resource_slice([published], driver=driver, pool="n1", node="n1"),
        pod("p", claims=["c"], node="n1"),
        claim("c", exactly(), results=[result("d", driver, "n1")], node="n1", reserved=["p"]),
    ]
    (found,) = uncounted_claims(state(things))
    assert (found.resource, found.missing) == (resource, amount)
    assert uncounted_claims(state(things, assume=True)) == []


@pytest.mark.parametrize(
    ("driver", "published"),
    [
        ("gpu.example.com", device("d", capacity={"memory": "80Gi"})),
        ("nic.example.com", device("d", capacity={"bandwidth": "10"}, numaNode=1)),
    ],
)
def test_other_devices_are_no_node_resources(driver: str, published: Any) -> None:
    things = [
        node("n1", cpu="63"),
        resource_slice([published], driver=driver, pool="n1", node="n1"),
        pod("p", claims=["c"], node="n1"),
        claim("c", exactly(), results=[result("d", driver, "n1")], node="n1", reserved=["p"]),
    ]
    assert uncounted_claims(state(things)) == []
    assumed = state(things, assume=True)
    assert assumed.assumed_mappings is not None
    assert assumed.assumed_mappings.drivers == {}


def test_a_class_that_manages_node_resources_leaves_no_doubt() -> None:
    def sure(**spec: Any) -> bool:
        things = [
            node("n1", cpu="63"),
            device_class("c", **spec),
            resource_slice(
                [device("d", capacity={"cpus": "8"})], driver="x.example.com", pool="n1", node="n1"
            ),
            pod("p", claims=["c"], node="n1"),
            claim(
                "c",
                exactly(device_class="c"),
                results=[result("d", "x.example.com", "n1")],
                node="n1",
                reserved=["p"],
            ),
        ]
        (found,) = uncounted_claims(state(things))
        return found.sure

    assert not sure()
    assert sure(managesNodeAllocatableResources=True)


def test_admin_access_takes_nothing() -> None:
    things = overcommitted()
    observer = {**result("socket0", DRIVER, "n1"), "adminAccess": True}
    things[5] = claim("c", exactly(), results=[observer], node="n1", reserved=["train"])
    assert uncounted_claims(state(things)) == []


def test_a_declared_mapping_takes_precedence() -> None:
    mapping = '{"capacityKey":"dra.cpu/cpu","allocationMultiplier":"500m"}'
    half = f'{{"nodeAllocatableResourceMappings":{{"cpu":{mapping}}}}}'
    things = overcommitted()
    things[1] = cpu_class(**{CLASS_KEY: half})
    for assume in (False, True):
        row = cpu_row(state(things, assume=assume))
        assert (row.claims, row.uncounted) == (16_500, 0)


# -- views


def test_every_view_shows_what_is_not_counted() -> None:
    cluster_state = state(overcommitted())
    summary = "1 claim of dra.cpu takes cpu 31 of node n1 without a mapping"
    past = "n1: cpu 72.35 of 63 with them, 9.35 past the line"
    reports = [
        top(cluster_state),
        top(cluster_state, name="n1"),
        top(cluster_state, "claims"),
        top(cluster_state, "claims", name="c"),
        explain_pod(cluster_state, cluster_state.pod("more")),
        explain_pod(cluster_state, cluster_state.pod("train")),
        explain_node(cluster_state, cluster_state.pod("more"), "n1"),
        explain_claim(cluster_state, cluster_state.claim("c")),
    ]
    for report in reports:
        text = as_text(report, wide=True)
        flat = " ".join(text.split())
        assert "not counted" in flat.lower(), text
        assert summary in flat, text
        assert past in flat, text
        assert CLASS_KEY in flat, text
        assert '"capacityKey":"dra.cpu/cpu"' in flat, text
    planned = " ".join(as_text(run_whatif(cluster_state, WhatifPlan()), wide=True).split())
    assert summary in planned
    assert "n1: cpu 92.35 of 63 with them, 29.35 past the line" in planned
    findings = {finding.id: finding for finding in audit(cluster_state).findings}
    assert '"capacityKey":"dra.cpu/cpu"' in findings["PLM002"].fix
    assert '"capacityKey":"dra.cpu/cpu"' in findings["PLM010"].fix


def test_nothing_is_shown_where_everything_is_counted() -> None:
    things = [node("n1", cpu="63"), pod("web", cpu="1", node="n1")]
    report = top(state(things))
    assert "counted" not in as_text(report).lower()
    assert "notCounted" not in report.as_json()


def test_requests_for_a_claim_count_once() -> None:
    things = [
        node("n1", cpu="63"),
        cpu_class(),
        sockets(),
        pod("all", cpu="4", claims=["a"], node="n1"),
        cpu_claim("a", "4", "all"),
        pod("two", container("x", "b", "c", cpu="5"), node="n1"),
        cpu_claim("b", "4", "two"),
        cpu_claim("c", "3", "two"),
    ]
    assert cpu_row(state(things)).uncounted == 2000
    row = cpu_row(state(things, assume=True))
    assert (row.used, row.uncounted) == (11_000, 0)


def test_a_claim_of_several_pods_is_taken_once() -> None:
    things = [
        node("n1", cpu="63"),
        cpu_class(),
        sockets(),
        pod("one", cpu="1", claims=["c"], node="n1"),
        pod("two", cpu="2", claims=["c"], node="n1"),
        cpu_claim("c", "8", "one", "two"),
    ]
    (found,) = uncounted_claims(state(things))
    assert (found.taken, found.missing, len(found.pods)) == (8000, 5000, 2)


# -- assumed mappings


def test_with_assumed_mappings_all_tools_count() -> None:
    cluster_state = state(overcommitted(), assume=True)
    row = cpu_row(cluster_state)
    assert (row.used, row.free, row.uncounted) == (72_350, -9_350, 0)
    assert "9.35" in as_text(top(cluster_state))
    assert not explain_node(cluster_state, cluster_state.pod("more"), "n1").fits
    assert not run_whatif(cluster_state, WhatifPlan()).all_placed
    found = {finding.id for finding in audit(cluster_state).findings}
    assert "PLM001" in found
    assert not found & {"PLM002", "PLM003", "PLM005", "PLM010"}
    assert run_whatif(state(overcommitted()), WhatifPlan()).all_placed


def test_assumptions_follow_changes_and_copies() -> None:
    things = overcommitted()
    cluster_state = ClusterState(ClusterObjects(), assume_mapping=True)
    for thing in reversed(things):
        cluster_state.set(thing)
    assert cpu_row(cluster_state).claims == 31_000
    copy = cluster_state.copy()
    nothing = '{"nodeAllocatableResourceMappings":{"memory":{"allocationMultiplier":"1Mi"}}}'
    copy.set(cpu_class(**{CLASS_KEY: nothing}))
    assert cpu_row(copy).claims == 0
    assert cpu_row(cluster_state).claims == 31_000
    copy.remove(copy.objects.find(DeviceClass, "", CLASS))
    assert cpu_row(copy).claims == 31_000
    copy.remove(sockets())
    assert cpu_row(copy).claims == 0


amounts = st.integers(1, 9).map(str)
pods = st.lists(
    st.tuples(
        st.one_of(st.none(), st.sampled_from(["500m", "1", "3", "7"])),
        st.lists(amounts, max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@given(pods)
def test_uncounted_assumed_and_annotated_amounts_are_the_same(
    wanted: list[tuple[str | None, list[str], bool]],
) -> None:
    things: list[Any] = [node("n1", cpu="63"), sockets(cpus="99")]
    for number, (cpu, cpus, refers) in enumerate(wanted):
        names = [f"c{number}-{each}" for each in range(len(cpus))]
        request = {} if cpu is None else {"cpu": cpu}
        main = container("main", *(names if refers else ()), **request)
        things.append(pod(f"p{number}", main, claims=names, node="n1"))
        things += [cpu_claim(name, each, f"p{number}") for name, each in zip(names, cpus, strict=True)]
    plain = state([*things, cpu_class()])
    assumed, row = state([*things, cpu_class()], assume=True), cpu_row(plain)
    assert cpu_row(assumed).used == row.used + row.uncounted
    assert cpu_row(assumed).uncounted == 0
    for suggestion in note_uncounted(plain).suggestions:
        annotated = state([*things, cpu_class(**{CLASS_KEY: suggestion.value})])
        assert suggestion.device_class == CLASS
        assert cpu_row(annotated).used == cpu_row(assumed).used


@given(pods, st.booleans(), st.lists(st.booleans(), min_size=6, max_size=6))
def test_counted_claims_are_recognized_without_their_devices(
    wanted: list[tuple[str | None, list[str], bool]], shared: bool, recorded: list[bool]
) -> None:
    """A search of the devices of every claim finds the same claims that are not counted."""
    mapped = device(
        "socket1", shared=True, capacity={CAPACITY: "64"}, fields={"nodeAllocatableResourceMappings": MAPPED}
    )
    things: list[Any] = [node("n1", cpu="63"), sockets(cpus="99"), cpu_class()]
    things.append(resource_slice([mapped], driver=DRIVER, pool="more", node="n1", name="more"))
    things.append(resource_slice([device("gpu")], pool="gpus", node="n1", name="gpus"))
    for number, (cpu, cpus, refers) in enumerate(wanted):
        names = [f"c{number}-{each}" for each in range(len(cpus))]
        used = [*names, "gpu", *(["c0-0"] if shared else [])]
        request = {} if cpu is None else {"cpu": cpu}
        has_charge = recorded[number % len(recorded)]
        charges = [recorded_charge(name) for name in names[:1]] if has_charge else []
        status = {"nodeAllocatableResourceClaimStatuses": charges}
        main = container("main", *(used if refers else ()), **request)
        things.append(pod(f"p{number}", main, claims=used, node="n1", status=status))
        for index, (name, each) in enumerate(zip(names, cpus, strict=True)):
            of, on = ("socket1", "more") if index % 2 else ("socket0", "n1")
            things.append(cpu_claim(name, each, f"p{number}", of=of, on=on))
    things.append(claim("gpu", exactly(), results=[result("gpu", pool="gpus")], node="n1"))
    made = state(things)
    row = made.snapshot.row_of("n1")
    assert row is not None
    assert uncounted_claims(made) == uncounted_on(made, row)
