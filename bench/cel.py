"""Benchmark of CEL device selectors.

    python -m bench.cel [--devices 100000]

Prints the time to compile a selector, the time of one evaluation by generated code, by closures and on a
device that lacks the attribute, the time to flatten devices, and what it takes to match all of them, with
ratios. The figure for kube-scheduler is quoted, not measured here: `DeviceMatches` of Kubernetes 1.36.4 took
17 to 26 us per call on a two-core Linux machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from types import FunctionType
from typing import Any

from bench.clock import best
from plimsoll.cel import CelDevice, Environment, Selector, compile_selector, flatten, match_all
from plimsoll.cel.check import check
from plimsoll.cel.interpreter.program import Program
from plimsoll.errors import CelRuntimeError

GO_MICROSECONDS = (17.0, 26.0)
DRIVER = "gpu.example.com"
A = f'device.attributes["{DRIVER}"]'
USUAL = f'{A}.model == "a100" && device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
OTHERS = (
    f'{A}.?model.orValue("") == "a100"',
    f'{A}.model in ["a100", "h100"] && has({A}.ecc)',
    f'{A}.driverVersion.isGreaterThan(semver("535.0.0"))',
    f'cel.bind(a, {A}, a.model == "a100" && a.index > 1)',
    f'["a100", "h100"].exists(m, m == {A}.model)',
    f'{A}.model.matches("^a[0-9]+$")',
    f'{A}.map(k, k).exists(k, k == "model")',
)


def make_device(number: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "model": {"string": ("a100", "h100", "b200")[number % 3]},
            "uuid": {"string": f"GPU-{number:08x}"},
            "index": {"int": number % 8},
            "ecc": {"bool": number % 2 == 0},
            "driverVersion": {"version": f"535.{number % 5}.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number % 64:02x}"},
        },
        "capacity": {"memory": {"value": f"{40 * (1 + number % 3)}Gi"}, "cores": {"value": "6912"}},
    }


def microseconds(work: Callable[[], object], count: int) -> float:
    """Return the microseconds of one call, from the best of several series."""

    def row() -> None:
        for _ in range(count):
            work()

    def nothing() -> None:
        for _ in range(count):
            pass

    return max(best(row) - best(nothing), 1e-9) / count * 1e6


def failing(selector: Selector, device: CelDevice) -> None:
    try:
        selector.matches(device)
    except CelRuntimeError:
        return


def report_evaluation() -> None:
    device, bare = flatten(make_device(0), DRIVER), flatten({}, DRIVER)
    selector = compile_selector(USUAL, Environment())
    selector.matches(device)
    matches = selector.matches
    generated = microseconds(lambda: matches(device), 100_000)
    interpreter = Program(check(USUAL, Environment()))
    closures = microseconds(lambda: interpreter.matches(device), 20_000)
    failed = microseconds(lambda: failing(selector, bare), 20_000)
    compiled = microseconds(lambda: compile_selector(USUAL, Environment()), 200)
    low, high = GO_MICROSECONDS
    print(f"the usual selector: {USUAL}")
    print(f"  compile            {compiled:9.1f} us")
    print(f"  generated code     {generated:9.3f} us   {closures / generated:5.1f} x as fast as closures")
    print(f"  closures           {closures:9.3f} us")
    print(f"  missing attribute  {failed:9.3f} us")
    ratios = f"{low / generated:.0f}-{high / generated:.0f}"
    print(f"  DeviceMatches (Go) {low:5.0f}-{high:.0f} us   quoted; generated code is {ratios} x as fast")
    print("other shapes:         generated   closures")
    for expression in OTHERS:
        other = compile_selector(expression, Environment())
        other.matches(device)
        program = Program(check(expression, Environment()))
        exact = microseconds(lambda run=program.matches: run(device), 5_000)  # type: ignore[misc]
        fast = microseconds(lambda run=other.matches: run(device), 20_000)  # type: ignore[misc]
        text = f"{fast:9.3f} us" if isinstance(other.matches, FunctionType) else "           -"
        print(f"  {text:>20} {exact:9.3f} us  {expression}")


def report_devices(count: int) -> None:
    raw = [make_device(number) for number in range(count)]
    devices = [flatten(device, DRIVER) for device in raw]
    selector = compile_selector(USUAL, Environment())
    flattening = best(lambda: [flatten(device, DRIVER) for device in raw], runs=3)
    matching = best(lambda: match_all(selector, devices), runs=3)
    found = match_all(selector, devices)
    low, _ = GO_MICROSECONDS
    print(f"{count} devices: {found.bits.bit_count()} match, {len(found.errors)} failed")
    print(f"  flatten            {flattening:9.3f} s    {flattening / count * 1e6:6.2f} us each")
    print(f"  match              {matching:9.3f} s    {matching / count * 1e6:6.2f} us each")
    total = flattening + matching
    print(f"  both               {total:9.3f} s    Go at {low:.0f} us each: {count * low / 1e6:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark of device selectors")
    parser.add_argument("--devices", type=int, default=100_000)
    arguments = parser.parse_args()
    report_evaluation()
    report_devices(arguments.devices)


if __name__ == "__main__":
    main()
