"""Command line of the simulator."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.case import SECONDS, Outcome, simulate
from tests.simulation.clocks import replace_datetime
from tests.simulation.planted import PLANTED, plant
from tests.simulation.recorder import record
from tests.simulation.script import write_script
from tests.simulation.shrink import shrink
from tests.simulation.workload import Mode


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate clusters.")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--cases", type=int, default=1, help="number of cases, each with the next seed")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this much CPU time")
    parser.add_argument("--history", action="store_true", help="print the history of every case")
    parser.add_argument("--go-on", action="store_true", help="go on after a violation")
    parser.add_argument(
        "--mode", choices=[each.name for each in Mode], help="simulate this part of a cluster"
    )
    parser.add_argument("--only", metavar="KEYS", help="let only these faults and events happen")
    parser.add_argument(
        "--shrink", action="store_true", help="find the fewest faults with which a case fails"
    )
    parser.add_argument("--script", action="store_true", help="print the script of one case")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="put a fault into the product first")
    given = parser.parse_args(arguments)
    replace_datetime()
    if given.plant:
        plant(given.plant)
    if given.script:
        steps, violations = record(given.seed, given.seconds or SECONDS)
        sys.stdout.write(write_script(steps))
        sys.stderr.write("".join(f"{each}\n" for each in violations))
        return 1 if violations else 0
    mode = Mode[given.mode] if given.mode else None
    started, faults, failed, cases = time.process_time(), Counter[str](), 0, 0
    for seed in range(given.seed, given.seed + given.cases):
        allowed = frozenset(given.only.split(",")) if given.only else None
        outcome = simulate(seed, allowed, mode)
        if outcome.violations and given.shrink:
            outcome = _shrink(outcome, mode)
        cases += 1
        faults += outcome.faults
        _print(outcome, history=given.history or (given.shrink and bool(outcome.violations)))
        if outcome.violations:
            failed += 1
            if not given.go_on:
                break
        if given.seconds and time.process_time() - started > given.seconds:
            break
    spent = time.process_time() - started
    total = faults.total()
    sys.stdout.write(f"{cases} cases, {total} faults, {total / spent:.0f} per CPU second, {failed} failed\n")
    for name, count in sorted(faults.items()):
        sys.stdout.write(f"{count:8d}  {name}\n")
    return 1 if failed else 0


def _shrink(outcome: Outcome, mode: Mode | None) -> Outcome:
    """Return the case with the fewest faults and events with which it fails, and print how to repeat it."""
    seed = outcome.seed
    keys = shrink(outcome.injected, lambda some: bool(simulate(seed, some, mode).violations))
    again = f"--mode {mode.name} " if mode is not None else ""
    sys.stdout.write(
        f"{len(keys)} of {len(outcome.injected)}: --seed {seed} {again}--only {','.join(keys)}\n"
    )
    return simulate(seed, frozenset(keys), mode)


def _print(outcome: Outcome, *, history: bool) -> None:
    if history:
        for line in outcome.history.lines():
            sys.stdout.write(line + "\n")
    for each in outcome.violations:
        sys.stdout.write(f"seed {outcome.seed}: {each}\n")
    sys.stdout.write(
        f"seed {outcome.seed}: {outcome.faults.total()} faults, {outcome.bound} bindings, "
        f"{outcome.writes} writes, {outcome.steps} steps, {outcome.seconds:.0f} s, "
        f"history {outcome.history.digest()}\n"
    )
