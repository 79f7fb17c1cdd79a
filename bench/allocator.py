"""Benchmark of device allocation.

    python -m bench.allocator [--cases FILE]

Prints the recorded scenarios beside the time of the Go allocator (Kubernetes 1.36.4, CPU time of one call,
warm CEL cache) that stands in the file, as a ratio: below 1 is faster than Go. "kept" is one call on an
inventory that has seen the slices, as a scheduler has it; "first" is the first call for a node, when its
devices are still to be gathered and every selector to be evaluated on all of them. Then three curves: over
devices per node, shares per device, and the depth of backtracking, where the work of a plain search grows
with the factorial of the requests.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.allocator import read_row
from tests.unit.allocator.holdings import hold_device

from bench.clock import best
from plimsoll.allocator import (
    Allocation,
    AllocationState,
    DeviceId,
    Features,
    Inventory,
    SearchLimits,
    allocate_claims,
)
from plimsoll.api.codec import convert
from plimsoll.api.core import Node
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.cel import ProgramCache

CASES = Path(__file__).parents[2] / "shared" / "vectors" / "allocator" / "perf_cases.jsonl.gz"
DRIVER = "gpu.example.com"
NODE = convert({"metadata": {"name": "node-0"}}, Node)
CLASSES = {
    "gpu": convert(
        {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        },
        DeviceClass,
    )
}


class Scenario:
    """One repeated input of the allocator."""

    def __init__(
        self,
        slices: Sequence[ResourceSlice],
        claims: Sequence[ResourceClaim],
        state: AllocationState | None = None,
        node: Node = NODE,
        classes: Mapping[str, DeviceClass] = CLASSES,
        features: Features | None = None,
    ) -> None:
        self.slices = slices
        self.claims = claims
        self.state = state or AllocationState()
        self.node = node
        self.classes = classes
        self.features = features or Features()
        self.programs = ProgramCache()
        self.inventory = Inventory(slices, self.features, programs=self.programs)

    def run(self, inventory: Inventory | None = None) -> object:
        return allocate_claims(
            inventory or self.inventory,
            self.state,
            self.claims,
            self.node,
            classes=self.classes,
            new_id=lambda: "share",
            limits=SearchLimits(),
            explain=False,
        )

    def kept(self) -> float:
        """Return the seconds of one call on a kept inventory."""
        self.run()
        return self._seconds(self.run)

    def first(self) -> float:
        """Return the seconds of the first call on an inventory, including its devices and match bits."""
        once = best(lambda: self.run(self._new_inventory()), runs=3)
        count = max(1, min(200, round(0.05 / max(once, 1e-6))))
        times = []
        for _ in range(5):
            waiting = [self._new_inventory() for _ in range(count)]
            times.append(best(lambda w=waiting: [self.run(each) for each in w], runs=1) / count)  # type: ignore[misc]
        return min(times)

    def _new_inventory(self) -> Inventory:
        return Inventory(self.slices, self.features, programs=self.programs)

    def _seconds(self, work: Any) -> float:
        once = best(work, runs=3)
        count = max(1, min(2_000, round(0.05 / max(once, 1e-6))))

        def row() -> None:
            for _ in range(count):
                work()

        return best(row, runs=5) / count


def read_case(row: Mapping[str, Any]) -> Scenario:
    inventory, state, claims, node, classes = read_row(dict(row))
    return Scenario(inventory.slices, claims, state, node, classes, inventory.features)


def report_cases(path: Path) -> None:
    if not path.exists():
        print(f"recorded scenarios: {path.name} is not here; give it with --cases")
        return
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    print(f"{'scenario':32} {'Go us':>9} {'kept us':>9} {'ratio':>6} {'first us':>9} {'ratio':>6}")
    worst = 0.0
    for row in rows:
        scenario = read_case(row)
        go, kept, first = row["go_ns"] / 1e3, scenario.kept() * 1e6, scenario.first() * 1e6
        worst = max(worst, kept / go)
        print(f"{row['name']:32} {go:9.1f} {kept:9.1f} {kept / go:6.2f} {first:9.1f} {first / go:6.2f}")
    print(f"slowest against Go: {worst:.2f} x on a kept inventory")


# -- curves


def make_slices(devices: Sequence[Mapping[str, Any]], size: int = 128) -> list[ResourceSlice]:
    parts = [devices[start : start + size] for start in range(0, len(devices), size)]
    return [
        convert(
            {
                "metadata": {"name": f"slice-{number:03}"},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": "node-0",
                    "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": len(parts)},
                    "devices": list(part),
                },
            },
            ResourceSlice,
        )
        for number, part in enumerate(parts)
    ]


def make_claim(name: str, requests: Sequence[Mapping[str, Any]], **devices: Any) -> ResourceClaim:
    return convert(
        {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests), **devices}}},
        ResourceClaim,
    )


def exactly(name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    body = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **fields}
    return {"name": name, "exactly": body}


def report_devices() -> None:
    print("devices per node, a quarter of them held; 4 devices of one NUMA node")
    first: float | None = None
    for count in (8, 32, 128, 512, 2048):
        devices = [
            {"name": f"gpu-{number:04}", "attributes": {"numa": {"int": number % 4}}}
            for number in range(count)
        ]
        state = AllocationState()
        for number in range(0, count, 4):
            hold_device(state, DeviceId(DRIVER, "node-0", f"gpu-{number:04}"))
        claim = make_claim("c", [exactly("r", 4)], constraints=[{"matchAttribute": f"{DRIVER}/numa"}])
        seconds = Scenario(make_slices(devices), [claim], state).kept()
        first = first or seconds
        print(f"  {count:5} devices {seconds * 1e6:9.1f} us   {seconds / first:6.2f} x the first")


def report_shares() -> None:
    print("shares of one device, all of them taken in one call")
    first: float | None = None
    for count in (1, 8, 64, 256):
        capacity = {"value": "1Ti", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}
        device = {"name": "gpu", "allowMultipleAllocations": True, "capacity": {"memory": capacity}}
        claims = [
            make_claim(f"c{start}", [exactly(f"r{i}") for i in range(min(32, count - start))])
            for start in range(0, count, 32)
        ]
        seconds = Scenario(make_slices([device]), claims).kept()
        first = first or seconds
        each = seconds / count * 1e6
        print(f"  {count:5} shares  {seconds * 1e6:9.1f} us   {each:6.1f} us each")


def report_depth() -> None:
    print("requests that can take any device, then one that needs exactly those which they would take first")
    first: float | None = None
    for depth in (2, 4, 8, 16, 32):
        devices = [
            {"name": f"gpu-{number:02}", "attributes": {"index": {"int": number}}}
            for number in range(2 * depth)
        ]
        claims = [make_claim(f"c{number}", [exactly("r")]) for number in range(depth)]
        needs = f'device.attributes["{DRIVER}"].index < {depth}'
        claims.append(make_claim("last", [exactly("r", depth, selectors=[{"cel": {"expression": needs}}])]))
        scenario = Scenario(make_slices(devices), claims)
        seconds = scenario.kept()
        found = scenario.run()
        assert isinstance(found, Allocation)
        first = first or seconds
        print(
            f"  {depth:5} deep    {seconds * 1e6:9.1f} us   {seconds / first:6.2f} x the first, "
            f"{found.steps} steps"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark of the allocator")
    parser.add_argument("--cases", type=Path, default=CASES, help="recorded scenarios with the times of Go")
    arguments = parser.parse_args()
    report_cases(arguments.cases)
    report_devices()
    report_shares()
    report_depth()


if __name__ == "__main__":
    main()
