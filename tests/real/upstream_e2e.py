"""Upstream's e2e tests against our server, with simulated nodes.

    python -m tests.real.upstream_e2e --focus REGEX [--skip REGEX] [--report DIR]
        [--controllers ours|workloads|upstream]

Starts `plimsoll server`, `plimsoll scheduler` and four Ready nodes that report bound pods as running, then
`e2e.test` from KUBEBUILDER_ASSETS, and prints what failed. `--controllers`: ours only, which is the default;
ours with those of kube-controller-manager that make pods from workloads; or all of kube-controller-manager's,
with their own service accounts, instead of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from plimsoll.client import Client
from plimsoll.client.endpoints import NODES
from tests.real.machines import Machines, Tree
from tests.real.programs import ASSETS, Program, missing
from tests.smoke.process import ServerProcess

_WORKLOADS = (
    "replicaset",
    "replicationcontroller",
    "deployment",
    "job",
    "cronjob",
    "endpoints",
    "endpointslice",
)
_GATES = (
    "DRAResourcePoolStatus=true,DRADeviceTaintRules=true,GenericWorkload=true,DRAWorkloadResourceClaims=true"
)
_RESULT = re.compile(
    r"^(?:Ran \d+ of.*|(?:SUCCESS|FAIL)!.*|  \[(?:FAIL|TIMEDOUT|PANICKED)\].*)$", re.MULTILINE
)
_NODES = ("node-1", "node-2", "node-3", "node-4")


class RunningPods(Machines):
    """Nodes whose pods run once a scheduler has bound them, and never end by themselves."""

    async def _add(self, name: str) -> None:
        await super()._add(name)
        labels = {f"kubernetes.io/{key}": value for key, value in _labels(name).items()}
        await self._client.patch(NODES, name, {"metadata": {"labels": labels}})
        addresses = [{"type": "InternalIP", "address": f"10.2.0.{name[-1]}"}]
        await self._client.patch(NODES, name, {"status": {"addresses": addresses}}, subresource="status")

    async def _bind(self, pod: Tree) -> None:
        """Leave the pod to the scheduler."""

    async def _run(self, pod: Tree) -> None:
        await super()._run({**pod, "spec": {**pod["spec"], "restartPolicy": "Always"}})


def _labels(name: str) -> dict[str, str]:
    return {"hostname": name, "os": "linux", "arch": "amd64"}


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "plimsoll.cli.main", *map(str, words)]


def _kubeconfig(server: ServerProcess, user: str) -> Path:
    path = server.directory / f"{user}.kubeconfig"
    where = ("--data-dir", server.data, "--server", server.url, "--out", path)
    subprocess.run(_command("kubeconfig", user, *where), check=True, capture_output=True)
    return path


@contextmanager
def _components(server: ServerProcess, controllers: str) -> Iterator[None]:
    """Run the scheduler, and kube-controller-manager if it is asked for."""
    with ExitStack() as stack:
        options = ("--kubeconfig", _kubeconfig(server, "scheduler"), "--scheduler-name", "default-scheduler")
        log = stack.enter_context((server.directory / "scheduler.log").open("wb"))
        scheduler = subprocess.Popen(_command("scheduler", *options, "--listen", ""), stdout=log, stderr=log)
        stack.callback(scheduler.wait)
        stack.callback(scheduler.terminate)
        if controllers != "ours":
            names = ",".join(f"{name}-controller" for name in _WORKLOADS)
            everything = "*,-node-lifecycle-controller,-node-ipam-controller"
            manager = Program(
                "kube-controller-manager",
                server,
                "--leader-elect=false",
                "--use-service-account-credentials",
                f"--root-ca-file={server.data}/ca.crt",
                f"--controllers={names if controllers == 'workloads' else everything}",
                f"--feature-gates={_GATES}",
                kubeconfig=_kubeconfig(server, "controller-manager"),
            )
            stack.callback(manager.stop)
        yield


async def _run_tests(server: ServerProcess, focus: str, skip: str, report: Path) -> str:
    command = [
        str(ASSETS / "e2e.test"),
        f"--kubeconfig={server.kubeconfig}",
        "--provider=skeleton",
        "--allowed-not-ready-nodes=-1",
        f"--ginkgo.focus={focus}",
        *([f"--ginkgo.skip={skip}"] if skip else []),
        "--ginkgo.no-color",
        "--ginkgo.v",
        f"--report-dir={report}",
    ]
    async with Client.connect(server.config()) as client, RunningPods(client, *_NODES).running():
        with (report / "e2e.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            await process.wait()
    return (report / "e2e.log").read_text(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--focus", required=True, help="regular expression of the tests to run")
    parser.add_argument("--skip", default="", help="regular expression of the tests to skip")
    parser.add_argument("--controllers", choices=("ours", "workloads", "upstream"), default="ours")
    parser.add_argument("--report", type=Path, help="directory for logs and reports, default: temporary")
    options = parser.parse_args()
    if why := missing("e2e.test", "kube-controller-manager"):
        parser.error(why)
    report = options.report or Path(tempfile.mkdtemp(prefix="upstream-e2e-"))
    report.mkdir(parents=True, exist_ok=True)
    server = ServerProcess(report, *(["--no-controllers"] if options.controllers == "upstream" else []))
    server.start()
    try:
        with _components(server, options.controllers):
            log = asyncio.run(_run_tests(server, options.focus, options.skip, report))
    finally:
        server.stop()
    sys.stdout.write("\n".join((*_RESULT.findall(log), f"logs: {report}", "")))
    return 0 if "SUCCESS!" in log else 1


if __name__ == "__main__":
    sys.exit(main())
