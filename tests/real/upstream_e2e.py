"""Upstream's e2e tests: against our server, or with our scheduler on a real one.

    python -m tests.real.upstream_e2e --focus REGEX [--skip REGEX] [--report DIR]
        [--server plimsoll|kubernetes] [--scheduler plimsoll|kubernetes|both]
        [--controllers ours|workloads|upstream] [--nodes simulated|kubelet|plimsoll]

Starts a server, a scheduler and four Ready nodes that report bound pods as running, or two kubelets or node
agents of ours with containerd, then `e2e.test` from KUBEBUILDER_ASSETS, and prints what failed. With
`--scheduler both` the tests run twice, first with kube-scheduler, and the tests that pass with one of them
only are listed; the exit code is 1 if ours fails one that kube-scheduler passes.

`--controllers`, with our server: ours only, which is the default; ours with those of kube-controller-manager
that make pods from workloads; or all of kube-controller-manager's, with their own service accounts, instead
of ours. A real server always has all of kube-controller-manager's.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.real.e2e_clusters import our_server, real_gates, real_server
from tests.real.e2e_nodes import IMAGE_PROGRAMS, agent_nodes, real_nodes, simulated_nodes
from tests.real.kubelet import PROGRAMS
from tests.real.programs import ASSETS, Cluster, missing

_RESULT = re.compile(
    r"^(?:Ran \d+ of.*|(?:SUCCESS|FAIL)!.*|  \[(?:FAIL|TIMEDOUT|PANICKED)\].*)$", re.MULTILINE
)


async def _run_tests(server: Cluster, options: argparse.Namespace, report: Path) -> str:
    command = [
        str(ASSETS / "e2e.test"),
        f"--kubeconfig={server.kubeconfig}",
        "--provider=skeleton",
        "--allowed-not-ready-nodes=-1",
        f"--ginkgo.focus={options.focus}",
        *([f"--ginkgo.skip={options.skip}"] if options.skip else []),
        "--ginkgo.no-color",
        "--ginkgo.v",
        "--ginkgo.timeout=3h",
        f"--report-dir={report}",
    ]
    if options.nodes == "simulated":
        nodes = simulated_nodes(server)
    elif options.nodes == "plimsoll":
        nodes = agent_nodes(server)
    else:
        nodes = real_nodes(server, dict.fromkeys(real_gates(), True))
    async with nodes:
        with (report / "e2e.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            await process.wait()
    return (report / "e2e.log").read_text(errors="replace")


def _passed(report: Path) -> set[str]:
    """Return the names of the tests that passed, by the reports in a directory."""
    names = set()
    for path in report.glob("junit*.xml"):
        for case in ElementTree.parse(path).iter("testcase"):
            if case.get("status") == "passed" and (case.get("name") or "").startswith("[It]"):
                names.add(case.get("name") or "")
    return names


def _run(options: argparse.Namespace, scheduler: str, report: Path) -> tuple[str, set[str]]:
    report.mkdir(parents=True, exist_ok=True)
    cluster = (
        real_server(report, scheduler, heartbeats=options.nodes != "simulated")
        if options.server == "kubernetes"
        else our_server(report, scheduler, options.controllers)
    )
    with cluster as server:
        log = asyncio.run(_run_tests(server, options, report))
    sys.stdout.write("\n".join((*_RESULT.findall(log), f"{scheduler} scheduler, logs: {report}", "")))
    return log, _passed(report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--focus", required=True, help="regular expression of the tests to run")
    parser.add_argument("--skip", default="", help="regular expression of the tests to skip")
    parser.add_argument("--server", choices=("plimsoll", "kubernetes"), default="plimsoll")
    parser.add_argument("--scheduler", choices=("plimsoll", "kubernetes", "both"), default="plimsoll")
    parser.add_argument("--controllers", choices=("ours", "workloads", "upstream"), default="ours")
    parser.add_argument("--nodes", choices=("simulated", "kubelet", "plimsoll"), default="simulated")
    parser.add_argument("--report", type=Path, help="directory for logs and reports, default: temporary")
    options = parser.parse_args()
    needed = ["e2e.test", "kube-controller-manager"]
    needed += ["etcd", "kube-apiserver"] if options.server == "kubernetes" else []
    needed += ["kube-scheduler"] if options.scheduler != "plimsoll" else []
    needed += [*PROGRAMS, *IMAGE_PROGRAMS] if options.nodes != "simulated" else []
    if why := missing(*needed):
        parser.error(why)
    report = options.report or Path(tempfile.mkdtemp(prefix="upstream-e2e-"))
    if options.scheduler != "both":
        log, _ = _run(options, options.scheduler, report)
        return 0 if "SUCCESS!" in log else 1
    _, theirs = _run(options, "kubernetes", report / "kubernetes")
    _, ours = _run(options, "plimsoll", report / "plimsoll")
    rows = [f"both pass: {len(ours & theirs)}"]
    rows += [f"only kube-scheduler passes: {name}" for name in sorted(theirs - ours)]
    rows += [f"only ours passes: {name}" for name in sorted(ours - theirs)]
    sys.stdout.write("\n".join((*rows, "")))
    return 1 if theirs - ours else 0


if __name__ == "__main__":
    sys.exit(main())
