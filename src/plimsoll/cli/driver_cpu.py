"""Command group `plimsoll driver cpu`: the CPU driver and its diagnostic subcommands.

Flags that the Go driver has as well have its names.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from plimsoll.cli.options import DIRECTORY, FILE, OutputFormat, output_options, write_report
from plimsoll.errors import InputError

_GO_FLAG = re.compile(r"-(?:[a-z][a-z-]+|v(?==))(?:=.*)?", re.DOTALL)
ADDRESS = click.option(
    "--address",
    default="",
    metavar="HOST:PORT",
    help="Address of the driver. [default: of the running driver, or 127.0.0.1:8080]",
)


def _switch(name: str, help: str) -> Callable[[Any], Any]:
    """Define a boolean flag in Go's syntax: `--flag`, `--flag=false`."""
    return click.option(name, is_flag=False, flag_value="true", metavar="[BOOL]", help=help)


class _CpuGroup(click.Group):
    """Group that runs the driver if no subcommand is given. Flags may have one dash, as in Go."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = next((index for index, word in enumerate(args) if word in self.commands), len(args))
        own = [f"-{word}" if _GO_FLAG.fullmatch(word) else word for word in args[:first]]
        return super().parse_args(ctx, own + args[first:])


@click.group(name="cpu", cls=_CpuGroup, invoke_without_command=True)
@click.option("--config", type=FILE, metavar="FILE", help="Configuration file (YAML); flags override it.")
@click.option("--kubeconfig", metavar="FILE", help="Kubeconfig file. [default: $KUBECONFIG, or in-cluster]")
@click.option("--context", default="", metavar="NAME", help="Kubeconfig context.")
@click.option(
    "--cpu-device-mode", metavar="MODE", help="Device mode: grouped or individual. [default: grouped]"
)
@click.option(
    "--group-by",
    metavar="UNIT",
    help="Grouping: numanode, socket, l3cache, pcieroot or machine. [default: numanode]",
)
@click.option("--reserved-cpus", metavar="CPUS", help="CPUs reserved for the system, such as 0-1.")
@click.option("--hostname-override", metavar="NAME", help="Node name. [default: host name]")
@click.option("--sysfs-overlay", metavar="FILE", help="YAML file that overrides files of /sys.")
@click.option(
    "--bind-address",
    metavar="HOST:PORT",
    help="Address of health and metrics; '' disables them. [default: 127.0.0.1:8080]",
)
@click.option(
    "--cert-dir",
    metavar="DIR",
    help="Serve HTTPS with tls.crt and tls.key of DIR, self-signed if missing; metrics need a token.",
)
@_switch("--expose-pcie-roots", "Publish PCIe roots; requires list attributes in the API server.")
@click.option("--kubelet-root-dir", metavar="DIR", help="Kubelet root directory. [default: /var/lib/kubelet]")
@click.option("--reserved-cpu-count", metavar="N", help="Number of CPUs reserved for the system.")
@click.option(
    "--min-shared-cpus", metavar="N", help="Minimum size of the shared pool, or auto. [default: auto]"
)
@click.option("--shared-cpus", metavar="CPUS", help="CPUs that always stay in the shared pool.")
@_switch("--publish-node-allocatable-resource-mapping", "Publish the node resources that devices consume.")
@click.option(
    "--node-allocatable-form",
    metavar="FORM",
    help="Wire form of node resources: auto, off, 1.36 or 1.37. [default: auto]",
)
@click.option(
    "--enforcement", metavar="HOW", help="Pin containers through: auto, nri or cgroups. [default: auto]"
)
@_switch("--memory-nodes", "Also set the memory nodes of containers to those of their CPUs.")
@_switch("--lift-cfs-quota", "Remove the CFS quota of containers with exclusive CPUs only.")
@_switch("--exclusive-plus-shared", "Add the shared pool to containers with exclusive CPUs.")
@_switch("--share-across-pods", "Allow several pods to share a claim.")
@_switch("--share-across-containers", "Allow containers of a pod to share a claim. [default: true]")
@_switch("--allow-empty-shared-pool", "Let claims take the last CPU that containers share.")
@_switch("--requests-apart", "Give a container that names one request of a claim only its CPUs.")
@click.option(
    "--update-running",
    metavar="WHEN",
    help="Update running containers through NRI: auto, always or never. [default: auto]",
)
@_switch("--report-cpus", "Publish assigned CPUs in the claim status. [default: true]")
@_switch("--fail-closed", "Reject new containers if the driver stops meanwhile. [default: true]")
@click.option(
    "--host-root", metavar="DIR", envvar="HOST_ROOT", help="Directory that contains the host's sys."
)
@click.option("--cdi-dir", metavar="DIR", help="Directory for CDI files. [default: /var/run/cdi]")
@click.option(
    "--nri-socket", metavar="FILE", help="NRI socket of the runtime. [default: /var/run/nri/nri.sock]"
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log format."
)
@click.option(
    "--v",
    "-v",
    "level",
    type=int,
    default=0,
    metavar="N",
    help="Log level; 4 and above enable debug logging.",
)
@click.option("--vmodule", hidden=True, help="Ignored; accepted for compatibility.")
@click.pass_context
def cpu_commands(
    ctx: click.Context, /, context: str, log_format: str, level: int, vmodule: str | None, **given: Any
) -> None:
    """Run the CPU driver of a node: publish CPUs, assign them to claims, pin containers.

    \b
    plimsoll driver cpu --kubeconfig ./kubeconfig --config cpus.yaml
    plimsoll driver cpu plan --count 4
    """
    if ctx.invoked_subcommand is not None:
        if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
            raise click.UsageError("root flags cannot be combined with subcommands")
        return
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.drivers.cpu.config_file import read_flags
    from plimsoll.drivers.cpu.process.run import serve_driver

    settings = read_flags(given)
    cluster = find_config(Path(settings.kubeconfig) if settings.kubeconfig else None, context=context)
    asyncio.run(serve_driver(cluster, settings, log_format=log_format, verbose=level >= 4))


@cpu_commands.command(name="gatherinfo")
@click.option("--stdout", is_flag=True, help="Write the report to standard output instead of a file.")
@click.option(
    "--output-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Directory for the report. [default: the temporary directory]",
)
@ADDRESS
def run_gatherinfo(stdout: bool, output_dir: Path | None, address: str) -> None:
    """Collect debug information: CPU topology, configuration and state of the driver."""
    if stdout and output_dir is not None:
        raise click.UsageError("--stdout and --output-dir cannot be used together")
    from plimsoll.drivers.cpu.debug_report import render_report, write_report
    from plimsoll.drivers.cpu.process.gather_info import gather

    report = gather(parse_running, address)
    if stdout:
        click.echo(render_report(report), nl=False)
    else:
        click.echo(f"debug info collected: {write_report(report, output_dir)}")


@cpu_commands.group(name="introspect")
def introspect_commands() -> None:
    """Show static information about the driver."""


@introspect_commands.command(name="metrics")
def run_introspect_metrics() -> None:
    """List the driver's metrics as JSON."""
    from plimsoll.drivers.cpu.process.metrics import descriptors

    click.echo(json.dumps(descriptors(), indent=2))


@cpu_commands.command(name="status")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; only set the exit code.")
@ADDRESS
def run_status(quiet: bool, address: str) -> None:
    """Show the health of a running driver; the exit code is 1 if it is unhealthy."""
    from plimsoll.drivers.cpu.process.gather_info import find_address
    from plimsoll.drivers.cpu.process.status_client import query_driver, query_health, show_status

    where = find_address(parse_running, address)
    try:
        health = query_health(where)
    except InputError:
        if quiet:  # the exit code distinguishes healthy from everything else
            sys.exit(1)
        raise
    if not quiet:
        for line in (*health.text.splitlines(), *show_status(query_driver(where))):
            click.echo(line)
    sys.exit(0 if health.well else 1)


@cpu_commands.command(name="explain")
@click.argument("uid", required=False, default="")
@click.option("--all", "every", is_flag=True, help="All claims.")
@ADDRESS
@output_options
def run_explain(uid: str, every: bool, address: str, form: OutputFormat) -> None:
    """Explain why claims of a running driver have their CPUs."""
    if bool(uid) == every:
        raise click.UsageError("specify a claim UID or --all")
    from plimsoll.drivers.cpu.process.gather_info import find_address
    from plimsoll.drivers.cpu.process.status_client import explain_claims, query_driver, select_claims
    from plimsoll.tools.report import StaticReport

    tree = query_driver(find_address(parse_running, address))
    claims = select_claims(tree, uid)
    write_report(StaticReport(list(explain_claims(claims)), claims), form)


@cpu_commands.command(name="forget")
@click.argument("claim")
@click.option("--force", is_flag=True, help="Also release a claim that the cluster has allocated.")
@click.option(
    "--kubelet-root-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Kubelet root directory of the driver. [default: of the running driver, or /var/lib/kubelet]",
)
def run_forget(claim: str, force: bool, kubelet_root_dir: Path | None) -> None:
    """Release the CPUs of a claim that will not be unprepared.

    CLAIM is a UID, NAMESPACE/NAME or NAME. A claim that a container uses is never released.

    \b
    plimsoll driver cpu forget 1b4e28ba-2fa1-11d2-883f-0016d3cca427
    """
    from plimsoll.drivers.cpu.process.control_client import call_driver
    from plimsoll.drivers.cpu.process.gather_info import find_plugin_dir

    directory = find_plugin_dir(parse_running, kubelet_root_dir)
    answer = call_driver(directory, "/forget", {"claim": claim, "force": force})
    name = f"{answer['namespace']}/{answer['name']} " if answer["name"] else ""
    click.echo(f"claim {name}({answer['uid']}) released: CPUs {answer['cpus']}")


@cpu_commands.command(name="plan")
@click.option(
    "--count",
    "counts",
    type=click.IntRange(1, 100_000),
    multiple=True,
    required=True,
    metavar="N",
    help="Number of CPUs; repeatable for consecutive requests.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["packed", "distributed"]),
    default="packed",
    show_default=True,
    help="CPU allocation algorithm.",
)
@click.option(
    "--sorting",
    type=click.Choice(["packed", "spread"]),
    default="packed",
    show_default=True,
    help="Order in which CPUs are tried.",
)
@click.option(
    "--group-size",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Size of the CPU groups that are kept together.",
)
@click.option("--align-l3/--no-align-l3", default=True, help="Prefer CPUs of full L3 caches. [default: yes]")
@click.option("--full-cores", is_flag=True, help="Assign full physical cores only.")
@click.option("--align-by-socket", is_flag=True, help="Distributed: prefer NUMA nodes of one socket.")
@click.option("--taken", default="", metavar="CPUS", help="CPUs that are already assigned, such as 0-1,8.")
@click.option("--within", default="", metavar="CPUS", help="Restrict the assignment to these CPUs.")
@click.option(
    "--host-root",
    "--sysfs-root",
    "root",
    type=DIRECTORY,
    default=Path("/"),
    metavar="DIR",
    help="Directory that contains the sys of a machine, as for the driver. [default: /]",
)
@click.option(
    "--sysfs-overlay", "overlay", type=FILE, metavar="FILE", help="YAML file that overrides files of /sys."
)
@click.option(
    "--topology", "rows", type=FILE, metavar="FILE", help="Topology from a report or a YAML list of CPUs."
)
@output_options
def run_plan(form: OutputFormat, **given: Any) -> None:
    """Show which CPUs requests would get, on this machine or another one. Nothing is assigned.

    The exit code is 1 if a request fails.

    \b
    plimsoll driver cpu plan --count 4 --taken 0-1
    plimsoll driver cpu plan --count 6 --algorithm distributed --topology report.yaml
    """
    from plimsoll.drivers.cpu.process.plan import make_request, plan
    from plimsoll.tools.report import StaticReport

    answers = plan(make_request(**given))
    lines = [
        line
        for answer in answers
        for line in (
            f"{answer.count}: {answer.refusal or answer.cpus}",
            *(f"  {each}" for each in answer.lines),
        )
    ]
    write_report(StaticReport(lines, [answer.tree() for answer in answers]), form)
    sys.exit(1 if any(answer.refusal for answer in answers) else 0)


def parse_running(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Parse the command line of a running driver; unknown flags are ignored."""
    made = cpu_commands.make_context(
        "cpu",
        list(arguments),
        resilient_parsing=True,
        help_option_names=["-h", "--help"],  # the command object keeps them from its first use
        ignore_unknown_options=True,
        allow_interspersed_args=True,
    )
    return {name: value for name, value in made.params.items() if value is not None}
