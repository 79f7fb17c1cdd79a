"""`plimsoll driver cpu`: the CPU driver as a process, and questions about it.

Owns their arguments: the Go driver's, by its names, and ours. What they need is imported when they run, so
that the other commands start quickly.
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

from plimsoll.cli.options import Form, output_options, write_report
from plimsoll.errors import InputError

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_GO_FLAG = re.compile(r"-(?:[a-z][a-z-]+|v(?==))(?:=.*)?", re.DOTALL)
ADDRESS = click.option(
    "--address",
    default="",
    metavar="HOST:PORT",
    help="Where the driver answers. [default: of the running driver, else 127.0.0.1:8080]",
)


def _switch(name: str, help: str) -> Callable[[Any], Any]:
    """A flag that may have a value, as Go's may: `--flag`, `--flag=false`."""
    return click.option(name, is_flag=False, flag_value="true", metavar="[BOOL]", help=help)


class _CpuGroup(click.Group):
    """Runs the driver where no subcommand is named. Flags may have one dash, as Go's may."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = next((place for place, word in enumerate(args) if word in self.commands), len(args))
        own = [f"-{word}" if _GO_FLAG.fullmatch(word) else word for word in args[:first]]
        return super().parse_args(ctx, own + args[first:])


@click.group(name="cpu", cls=_CpuGroup, invoke_without_command=True)
@click.option("--config", type=_FILE, metavar="FILE", help="Settings, in YAML; flags go before it.")
@click.option("--kubeconfig", metavar="FILE", help="The cluster; else KUBECONFIG, or the pod's own account.")
@click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig.")
@click.option("--cpu-device-mode", metavar="MODE", help="grouped or individual. [default: grouped]")
@click.option(
    "--group-by",
    metavar="WHAT",
    help="numanode, socket, l3cache, pcieroot or machine. [default: numanode]",
)
@click.option("--reserved-cpus", metavar="CPUS", help="Never handed out and never shared, such as 0-1.")
@click.option("--hostname-override", metavar="NAME", help="The node's name. [default: the host's name]")
@click.option("--sysfs-overlay", metavar="FILE", help="Files that go before those of /sys, in YAML.")
@click.option(
    "--bind-address",
    metavar="HOST:PORT",
    help="Health and metrics; without a host on every address, '' for none. [default: :8080]",
)
@_switch("--expose-pcie-roots", "Publish PCIe roots; the API server must know attributes that are lists.")
@click.option(
    "--kubelet-root-dir", metavar="FOLDER", help="The kubelet's folder. [default: /var/lib/kubelet]"
)
@click.option("--reserved-cpu-count", metavar="N", help="Never handed out and never shared: so many.")
@click.option("--min-shared-cpus", metavar="N", help="So many can not be claimed. [default: 0]")
@click.option("--shared-cpus", metavar="CPUS", help="These can not be claimed.")
@_switch("--publish-node-allocatable-resource-mapping", "Devices say what they take from the node.")
@click.option("--node-allocatable-form", metavar="FORM", help="auto, off, 1.36 or 1.37. [default: auto]")
@click.option("--enforcement", metavar="HOW", help="auto, nri or cgroups. [default: auto]")
@_switch("--memory-nodes", "Containers get the memory nodes of their CPUs, too.")
@_switch("--lift-cfs-quota", "No CFS quota for containers that have only CPUs of claims.")
@_switch("--exclusive-plus-shared", "Containers with claims may use shared CPUs, too.")
@_switch("--share-across-pods", "Several pods may use a claim.")
@_switch("--requests-apart", "A container that names a request of a claim gets the CPUs of that one only.")
@click.option("--update-running", metavar="WHEN", help="Through NRI: auto, always or never. [default: auto]")
@_switch("--report-cpus", "The status of claims tells which CPUs they have. [default: true]")
@_switch("--fail-closed", "A container is not started if the driver ends meanwhile. [default: true]")
@click.option(
    "--host-root", metavar="FOLDER", envvar="HOST_ROOT", help="Holds the machine's sys; also HOST_ROOT."
)
@click.option("--cdi-dir", metavar="FOLDER", help="For CDI files. [default: /var/run/cdi]")
@click.option("--nri-socket", metavar="FILE", help="Of the runtime. [default: /var/run/nri/nri.sock]")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--v", "-v", "level", type=int, default=0, metavar="N", help="Log more from 4 on.")
@click.option("--vmodule", hidden=True, help="Accepted and not used.")
@click.pass_context
def cpu_commands(
    ctx: click.Context, /, context: str, log_format: str, level: int, vmodule: str | None, **given: Any
) -> None:
    """Run the CPU driver of a node: publish CPUs, hand them out, pin containers to them.

    \b
    plimsoll driver cpu --kubeconfig ./kubeconfig --config cpus.yaml
    plimsoll driver cpu plan --count 4
    """
    if ctx.invoked_subcommand is not None:
        if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
            raise click.UsageError("root flags cannot be combined with subcommands")
        return
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.drivers.cpu.process.run import serve_driver
    from plimsoll.drivers.cpu.process.settings import read_flags

    settings = read_flags(given)
    cluster = find_config(Path(settings.kubeconfig) if settings.kubeconfig else None, context=context)
    asyncio.run(serve_driver(cluster, settings, log_format=log_format, verbose=level >= 4))


@cpu_commands.command(name="gatherinfo")
@click.option("--stdout", is_flag=True, help="Write the report to standard output instead of a file.")
@click.option(
    "--output-dir", type=_FOLDER, metavar="FOLDER", help="For the file. [default: the temporary one]"
)
@ADDRESS
def run_gatherinfo(stdout: bool, output_dir: Path | None, address: str) -> None:
    """Write down what helps with a problem: CPUs, the driver's settings, what it says of itself."""
    if stdout and output_dir is not None:
        raise click.UsageError("--stdout and --output-dir cannot be used together")
    from plimsoll.drivers.cpu.process.gather_info import gather, render, write

    report = gather(parse_running, address)
    if stdout:
        click.echo(render(report), nl=False)
    else:
        click.echo(f"debug info collected: {write(report, output_dir)}")


@cpu_commands.group(name="introspect")
def introspect_commands() -> None:
    """What the driver has, without a driver that runs."""


@introspect_commands.command(name="metrics")
def run_introspect_metrics() -> None:
    """List the driver's metrics as JSON."""
    from plimsoll.drivers.cpu.process.metrics import descriptors

    click.echo(json.dumps(descriptors(), indent=2))


@cpu_commands.command(name="status")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing; the exit code is the answer.")
@ADDRESS
def run_status(quiet: bool, address: str) -> None:
    """Ask a running driver whether all is well; the exit code is 1 if not."""
    from plimsoll.drivers.cpu.process.gather_info import find_address
    from plimsoll.drivers.cpu.process.status_client import ask_driver, ask_health, show_status

    where = find_address(parse_running, address)
    try:
        health = ask_health(where)
    except InputError:
        if quiet:  # who asks so knows two answers only
            sys.exit(1)
        raise
    if not quiet:
        for line in (*health.text.splitlines(), *show_status(ask_driver(where))):
            click.echo(line)
    sys.exit(0 if health.well else 1)


@cpu_commands.command(name="explain")
@click.argument("uid", required=False, default="")
@click.option("--all", "every", is_flag=True, help="All claims.")
@ADDRESS
@output_options
def run_explain(uid: str, every: bool, address: str, form: Form) -> None:
    """Ask a running driver why a claim has the CPUs it has."""
    if bool(uid) == every:
        raise click.UsageError("name a claim by its UID, or give --all")
    from plimsoll.drivers.cpu.process.gather_info import find_address
    from plimsoll.drivers.cpu.process.status_client import ask_driver, explain_claims, select_claims
    from plimsoll.tools.report import StaticReport

    tree = ask_driver(find_address(parse_running, address))
    claims = select_claims(tree, uid)
    write_report(StaticReport(list(explain_claims(claims)), claims), form)


@cpu_commands.command(name="plan")
@click.option(
    "--count",
    "counts",
    type=click.IntRange(1, 100_000),
    multiple=True,
    required=True,
    metavar="N",
    help="So many CPUs; repeatable, one request after the other.",
)
@click.option(
    "--algorithm", type=click.Choice(["packed", "distributed"]), default="packed", show_default=True
)
@click.option("--sorting", type=click.Choice(["packed", "spread"]), default="packed", show_default=True)
@click.option(
    "--group-size", type=click.IntRange(1, 1024), default=1, show_default=True, help="CPUs kept together."
)
@click.option("--align-l3/--no-align-l3", default=True, help="Prefer whole L3 caches. [default: yes]")
@click.option("--full-cores", is_flag=True, help="Whole physical cores only.")
@click.option("--taken", default="", metavar="CPUS", help="Others have these, such as 0-1,8.")
@click.option("--within", default="", metavar="CPUS", help="Only of these.")
@click.option(
    "--sysfs-root",
    "root",
    type=_FOLDER,
    default=Path("/"),
    metavar="FOLDER",
    help="Holds another machine's sys.",
)
@click.option(
    "--sysfs-overlay", "overlay", type=_FILE, metavar="FILE", help="Files that go before those of /sys."
)
@click.option("--topology", "rows", type=_FILE, metavar="FILE", help="A report, or rows of CPUs, in YAML.")
@output_options
def run_plan(form: Form, **given: Any) -> None:
    """Say which CPUs requests would get, on this machine or on another one. Nothing is taken.

    The exit code is 1 if a request gets nothing.

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
    """The flags of a driver that runs, by its command line; what is not understood is left out."""
    made = cpu_commands.make_context(
        "cpu",
        list(arguments),
        resilient_parsing=True,
        help_option_names=["-h", "--help"],  # a command remembers them from the first time
        ignore_unknown_options=True,
        allow_interspersed_args=True,
    )
    return {name: value for name, value in made.params.items() if value is not None}
