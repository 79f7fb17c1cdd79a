"""Run cases of simulated nodes: `python -m tests.simulation.node.selftest --seed N --cases M [--history]`.

Prints a JSON summary. PYTHONHASHSEED must be 0, so that the same seed gives the same history. Each case runs
in a forked process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from typing import Any

from tests.simulation import clocks

clocks.install()  # before the product is imported

from tests.simulation.node.node_scenario import run_case  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--history", action="store_true")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("PYTHONHASHSEED must be 0")
    clocks.replace_datetime()
    counts: Counter[str] = Counter()
    violations: dict[int, list[str]] = {}
    digests, steps = [], 0
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        outcome = _run_forked(seed, history=arguments.history)
        counts.update(outcome["counts"])
        digests.append(outcome["digest"])
        steps += outcome["steps"]
        if outcome["violations"]:
            violations[seed] = outcome["violations"]
    times = os.times()
    summary = {
        "violations": violations,
        "counts": dict(sorted(counts.items())),
        "digests": digests,
        "steps": steps,
        "seconds": round(times.children_user + times.children_system, 2),
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if violations else 0


def _run_forked(seed: int, *, history: bool) -> dict[str, Any]:
    """Run a case in a forked process, and write its history if asked to."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        outcome = run_case(seed)
        if history:
            sys.stdout.writelines(f"{line}\n" for line in outcome.history.lines())
            sys.stdout.flush()
        with os.fdopen(writer, "w") as file:
            fields = ("violations", "counts", "digest", "steps")
            json.dump({name: getattr(outcome, name) for name in fields}, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text)
    return found


if __name__ == "__main__":
    sys.exit(main())
