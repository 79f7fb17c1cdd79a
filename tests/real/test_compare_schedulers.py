"""Random clusters scheduled by Plimsoll and by a real kube-scheduler, checked independently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scheduler_faults.objects import ClusterObjects
from tests.real.compare_schedulers import Comparison, compare_seeds
from tests.real.oracle import PROGRAMS
from tests.real.placement_checker import find_faults, matches
from tests.real.programs import missing
from tests.real.random_clusters import random_story
from tests.sizes import FULL

_MISSING = missing(*PROGRAMS)
#: The short form has clusters with shared claims, partitions, pools and pod-level requests.
SEEDS = range(1, 31) if FULL else (1, 4)
SECONDS = 3600 if FULL else 600


@pytest.mark.slow
@pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")
def test_plimsoll_places_what_kube_scheduler_places_and_breaks_no_rule(tmp_path: Path) -> None:
    async def run() -> Comparison:
        async with asyncio.timeout(SECONDS):
            return await compare_seeds(tmp_path / "plane", SEEDS)

    result = asyncio.run(run())
    assert not result.failed, "\n".join(result.lines())
    assert result.both > 0


# -- the checker itself

Tree = dict[str, Any]
GPU = "gpu.example.com"


def scheduled() -> ClusterObjects:
    """Return a node with two pods: CPUs of a pool within a pod-level request, and two GPUs."""
    pool = {
        "name": "numa-0",
        "allowMultipleAllocations": True,
        "attributes": {"numa": {"int": 0}},
        "capacity": {"cpu": {"value": "8"}},
        "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cpu"}},
    }
    gpus = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": "h100"}, "numa": {"int": number}},
            "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}},
        }
        for number in range(3)
    ]
    cpus = claim("cpus", {"count": 1, "capacity": {"requests": {"cpu": "2"}}}, ("pool.example.com", "numa-0"))
    cpus["status"]["allocation"]["devices"]["results"][0] |= {
        "shareID": "s",
        "consumedCapacity": {"cpu": "2"},
    }
    selector = {"cel": {"expression": f'device.attributes["{GPU}"].model == "h100"'}}
    pair = claim("pair", {"count": 2, "selectors": [selector]}, (GPU, "gpu-0"), (GPU, "gpu-1"))
    pair["spec"]["devices"]["constraints"] = [
        {"matchAttribute": f"{GPU}/model"},
        {"distinctAttribute": f"{GPU}/numa"},
    ]
    node = {
        "metadata": {"name": "n", "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
    }
    within = pod("within", "cpus", "1", {"cpu": "2"})
    within["spec"]["resources"] = {"requests": {"cpu": "4"}}
    return ClusterObjects(
        [node],
        [within, pod("trainer", "pair", "2", {"cpu": "2"})],
        [cpus, pair],
        [slice_of("pool.example.com", [pool]), slice_of(GPU, gpus)],
    )


def claim(name: str, exactly: Tree, *devices: tuple[str, str]) -> Tree:
    results = [{"request": "r", "driver": d, "pool": "n", "device": device} for d, device in devices]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"name": f"of-{name}", "uid": f"uid-of-{name}"}],
        },
    }


def pod(name: str, claim_name: str, cpu: str, charges: Tree) -> Tree:
    charged = [{"resourceClaimName": claim_name, "containers": ["a"], "resources": charges}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{claim_name}"},
        "spec": {
            "nodeName": "n",
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}],
            "resourceClaims": [{"name": "c", "resourceClaimName": claim_name}],
        },
        "status": {"nodeAllocatableResourceClaimStatuses": charged},
    }


def slice_of(driver: str, devices: list[Tree]) -> Tree:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": driver},
        "spec": {"driver": driver, "pool": pool, "nodeName": "n", "devices": devices},
    }


def results(objects: ClusterObjects, number: int) -> list[Tree]:
    found: list[Tree] = objects.claims[number]["status"]["allocation"]["devices"]["results"]
    return found


def body(objects: ClusterObjects, number: int) -> Tree:
    found: Tree = objects.claims[number]["spec"]["devices"]["requests"][0]["exactly"]
    return found


FAULTS: dict[str, tuple[Callable[[ClusterObjects], object], str]] = {
    "overcommitted": (
        lambda o: o.nodes[0]["status"]["allocatable"].update(cpu="7"), "node n: cpu 8 of 7",
    ),
    "pod-level": (
        lambda o: o.pods[0]["spec"]["resources"]["requests"].update(cpu="2500m"),
        "pod default/within: cpu 3 within a pod-level request of 2.5",
    ),
    "not recorded": (
        lambda o: o.pods[1]["status"].clear(),
        "pod default/trainer: the charge of claim pair is not recorded",
    ),
    "node label": (
        lambda o: o.pods[0]["spec"].update(nodeSelector={"zone": "b"}),
        "pod default/within: node n has no label zone=b",
    ),
    "node taint": (
        lambda o: o.pods[0]["spec"].pop("tolerations"),
        "pod default/within: taint dedicated of node n is not tolerated",
    ),
    "count": (lambda o: body(o, 1).update(count=3), "claim default/pair: request r has 2 of 3 devices"),
    "request": (
        lambda o: [r.update(request="other") for r in results(o, 1)],
        "claim default/pair: request r is served by 0 of 1 ways",
    ),
    "selector": (
        lambda o: body(o, 1).update(
            selectors=[{"cel": {"expression": f'device.attributes["{GPU}"].numa == 0'}}]
        ),
        f'claim default/pair: {GPU}/n/gpu-1 does not match device.attributes["{GPU}"].numa == 0',
    ),
    "distinct": (
        lambda o: o.slices[1]["spec"]["devices"][1]["attributes"].update(numa={"int": 0}),
        f"claim default/pair: {{'distinctAttribute': '{GPU}/numa'}}: [('int', 0), ('int', 0)]",
    ),
    "match": (
        lambda o: o.claims[1]["spec"]["devices"].update(constraints=[{"matchAttribute": f"{GPU}/numa"}]),
        f"claim default/pair: {{'matchAttribute': '{GPU}/numa'}}: [('int', 0), ('int', 1)]",
    ),
    "consumed": (
        lambda o: body(o, 0).update(capacity={"requests": {"cpu": "3"}}),
        "claim default/cpus: pool.example.com/n/numa-0: consumes 2 of cpu, requested 3",
    ),
    "tainted": (
        lambda o: o.slices[0]["spec"]["devices"][0].update(taints=[{"key": "sick", "effect": "NoSchedule"}]),
        "claim default/cpus: pool.example.com/n/numa-0 is tainted",
    ),
    "other node": (
        lambda o: o.slices[0]["spec"].update(nodeName="m"),
        "bound pod's device is not available on its node: pod default/within, claim cpus: "
        "pool.example.com/n/numa-0 on n",
    ),
    "not reserved": (
        lambda o: o.claims[0]["status"].update(reservedFor=[]),
        "bound pod's claim is not reserved for it: pod default/within, claim cpus",
    ),
}  # fmt: skip


def test_the_checker_finds_nothing_in_a_valid_cluster() -> None:
    assert find_faults(scheduled()) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checker_finds_a_fault(fault: str) -> None:
    plant, expected = FAULTS[fault]
    objects = deepcopy(scheduled())
    plant(objects)
    assert find_faults(objects) == [expected]


def test_the_checker_finds_a_shared_claim_and_a_device_that_is_allocated_twice() -> None:
    objects = scheduled()
    second = pod("second", "cpus", "1", {"cpu": "2"})
    second["spec"]["resources"] = {"requests": {"cpu": "3"}}
    objects.nodes[0]["status"]["allocatable"]["cpu"] = "16"
    objects.pods.append(second)
    assert find_faults(objects) == [
        "claim default/cpus charges its node and is used by default/within, default/second"
    ]
    objects = scheduled()
    objects.claims.append(claim("again", {"count": 1}, (GPU, "gpu-0")))
    assert find_faults(objects) == [f"device allocated twice: {GPU}/n/gpu-0: default/pair, default/again"]


def test_the_checker_knows_all_selectors_of_random_clusters() -> None:
    known = 0
    for seed in range(40):
        for tree in random_story(seed).cluster:
            spec = tree["spec"].get("spec", tree["spec"]) if tree["kind"].startswith("ResourceClaim") else {}
            for request in spec.get("devices", {}).get("requests", ()):
                for way in (request.get("exactly", {}), *request.get("firstAvailable", ())):
                    for selector in way.get("selectors", ()):
                        matches(selector["cel"]["expression"], "other.example.com", {})
                        known += 1
    assert known > 50
