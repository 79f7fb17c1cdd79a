"""Benchmark of the node ledger.

    python -m bench.ledger [--nodes 5000] [--pods 30]

Prints how many pods a second a ledger adds and removes, with and without claims, what it takes to
judge a pod with a claim on one node, and the cost of a fit test over all nodes: by columns, by a plain loop
over the ledgers, and what keeping the columns up to date costs per pod. Columns and loop must agree.
"""

from __future__ import annotations

import argparse
from typing import Any

from bench.clock import best
from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.columns import NodeColumns
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import charge_claims, check_placement
from plimsoll.ledger.requests import pod_requests
from plimsoll.ledger.units import to_units

DRIVER = "cpu.example.com"


def make_node(number: int) -> Node:
    line = {"cpu": str(32 + number % 5 * 16), "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    tree = {"metadata": {"name": f"node-{number}"}, "status": {"allocatable": line}}
    return codec.convert(tree, Node)


def make_pod(number: int, claim: str = "") -> Pod:
    requests = {"cpu": f"{250 + number % 7 * 100}m", "memory": f"{1 + number % 3}Gi"}
    resources: dict[str, Any] = {"requests": requests}
    spec: dict[str, Any] = {
        "containers": [
            {"name": "app", "resources": resources},
            {"name": "log", "resources": {"requests": {"cpu": "10m"}}},
        ]
    }
    if claim:
        resources["claims"] = [{"name": "cpus"}]
        spec["resourceClaims"] = [{"name": "cpus", "resourceClaimName": claim}]
    meta = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}"}
    return codec.convert({"metadata": meta, "spec": spec}, Pod)


def make_claim(name: str, policy: str) -> tuple[ResourceClaim, ResourceSlice]:
    device = {
        "name": "socket-0",
        "allowMultipleAllocations": True,
        "capacity": {f"{DRIVER}/cpu": {"value": "64"}},
        "nodeAllocatableResourceMappings": {
            "cpu": {"capacityKey": f"{DRIVER}/cpu", "accountingPolicy": policy}
        },
    }
    result = {"request": "r", "driver": DRIVER, "pool": "pool", "device": "socket-0"}
    allocated = {**result, "consumedCapacity": {f"{DRIVER}/cpu": "2"}}
    claim = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "status": {"allocation": {"devices": {"results": [allocated]}}},
    }
    piece = {
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-0",
            "pool": {"name": "pool", "generation": 1},
            "devices": [device],
        }
    }
    return codec.convert(claim, ResourceClaim), codec.convert(piece, ResourceSlice)


def report_adding(count: int, rounds: int = 10) -> None:
    """Fill a node with pods and empty it again."""
    print(f"adding {count} pods to a node and removing them")
    plain = 0.0
    kinds = (
        ("no claims", None),
        ("a claim each", ""),
        ("the same, Max", "Max"),
        ("one pool for all", "ConsumeFrom"),
    )
    for label, policy in kinds:
        names = ["" if policy is None else "c" if policy == "ConsumeFrom" else f"c{n}" for n in range(count)]
        claims = {name: make_claim(name, policy or "")[0] for name in names}
        charge_context = ChargeContext(DeviceIndex([make_claim("c", policy or "")[1]]), make_node(0))
        pods = [make_pod(number, name) for number, name in enumerate(names)]
        charged_claims = [
            [b for b in charge_claims(pod, claims, {}, charge_context) if isinstance(b, ChargedClaim)]
            for pod in pods
        ]
        pairs = list(zip(pods, charged_claims, strict=True))

        def add_all(pairs: list[tuple[Pod, list[ChargedClaim]]] = pairs) -> None:
            for _ in range(rounds):
                ledger = NodeLedger(make_node(0))
                for pod, parts in pairs:
                    ledger.add(pod, parts)
                for pod, _ in pairs:
                    ledger.remove(pod)

        each = best(add_all, runs=3) / count / rounds / 2
        plain = plain or each
        print(f"  {label:17} {1 / each:9.0f} pods/s   {each * 1e6:6.1f} us   {each / plain:4.1f} x")


def report_judging() -> None:
    claim, piece = make_claim("c", "")
    pod, node = make_pod(0, "c"), make_node(0)
    charge_context = ChargeContext(DeviceIndex([piece]), node)
    ledger = NodeLedger(node)
    for number in range(1, 20):
        ledger.add(make_pod(number))
    assert check_placement(ledger, pod, {"c": claim}, {}, charge_context).verdict.fits

    def work() -> None:
        for _ in range(1000):
            check_placement(ledger, pod, {"c": claim}, {}, charge_context)

    print(f"judging a pod with a claim on one node: {best(work) * 1000:.1f} us")


def report_fit(nodes: int, pods: int) -> None:
    ledgers = [NodeLedger(make_node(number)) for number in range(nodes)]
    shapes = [make_pod(number) for number in range(pods)]
    for place, ledger in enumerate(ledgers):
        for number in range(place % pods):
            ledger.add(shapes[number])
    columns = NodeColumns(ledgers)
    demand = to_units(pod_requests(make_pod(5))) | {"cpu": 40_000}

    def loop() -> list[bool]:
        return [not any(find_request_shortages(demand, b.allocatable, b.requested, len(b))) for b in ledgers]

    assert columns.fits_requests(demand).tolist() == loop()
    fitting = int(columns.fits_requests(demand).sum())

    def by_columns() -> None:
        for _ in range(100):
            columns.fits_requests(demand)

    def refresh_all() -> None:
        for place, ledger in enumerate(ledgers):
            columns.refresh(place, ledger)

    fast = best(by_columns) / 100
    slow = best(loop, runs=3)
    refresh = best(refresh_all, runs=3) / nodes
    build = best(lambda: NodeColumns(ledgers), runs=3)
    print(f"fit test over {nodes} nodes ({fitting} fit)")
    print(f"  columns        {fast * 1e6:9.1f} us   {slow / fast:6.0f} x as fast as the loop")
    print(f"  loop           {slow * 1e6:9.1f} us")
    print(f"  refresh a row  {refresh * 1e6:9.1f} us")
    print(f"  build          {build * 1e3:9.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark of the ledger")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=30)
    arguments = parser.parse_args()
    report_adding(100)
    report_judging()
    report_fit(arguments.nodes, arguments.pods)


if __name__ == "__main__":
    main()
