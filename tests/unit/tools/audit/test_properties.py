"""Audit properties: no errors in clusters that our scheduler fills, and every overcommitment is found."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.tools.audit import audit, choose_checks
from plimsoll.tools.findings import Severity
from plimsoll.tools.whatif import Whatif
from tests.sizes import examples
from tests.unit.scheduler.overdrafts import find_overdrafts
from tests.unit.tools.audit.build import (
    NOW,
    V1,
    Tree,
    api_object,
    claim,
    cluster_state,
    cpus,
    device,
    device_class,
    node,
    numa,
    pod,
    result,
    share,
    slice_of,
)

OVERHEAD = {"cpu": {"allocationMultiplier": "1"}}


def standing(sizes: list[int]) -> Iterator[Tree]:
    """Return nodes with CPUs, two GPUs and a GPU in two partitions."""
    yield device_class("cpu", "dra.cpu")
    yield device_class("gpu", "gpu.example.com")
    yield device_class("half", "mig.example.com")
    for name, size in enumerate(sizes):
        where = f"n{name}"
        yield node(where, str(size))
        yield slice_of(cpus(size), driver="dra.cpu", pool=where, on=where)
        cards = [
            device(f"d{n}", attributes=numa(n), nodeAllocatableResourceMappings=OVERHEAD) for n in (0, 1)
        ]
        yield slice_of(*cards, pool=where, on=where)
        yield from halves(where)


def halves(where: str) -> Iterator[Tree]:
    draws = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
    parts = [device(f"h{n}", consumesCounters=draws) for n in range(3)]
    counters = [{"name": "card", "counters": {"memory": {"value": "2"}}}]
    made = {"driver": "mig.example.com", "pool": where, "on": where, "count": 2}
    yield slice_of(*parts, name=f"mig-{where}-a", **made)  # type: ignore[arg-type]
    yield slice_of(counters=counters, name=f"mig-{where}-b", **made)  # type: ignore[arg-type]


def template(name: str, klass: str, amount: int) -> Tree:
    exactly: Tree = {"deviceClassName": klass, "allocationMode": "ExactCount", "count": 1}
    if klass == "cpu":
        exactly["capacity"] = {"requests": {"dra.cpu/cpu": str(amount)}}
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    return api_object(V1, "ResourceClaimTemplate", name, "work", spec=spec)


@settings(max_examples=examples(25))
@given(
    sizes=st.lists(st.integers(2, 8), min_size=1, max_size=3),
    asked=st.lists(
        st.tuples(st.sampled_from(["cpu", "gpu", "half", ""]), st.integers(1, 6), st.integers(0, 4)),
        max_size=12,
    ),
)
def test_a_cluster_filled_by_the_scheduler_has_no_errors(
    sizes: list[int], asked: list[tuple[str, int, int]]
) -> None:
    trees = list(standing(sizes))
    with Whatif(cluster_state(trees)) as whatif:
        for number, (klass, amount, request) in enumerate(asked):
            made = pod(
                f"p{number}", str(request), on="", phase="Pending", template=f"t{number}" if klass else ""
            )
            del made["metadata"]["uid"]
            whatif.add(*([template(f"t{number}", klass, amount)] if klass else []), made)
        placed = whatif.schedule().placed
        assert placed or not any(amount + request <= min(sizes) for _, amount, request in asked)
        found = audit(whatif.cluster_state, now=NOW, live=True).findings
        assert [each for each in found if each.severity is Severity.ERROR] == []
        # Seen from one driver only, a node may have no CPU left for pods without a claim, and a pod may have
        # asked for just what its claim takes; nothing else is worth a word.
        assert {each.id for each in found} <= {"PLM004", "PLM053"}


NUMA = "resource.kubernetes.io/numaNode"
#: Requests of claims, most of which a node can serve.
WANTED = st.one_of(
    st.builds(lambda n: {"deviceClassName": "gpu", "count": n}, st.integers(1, 2)),
    st.builds(lambda n: {"deviceClassName": "half", "count": n}, st.integers(1, 3)),
    st.builds(
        lambda n: {"deviceClassName": "cpu", "capacity": {"requests": {"dra.cpu/cpu": f"{n}00m"}}},
        st.integers(1, 60),
    ),
    st.just({"deviceClassName": "gpu", "allocationMode": "All"}),
    st.builds(
        lambda n: {
            "deviceClassName": "gpu",
            "selectors": [
                {"cel": {"expression": f'device.attributes["resource.kubernetes.io"].numaNode == {n}'}}
            ],
        },
        st.integers(0, 2),
    ),
)
CONSTRAINTS = st.sampled_from([[], [{"matchAttribute": NUMA}], [{"distinctAttribute": NUMA}]])


def described(requests: list[Tree], constraints: list[Tree], alternatives: bool) -> Tree:
    """Return the spec of a claim: one request per body, or one request with all of them as alternatives."""
    named = [{"name": f"r{number}", **body} for number, body in enumerate(requests)]
    if alternatives:
        return {"devices": {"requests": [{"name": "r", "firstAvailable": named}]}}
    exact = [{"name": each["name"], "exactly": requests[number]} for number, each in enumerate(named)]
    return {"devices": {"requests": exact, "constraints": constraints}}


@settings(max_examples=examples(40))
@given(
    sizes=st.lists(st.integers(2, 8), min_size=1, max_size=3),
    asked=st.lists(
        st.tuples(
            st.lists(WANTED, min_size=1, max_size=3),
            CONSTRAINTS,
            st.booleans(),
            st.integers(0, 3),
            st.one_of(st.none(), st.integers(1, 8)),
        ),
        max_size=8,
    ),
)
def test_allocations_of_the_scheduler_violate_nothing(
    sizes: list[int], asked: list[tuple[list[Tree], list[Tree], bool, int, int | None]]
) -> None:
    """Counts, selectors, constraints, capacity, nodes and pod-level requests hold for whatever is placed."""
    with Whatif(cluster_state(standing(sizes))) as whatif:
        for number, (requests, constraints, alternatives, cpu, budget) in enumerate(asked):
            spec = {"spec": described(requests, constraints, alternatives)}
            made = pod(f"p{number}", str(cpu), on="", phase="Pending", template=f"t{number}")
            if budget is not None and budget >= cpu:
                made["spec"]["resources"] = {"requests": {"cpu": str(budget)}}
            del made["metadata"]["uid"]
            whatif.add(api_object(V1, "ResourceClaimTemplate", f"t{number}", "work", spec=spec), made)
        whatif.schedule()
        found = audit(whatif.cluster_state, now=NOW, live=True).findings
        # A claim may be repeated in the requests, hold all CPUs, or spread over NUMA nodes.
        assert {each.id for each in found} <= {"PLM004", "PLM050", "PLM053"}, found


#: Allocations that a claim may have, from any scheduler.
GIVEN = st.one_of(
    st.builds(
        lambda n, admin: result(f"d{n}", pool="n0", adminAccess=admin), st.integers(0, 1), st.booleans()
    ),
    st.builds(lambda n: result(f"h{n}", "mig.example.com", "n0"), st.integers(0, 2)),
    st.builds(
        lambda amount, id: share(str(amount), id) | {"pool": "n0"},
        st.integers(1, 6),
        st.sampled_from("stuvw"),
    ),
)


@settings(max_examples=examples(60))
@given(held=st.lists(st.lists(GIVEN, min_size=1, max_size=2), max_size=5), requests=st.integers(1, 6))
def test_every_overcommitted_node_is_found(held: list[list[Tree]], requests: int) -> None:
    """The scheduler's own check finds the same nodes, devices and pools."""
    trees = list(standing([8]))
    for number, results in enumerate(held):
        trees.append(claim(f"c{number}", *results, pods=[f"p{number}"], on="n0"))
        trees.append(pod(f"p{number}", str(requests), claims=[f"c{number}"], on="n0"))
    made = cluster_state(trees)
    overdrafts = find_overdrafts(made.snapshot)
    checks = choose_checks(["PLM001", "PLM020", "PLM022", "PLM023"])
    found = audit(made, checks=checks, live=True, now=NOW).findings
    kinds = {"PLM001": "node n0: cpu", "PLM022": "node n0: counter"}
    kinds |= {"PLM020": "held", "PLM023": "capacity ("}
    for id, word in kinds.items():
        reported = {line.split(":")[0] for line in overdrafts if word in line}
        subjects = {each.subject for each in found if each.id == id}
        named = {subject.partition("/")[2] for subject in subjects}
        if id in ("PLM020", "PLM023"):
            assert named == {line.removeprefix("device ") for line in reported}
        else:
            assert bool(subjects) == bool(reported)
