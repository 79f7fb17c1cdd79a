"""Command line of the scheduler benchmarks.

    python -m bench.scheduler [pure|path|sharing|memory|gang] [--scenario S ...] [--nodes N ...]
                              [--fill F ...]

    pure     the scheduling cycle alone, in this process
    path     server, scheduler and load as processes, over HTTPS: from creating a pod to its binding; then the
             same writes with known placements, which is the upper limit of the API server. `--server real`:
             on kube-apiserver, etcd and kube-controller-manager of KUBEBUILDER_ASSETS, with kube-scheduler in
             the same run. `--fill churn`: at 90 %, every pod created takes the place of one that is deleted
    sharing  1 to 256 pods (`--pods`) that share one claim, and other pods meanwhile; same servers as `path`
    memory   5,000 nodes, 40,000 devices, 50,000 pods in one snapshot
    gang     attempts of pod groups, and the longest turn in which the event loop waits for one

Without a part: all of them in a short form.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.scheduler import gang, memory, path, pure, sharing
from bench.scheduler.processes import SERVERS, find_assets
from bench.scheduler.workloads import SCENARIOS

PARTS = ("pure", "path", "sharing", "memory", "gang")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", choices=PARTS, help="part to run (default: all, in a short form)")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="repeatable; default: all")
    parser.add_argument("--nodes", action="append", type=int, help="number of nodes (repeatable)")
    parser.add_argument("--devices", type=int, default=8, help="devices per node")
    parser.add_argument("--fill", action="append", choices=list(path.FILLS), help="initial fill (repeatable)")
    parser.add_argument("--pods", type=int, default=0, help="number of pods to time")
    parser.add_argument("--no-limit", action="store_true", help="path: skip the measurement of writes alone")
    parser.add_argument(
        "--server",
        choices=list(SERVERS),
        default="embedded",
        help="path, sharing: API server (default: embedded)",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="path, sharing: also run kube-scheduler (from KUBEBUILDER_ASSETS)",
    )
    options = parser.parse_args(arguments)
    real = options.server == "real"
    compare = options.compare or (real and find_assets("kube-scheduler") is not None)
    if compare and find_assets("kube-scheduler") is None:
        parser.error("--compare: kube-scheduler not found in KUBEBUILDER_ASSETS")
    # Pods that share one claim need nothing that generates claims.
    controllers = () if options.part == "sharing" else ("kube-controller-manager",)
    if real and find_assets("etcd", "kube-apiserver", *controllers) is None:
        parser.error("--server real: no control plane in KUBEBUILDER_ASSETS")
    if options.part == "pure" and path.CHURN in (options.fill or ()):
        parser.error("--fill churn: only for path")
    short = options.part is None
    scenarios = options.scenario or list(SCENARIOS)
    if options.part in (None, "pure"):
        sizes = options.nodes or ([100, 500] if short else [100, 500, 1000, 5000])
        fills = [fill for fill in options.fill or () if fill in pure.FILLS]
        fills = fills or (["half"] if short else list(pure.FILLS))
        pure.report(scenarios, sizes, fills, options.pods or (200 if short else 1000), options.devices, print)
    if options.part in (None, "path"):
        sizes = options.nodes or ([50] if short else [100, 500, 1000, *([5000] if real else [])])
        path.report(
            options.scenario or (["plain", "node-allocatable"] if short else scenarios),
            sizes,
            options.fill or ["empty", *([path.CHURN] if real else [])],
            options.pods or (200 if short else 2000),
            options.devices,
            print,
            limit=not options.no_limit,
            compare=compare,
            server=options.server,
        )
    if options.part in (None, "sharing"):
        sizes = [options.pods] if options.pods else ([32] if short else list(sharing.SHARERS))
        sharing.report(sizes, print, server=options.server, compare=compare)
    if options.part in (None, "memory"):
        nodes = (options.nodes or [500 if short else 5000])[0]
        memory.report(nodes, options.devices, options.pods or nodes * 10, 500 if short else 5000, print)
    if options.part in (None, "gang"):
        gang.report(options.nodes or ([100] if short else [100, 500, 2000]), print)
