"""Findings of the audit on the clusters of `../shared/cases`, and their fixes tried on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.tools.audit import audit
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.findings import Finding
from tests.cases.cases import case_objects, case_state

MESSY, GPUS, TWO_MODES = (
    f"real/{name}.json.gz" for name in ("messy-cluster", "gpu-cluster", "cpu-two-modes")
)
KEY = "plimsoll.dev/node-allocatable"


def findings(state: ClusterState) -> dict[tuple[str, str], Finding]:
    return {(each.id, each.subject): each for each in audit(state).findings}


def trees(name: str, kind: str) -> list[dict[str, Any]]:
    return [tree for tree in case_objects(name) if tree["kind"] == kind]


def full_name(tree: dict[str, Any]) -> str:
    return f"{tree['metadata']['namespace']}/{tree['metadata']['name']}"


def results(claim: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    )
    return found


def devices(claim: dict[str, Any]) -> list[str]:
    return [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results(claim)]


@pytest.mark.parametrize("name", [MESSY, GPUS])
def test_planted_faults_are_found_and_nothing_else_of_their_kinds(name: str) -> None:
    claims, pods = trees(name, "ResourceClaim"), {full_name(pod): pod for pod in trees(name, "Pod")}
    pools: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for each in trees(name, "ResourceSlice"):
        pools[each["spec"]["driver"], each["spec"]["pool"]["name"]].append(each)
    expected: set[tuple[str, str]] = set()
    exclusive = Counter(
        f"{each['driver']}/{each['pool']}/{each['device']}"
        for claim in claims
        for each in results(claim)
        if not each.get("shareID") and not each.get("adminAccess")
    )
    expected |= {("PLM020", f"Device/{device}") for device, count in exclusive.items() if count > 1}
    published = set()
    for (driver, pool), slices in pools.items():
        newest = max(each["spec"]["pool"]["generation"] for each in slices)
        current = [each for each in slices if each["spec"]["pool"]["generation"] == newest]
        if len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]:
            expected.add(("PLM027", f"Pool/{driver}/{pool}"))
        expected |= {
            ("PLM028", f"ResourceSlice/{each['metadata']['name']}") for each in slices if each not in current
        }
        for each in current:
            for device in each["spec"].get("devices", ()):
                published.add(f"{driver}/{pool}/{device['name']}")
    for claim in claims:
        subject = f"ResourceClaim/{full_name(claim)}"
        if set(devices(claim)) - published:
            expected.add(("PLM025", subject))
        users = claim.get("status", {}).get("reservedFor", [])
        for user in users:
            pod = pods.get(f"{claim['metadata']['namespace']}/{user['name']}")
            if user["resource"] == "pods" and (pod is None or pod["metadata"]["uid"] != user["uid"]):
                expected.add(("PLM040", subject))
        if results(claim) and not users:
            expected.add(("PLM041", subject))
    unready = {
        node["metadata"]["name"]
        for node in trees(name, "Node")
        for condition in node["status"].get("conditions", ())
        if condition["type"] == "Ready" and condition["status"] != "True"
    }
    used = {
        f"{claim['metadata']['namespace']}/{user['name']}"
        for claim in claims
        for user in claim.get("status", {}).get("reservedFor", [])
        if results(claim)
    }
    for key in used & pods.keys():
        if pods[key]["metadata"].get("deletionTimestamp"):
            expected.add(("PLM048", f"Pod/{key}"))
        if pods[key]["spec"].get("nodeName") in unready:
            expected.add(("PLM049", f"Node/{pods[key]['spec']['nodeName']}"))
    kinds = {"PLM020", "PLM025", "PLM027", "PLM028", "PLM040", "PLM041", "PLM048", "PLM049"}
    assert {each for each in findings(case_state(name)) if each[0] in kinds} == expected
    if name == MESSY:
        assert {id for id, _ in expected} == kinds


def test_the_fix_of_an_overcommitted_node_frees_enough_and_spares_devices() -> None:
    state = case_state(MESSY)
    found = {key: each for key, each in findings(state).items() if key[0] == "PLM001"}
    assert list(found) == [("PLM001", "Node/h100-05")]
    (finding,) = found.values()
    assert finding.proven
    *_, namespace, name = finding.fix.split()
    pod = state.objects.find(Pod, namespace, name)
    assert pod is not None
    assert [owner.kind for owner in pod.metadata.owner_references] == ["ReplicaSet"]
    assert not pod.spec.resource_claims
    state.remove(pod)
    assert not [key for key in findings(state) if key[0] == "PLM001"]


def test_an_old_slice_is_kept_while_the_new_generation_is_incomplete() -> None:
    state = case_state(MESSY)
    finding = findings(state)["PLM028", "ResourceSlice/l4-07-gpu-g1"]
    assert not finding.proven
    assert finding.fix.index("wait") < finding.fix.index("kubectl delete")


# -- CPUs of two modes


def annotated(state: ClusterState, name: str, value: str) -> None:
    device_class = state.objects.find(DeviceClass, "", name)
    assert device_class is not None
    metadata = replace(device_class.metadata, annotations={KEY: value})
    state.set(replace(device_class, metadata=metadata))


@pytest.mark.parametrize("mapping", ['{"allocationMultiplier":"1"}', '{"capacityKey":"dra.cpu/cpu"}'])
def test_one_mapping_for_both_modes_is_still_a_finding(mapping: str) -> None:
    state = case_state(TWO_MODES)
    annotated(state, "dra.cpu", f'{{"nodeAllocatableResourceMappings":{{"cpu":{mapping}}}}}')
    found = findings(state)
    assert ("PLM010", "Driver/dra.cpu") in found
    # The claim of 40 CPUs of a group: charged 1, or in full.
    assert (("PLM003", "ResourceClaim/d/c10") in found) == ("capacityKey" not in mapping)


def test_the_suggested_classes_count_the_devices_of_both_modes() -> None:
    state = case_state(TWO_MODES)
    fix = findings(state)["PLM010", "Driver/dra.cpu"].fix
    classes = [codec.convert(tree, DeviceClass) for tree in yaml.safe_load_all(fix.partition("\n")[2])]
    assert len(classes) == 2
    used = {}
    for chosen in classes:
        state = case_state(TWO_MODES)  # its ledgers are computed after these changes
        for device_class in classes:
            state.set(device_class)
        claim = state.objects.find(ResourceClaim, "d", "c10")
        assert claim is not None
        tree = yaml.safe_load(codec.encode(claim))
        tree["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = chosen.metadata.name
        state.set(codec.convert(tree, ResourceClaim))
        used[chosen.metadata.name] = state.snapshot.ledger(state.snapshot.row_of("h100-full-0")).requested[
            "cpu"
        ]
        found = findings(state)
        # The class of the other mode does not select the device.
        assert (("PLM031", "ResourceClaim/d/c10") in found) == (used[chosen.metadata.name] != 40_000)
        assert ("PLM010", "Driver/dra.cpu") not in found
    assert sorted(used.values()) == [1_000, 40_000]


def test_devices_whose_siblings_have_mappings_are_found_by_node() -> None:
    """Of the groups of CPUs, those on two nodes have no mapping: by the raw slices."""
    bare = {
        each["spec"]["nodeName"]
        for each in trees(GPUS, "ResourceSlice")
        if each["spec"]["driver"] == "dra.cpu"
        for device in each["spec"]["devices"]
        if device.get("capacity") and "nodeAllocatableResourceMappings" not in device
    }
    assert bare == {"h100-full-0", "h100-full-1"}
    fix = findings(case_state(GPUS))["PLM017", "Driver/dra.cpu"].fix
    assert all(node in fix for node in bare)
