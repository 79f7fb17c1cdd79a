"""State of the small cluster in what a script determines, and pods that fit however they are placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.scheduler_faults.objects import (
    ClusterObjects,
    Tree,
    allocation_results,
    claim_names,
    consumers,
    is_allocated,
    is_finished,
    key_of,
    node_of,
    recorded_charges,
)
from tests.chaos.scheduler_faults.quantities import parse_quantity
from tests.chaos.scheduler_faults.small_cluster import EVERYWHERE, LOCAL, NAMED, NODE_COUNT, NS

#: Pods that take every device, by kind; a shared device has room for two.
FILL = {
    "plain": NODE_COUNT * LOCAL,
    "fabric": EVERYWHERE,
    "cores": NODE_COUNT * LOCAL,
    "share": NODE_COUNT * 2,
}
#: What all pods that are kept may use, in the worst case: the CPU and the widgets of one node, so that no
#: node can be too full for one of them, all devices, and one partition of each board.
_LIMITS = {**FILL, "part": NODE_COUNT, "cpu": 8, "widget": 3, "pods": 12, "named-2": 1}
_DEVICES = {"both": ("plain", "fabric"), "extended": ("cores",), "none": ()}
_CORES_CPU = 2


def summarize(objects: ClusterObjects) -> Tree:
    """Return pods, with the number of their devices by driver and their charges, and claims of no pod."""
    claims = {key_of(claim): claim for claim in objects.claims if key_of(claim)[0] == NS}
    pods: Tree = {}
    for pod in objects.pods:
        if pod["metadata"]["namespace"] != NS:
            continue
        charges = sorted(
            f"{resource}={amount}"
            for amounts in recorded_charges(pod).values()
            for resource, amount in amounts.items()
        )
        names = [name for name in claim_names(pod) if name]
        pods[pod["metadata"]["name"]] = {
            "placed": bool(node_of(pod)) and not is_finished(pod),
            "devices": dict(sorted(sum((_devices(claims[NS, name]) for name in names), Counter()).items())),
            "charges": charges,
        }
    named = {
        name: f"{dict(_devices(claims[NS, name]))} for {len(consumers(claims[NS, name]))} pods"
        for name in NAMED
    }
    # A request that arrives late may create a claim once more: it stays, unused, until its pod goes.
    allocated = sum(map(is_allocated, claims.values()))
    return {"pods": dict(sorted(pods.items())), "claims": named, "allocated claims": allocated}


def _devices(claim: Tree) -> Counter[str]:
    return Counter(result["driver"] for result in allocation_results(claim))


def find_differences(expected: Tree, found: Tree, where: str = "") -> Iterator[str]:
    """Yield a line for each difference."""
    for name in sorted(expected.keys() | found.keys()):
        simulated, real = expected.get(name), found.get(name)
        path = f"{where}{name}"
        if isinstance(simulated, dict) and isinstance(real, dict):
            yield from find_differences(simulated, real, f"{path}: ")
        elif simulated != real:
            yield f"{path}: {simulated} in the simulator, {real} in real processes"


def choose_pods_that_fit(pods: list[Tree]) -> set[str]:
    """Return names of pods that all fit at once, wherever each of them is or will be placed."""
    used: Counter[str] = Counter()
    kept = set()
    for pod in sorted(pods, key=lambda tree: str(tree["metadata"]["name"])):
        need = _needs(pod)
        if all(used[what] + amount <= _LIMITS[what] for what, amount in need.items()):
            used.update(need)
            kept.add(str(pod["metadata"]["name"]))
    return kept


def _needs(pod: Tree) -> dict[str, float]:
    kind = pod["metadata"]["labels"]["kind"]
    (container,) = pod["spec"]["containers"]
    requests = container["resources"]["requests"]
    if kind == "either":  # a cluster chooses its device by what is free
        return {"pods": _LIMITS["pods"] + 1}
    need: dict[str, float] = {"pods": 1, "cpu": float(parse_quantity(requests["cpu"]))}
    if "example.com/widget" in requests:
        need["widget"] = 1
    devices = _DEVICES.get(kind, (kind,))
    if kind == "named":
        name = pod["spec"]["resourceClaims"][0]["resourceClaimName"]
        devices = (NAMED[name],)
        if NAMED[name] == "cores":  # a claim that charges its node has one pod
            need[name] = 1
    for device in devices:
        need[device] = 1
        if device == "cores":
            need["cpu"] += _CORES_CPU
    return need
