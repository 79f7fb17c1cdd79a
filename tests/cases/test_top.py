"""`top`, `diff`, `policies` and `select` about the clusters of `../shared/cases`.

Numbers are counted here from the objects.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from typing import Any, NamedTuple

import pytest

from plimsoll.tools.cluster_state.manifests import parse_objects
from plimsoll.tools.colors import Paint
from plimsoll.tools.diff import DiffReport, compare_clusters
from plimsoll.tools.policies import compare_policies
from plimsoll.tools.report import Report
from plimsoll.tools.select import SelectionReport, select_devices
from plimsoll.tools.top.top import top
from tests.cases.cases import case_objects, case_state
from tests.dumps import make_cluster_state

GPU, MESSY = "real/gpu-cluster.json.gz", "real/messy-cluster.json.gz"
TERMINAL, PIPE = Paint(width=80, is_terminal=True), Paint(width=80)
Tree = dict[str, Any]
Id = tuple[str, str, str]


class Published(NamedTuple):
    """Device as it is in its slice."""

    id: Id
    attributes: dict[str, str]
    counter_set: str
    memory: str


cluster = cache(case_state)


@cache
def devices(name: str, driver: str = "gpu.nvidia.com") -> list[Published]:
    return [
        Published(
            (driver, spec["pool"]["name"], each["name"]),
            {key: value["string"] for key, value in each.get("attributes", {}).items() if "string" in value},
            next((part["counterSet"] for part in each.get("consumesCounters", ())), ""),
            each.get("capacity", {}).get("memory", {}).get("value", ""),
        )
        for spec in (tree["spec"] for tree in case_objects(name) if tree["kind"] == "ResourceSlice")
        if spec["driver"] == driver
        for each in spec.get("devices", ())
    ]


def results(claim: Tree) -> list[Tree]:
    found = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [each for each in found if not each.get("adminAccess")]


@cache
def holders(name: str) -> dict[Id, str]:
    """Return the claims that hold devices, without admin access."""
    return {
        (
            each["driver"],
            each["pool"],
            each["device"],
        ): f"{tree['metadata']['namespace']}/{tree['metadata']['name']}"
        for tree in case_objects(name)
        if tree["kind"] == "ResourceClaim"
        for each in results(tree)
    }


def gpu_of(device: Published) -> tuple[str, str]:
    """Return the node and the physical device of a device of NVIDIA's driver: gpu-3 of gpu-3-mig-1g5gb-0."""
    return device.id[1], device.id[2].partition("-mig-")[0]


@cache
def nvidia_gpus() -> dict[tuple[str, str], list[Published]]:
    found = defaultdict(list)
    for each in devices(GPU):
        found[gpu_of(each)].append(each)
    return dict(found)


def answer(case: str, view: str, **options: Any) -> Any:
    return top(cluster(case), view, **options).as_json()


def rows(report: Report, first: str, paint: Paint) -> list[str]:
    """Return the rows of the table whose heading starts with this word."""
    lines = iter(report.lines(paint))
    next(line for line in lines if line.startswith(first))
    found = []
    for line in lines:
        if not line or line.startswith(("Left out", "FREE", "DEVICES")):
            break
        found.append(line)
    return found


# -- names


@pytest.mark.parametrize(
    "view", ["gpus", "devices", "pools", "claims", "pods", "namespaces", "classes", "nodes"]
)
@pytest.mark.parametrize("name", [GPU, MESSY])
def test_names_are_shortened_on_terminals_only(name: str, view: str) -> None:
    report = top(cluster(name), view)
    assert all("..." not in line for line in report.lines(PIPE))
    assert all(len(line) <= 80 for line in report.lines(TERMINAL) if "  " in line.strip())


def test_shortened_names_differ() -> None:
    nodes = {tree["metadata"]["name"] for tree in case_objects(GPU) if tree["kind"] == "Node"}
    shown = [line.split()[0] for line in rows(top(cluster(GPU), "nodes"), "NODE", TERMINAL)]
    assert len({*shown} - {"all"}) == len(nodes)
    pools = {
        (tree["spec"]["driver"], tree["spec"]["pool"]["name"])
        for tree in case_objects(GPU)
        if tree["kind"] == "ResourceSlice"
    } | {id[:2] for id in holders(GPU)}
    lines = [line.split()[:2] for line in rows(top(cluster(GPU), "pools"), "POOL", TERMINAL)]
    assert len({*map(tuple, lines)}) == len(pools)


def test_gpus_say_by_whom_they_are_held_also_on_a_terminal() -> None:
    lines = rows(top(cluster(GPU), "gpus"), "NODE", TERMINAL)
    taken = [line for line in lines if " taken " in line]
    ends = {claim[-3:] for claim in holders(GPU).values()}
    assert taken
    for line in taken:
        holder = line.split(" taken ")[1]
        assert any(end in holder for end in ends), line


def test_pool_names_that_repeat_the_node_are_left_out() -> None:
    lines = [*top(cluster(GPU), "devices", name="intel-max-0").lines(PIPE)]
    assert not any("intel-max-0/" in line for line in lines)


# -- products


@pytest.mark.parametrize(("view", "key"), [("gpus", "gpus"), ("devices", "devices")])
def test_products_as_drivers_publish_them(view: str, key: str) -> None:
    published = {each.attributes["productName"] for each in devices(GPU) if "productName" in each.attributes}
    found = {each["product"] for each in answer(GPU, view)[key]}
    assert published <= found
    text = "\n".join(top(cluster(GPU), "gpus").lines(TERMINAL))
    assert all(product in text for product in published)


def test_memory_as_drivers_publish_it() -> None:
    published = {each.id: each.memory for each in devices(GPU) if each.memory}
    for each in answer(GPU, "gpus")["gpus"]:
        id = (each["driver"], each["pool"], each["device"])
        if id in published:
            assert each["memory"] == published[id]


# -- physical devices


def test_gpus_are_physical_devices() -> None:
    held = holders(GPU)
    shown = {
        (each["pool"], each["device"]): each
        for each in answer(GPU, "gpus")["gpus"]
        if each["driver"] == "gpu.nvidia.com"
    }
    assert shown.keys() == nvidia_gpus().keys()
    for key, parts in nvidia_gpus().items():
        used = [part for part in parts if part.id in held]
        assert (shown[key]["state"] == "free") == (not used), key
        assert {
            f"{holder['namespace']}/{holder['claim']}"
            for part in shown[key]["parts"]
            for holder in part["holders"]
        } == {held[part.id] for part in used}


def test_static_partitions_are_counted_by_profile() -> None:
    """Static partitions have no counters: each is free or held for itself."""
    published, free = Counter[str](), Counter[str]()
    for each in devices(GPU):
        if "profile" in each.attributes and not each.counter_set:
            published[each.attributes["profile"]] += 1
            free[each.attributes["profile"]] += each.id not in holders(GPU)
    assert published
    lines = [line.split() for line in rows(top(cluster(GPU), "gpus"), "PRODUCT", PIPE)]
    counts = {line[0]: (int(line[1]), int(line[2])) for line in lines if line[0] in published}
    assert counts == {profile: (published[profile], free[profile]) for profile in published}
    for key, parts in nvidia_gpus().items():
        if not any("profile" in part.attributes and not part.counter_set for part in parts):
            continue
        (gpu,) = (each for each in answer(GPU, "gpus")["gpus"] if (each["pool"], each["device"]) == key)
        fits = Counter(part.attributes["profile"] for part in parts if part.id not in holders(GPU))
        assert {each["type"]: each["devices"] for each in gpu["fits"]} == fits


def test_devices_and_gpus_of_a_class() -> None:
    wanted = {each.id for each in devices(GPU) if "profile" in each.attributes}
    found = answer(GPU, "devices", device_class="mig.nvidia.com")["devices"]
    assert {(each["driver"], each["pool"], each["device"]) for each in found} == wanted
    gpus = answer(GPU, "gpus", device_class="mig.nvidia.com")["gpus"]
    assert {(each["pool"], each["device"]) for each in gpus} == {
        gpu_of(each) for each in devices(GPU) if each.id in wanted
    }


# -- classes


@pytest.mark.parametrize("name", [GPU, MESSY])
def test_lines_of_profiles_add_up(name: str) -> None:
    found = [each for each in answer(name, "classes")["classes"] if each["partitions"]]
    assert found
    for each in found:
        for key in ("devices", "held"):
            assert sum(part[key] for part in each["partitions"]) == each[key], (each["name"], key)
    assert any("exclude each other" in line for line in top(cluster(name), "classes").lines(TERMINAL))


def test_profiles_of_a_class() -> None:
    (found,) = answer(GPU, "classes", name="mig.nvidia.com")["classes"]
    profiles = Counter(each.attributes["profile"] for each in devices(GPU) if "profile" in each.attributes)
    assert {part["type"]: part["devices"] for part in found["partitions"]} == profiles


# -- namespaces and pools


def test_namespaces_by_devices() -> None:
    counts: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for tree in case_objects(MESSY):
        if tree["kind"] == "ResourceClaim":
            for each in results(tree):
                counts[tree["metadata"]["namespace"]].add((each["driver"], each["pool"], each["device"]))
    report = top(cluster(MESSY), "namespaces", sort="devices")
    found = [each["namespace"] for each in report.as_json()["namespaces"] if each["namespace"] in counts]
    assert found == sorted(counts, key=lambda namespace: -len(counts[namespace]))
    heading = next(line.split() for line in report.lines(TERMINAL) if line.startswith("NAMESPACE"))
    for line in rows(report, "NAMESPACE", TERMINAL):
        cells = line.split()
        assert int(cells[heading.index("DEVICES")]) == len(counts.get(cells[0], ()))


def test_pods_of_namespaces_are_named() -> None:
    pods = Counter[tuple[str, bool]]()
    for tree in case_objects(MESSY):
        if tree["kind"] == "Pod" and tree.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            pods[tree["metadata"]["namespace"], bool(tree["spec"].get("nodeName"))] += 1
    report = top(cluster(MESSY), "namespaces")
    heading = next(line.split() for line in report.lines(TERMINAL) if line.startswith("NAMESPACE"))
    for line in rows(report, "NAMESPACE", TERMINAL):
        cells = line.split()
        found = [int(cells[heading.index(word)]) for word in ("SCHEDULED", "PENDING")]
        assert found == [pods[cells[0], True], pods[cells[0], False]]


def test_counters_are_not_spelled_out_for_each_gpu() -> None:
    lines = [*top(cluster(GPU), "pools").lines(PIPE)]
    assert max(map(len, lines)) < 300


# -- diff


def test_one_claim_of_a_partition_is_a_few_lines() -> None:
    free = next(
        parts
        for parts in nvidia_gpus().values()
        if parts[0].counter_set and not any(part.id in holders(GPU) for part in parts)
    )
    part = next(part for part in free if "profile" in part.attributes)
    result = dict(zip(("driver", "pool", "device"), part.id, strict=True))
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "added", "namespace": "default", "uid": "added"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "mig.nvidia.com"}}]}},
        "status": {"allocation": {"devices": {"results": [{"request": "r", **result}]}}},
    }
    changed = make_cluster_state([*case_objects(GPU), claim])
    report = DiffReport(compare_clusters(cluster(GPU), changed), "old", "new")
    for paint in (TERMINAL, PIPE):
        lines = [*report.lines(paint)]
        assert len(lines) < 20
        assert sum("blocked" in line for line in lines) == 1
    states = {each["name"]: each["fields"] for each in report.as_json()["devices"]}
    assert any(change["after"] == "taken" for change in states["/".join(part.id)])


# -- policies and select


@pytest.mark.parametrize("name", [GPU, MESSY])
def test_policies_fit_a_terminal(name: str) -> None:
    report = compare_policies(cluster(name))
    lines = [*report.lines(TERMINAL)]
    assert len(lines) <= 50
    assert all(len(line) <= 80 for line in lines if "  " in line.strip())
    assert all("..." not in line for line in report.lines(PIPE))
    text = " ".join(" ".join(lines).split())
    assert "requests plus claims, once per referencing container" in text


def test_select_counts_many_devices_by_pool_on_a_terminal() -> None:
    expression = 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"'
    objects = parse_objects(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": case_objects(GPU)}), "cluster"
    )
    report = SelectionReport(tuple(select_devices(expression, objects)))
    wanted = [each for each in devices(GPU) if each.attributes.get("type") == "mig"]
    assert [line for line in report.lines(PIPE) if line.count("/") == 2] == [
        "/".join(each.id) for each in wanted
    ]
    lines = [*report.lines(TERMINAL)]
    pools = Counter(each.id[1] for each in wanted)
    assert len(lines) <= len(pools) + 5
    counts = [line.split()[1] for line in lines if line.startswith("gpu.nvidia.com/")]
    assert Counter(counts) == Counter(map(str, pools.values()))
