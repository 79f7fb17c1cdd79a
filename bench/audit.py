"""Benchmark of `plimsoll audit` on a large cluster.

    python -m bench.audit [--nodes 5000] [--pods 10]

A cluster in which nothing is wrong is the longest way: every check looks at everything. Prints the seconds of
CPU for the ledgers, for all checks together, and for each check that takes more than a twentieth of that,
with everything that it is the first to ask for; then how many objects are examined in a second.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from pathlib import Path

from tests.dumps import big_cluster, write_dump

from plimsoll.common.gc_pause import without_collection
from plimsoll.tools.audit import CHECKS, audit
from plimsoll.tools.audit.facts import AuditFacts
from plimsoll.tools.cluster_state import Source, read_cluster_state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10, help="for each node")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        trees = big_cluster(given.nodes, pods_per_node=given.pods)
        cluster_state = read_cluster_state(
            Source((str(write_dump(trees, Path(directory) / "dump.json", "json")),))
        )
        del trees
    gc.collect()
    gc.freeze()  # objects live until the end; no full collection is needed
    start = time.process_time()
    assert cluster_state.snapshot
    ledgers = time.process_time() - start
    facts = AuditFacts(cluster_state, 0.0, live=True)
    spent: list[tuple[float, str]] = []
    for check in CHECKS:
        start = time.process_time()
        with without_collection():  # as `audit` does
            found = len(list(check.run(facts)))
        spent.append((time.process_time() - start, f"{check.id} {check.name}: {found} findings"))
    whole = sum(seconds for seconds, _ in spent)
    report = audit(cluster_state, now=0.0, live=True)
    assert not report.findings, report.findings[:3]
    print(f"{', '.join(f'{count} {what}s' for what, count in report.size.items())}")
    print(f"ledgers {ledgers:6.2f} s")
    print(f"checks  {whole:6.2f} s, {whole / ledgers:.1f} times the ledgers")
    for seconds, name in sorted(spent, reverse=True):
        if seconds > whole / 20:
            print(f"        {seconds:6.2f} s  {name}")
    print(f"{sum(report.size.values()) / (ledgers + whole):,.0f} objects a second")


if __name__ == "__main__":
    main()
