"""Run golden vectors.

    python -m tests.conformance SUITE FILE... [--profile NAME] [--diff FILE] [--json] [--limit N] [--name T]

SUITE is one of the suites below, FILE a .jsonl or .jsonl.gz file with one case a line. Prints each mismatch,
ends with `N passed, N failed` and exits 1 on any failure, 2 where nothing could be run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.conformance.runner import SUITES, Mismatch, find_differences, load_check, run


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Run golden vectors against Plimsoll.",
        epilog="suites: " + ", ".join(sorted(SUITES)),
    )
    parser.add_argument("suite", choices=sorted(SUITES), metavar="SUITE", help="which comparison to make")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="vectors, .jsonl or .jsonl.gz")
    parser.add_argument("--profile", metavar="NAME", help="whose rules hold, where a suite has several")
    parser.add_argument(
        "--diff",
        action="append",
        type=Path,
        metavar="FILE",
        help="cases that a newer Kubernetes answers otherwise; found beside the vectors if not given",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--limit", type=int, metavar="N", help="stop after N cases")
    parser.add_argument("--name", metavar="TEXT", help="run only cases whose id contains TEXT")
    options = parser.parse_args(argv)

    mismatches: list[Mismatch] = []

    def report(mismatch: Mismatch) -> None:
        mismatches.append(mismatch)
        if not options.json:
            print(f"{mismatch.name}: {mismatch.text}")

    try:
        check = load_check(options.suite, options.profile)
        diffs = options.diff or find_differences(options.suite, options.files)
        passed = run(check, options.files, report, options.limit, options.name, diffs)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed = len(mismatches)
    if options.json:
        found = [{"name": m.name, "text": m.text} for m in mismatches]
        print(json.dumps({"suite": options.suite, "passed": passed, "failed": failed, "mismatches": found}))
    else:
        print(f"{passed} passed, {failed} failed")
    if passed + failed == 0:
        print("error: no case was run; look at the files and at --name and --limit", file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
