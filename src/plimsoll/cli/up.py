"""`plimsoll up`: a whole cluster on this machine.

Owns its arguments. What it needs is imported when it runs, so that the other commands start quickly.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from plimsoll.api.gates import Gates

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(name="up")
@click.option(
    "--data",
    type=_FOLDER,
    default=Path("plimsoll-data"),
    show_default=True,
    metavar="FOLDER",
    help="Everything that is kept.",
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Apply manifests, or bring up a dump: YAML or JSON file, folder or archive; - is standard input. "
    "Repeatable.",
)
@click.option("--demo", is_flag=True, help="Load a small cluster of many kinds, and tell its story.")
@click.option("--once", is_flag=True, help="End when all is ready and the story is told; 1 if it went wrong.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Of the API server; port 0 is any free one. "
    "[default: 127.0.0.1:6443, or any free port if that is taken]",
)
@click.option(
    "--dashboard",
    metavar="HOST:PORT",
    help="Of the dashboard; '' for none. [default: 127.0.0.1:6480, or any free port if that is taken]",
)
@click.option("--name", default="", metavar="NAME", help="The node's name. [default: the host's name]")
@click.option(
    "--runtime",
    type=click.Choice(["process", "none"]),
    default="process",
    show_default=True,
    help="What runs containers on it: local processes, or nothing.",
)
@click.option(
    "--unsupported-security-context",
    "on_unsupported_security",
    type=click.Choice(["refuse", "warn"]),
    default="refuse",
    show_default=True,
    help="What to do with a container whose security context the process runtime cannot apply in full: "
    "refuse to start it, or start it and warn.",
)
@click.option(
    "--nodes",
    type=click.IntRange(0, 5000),
    default=0,
    metavar="N",
    help="So many simulated nodes more: sim-0 and on.",
)
@click.option("--driver/--no-driver", default=True, help="Hand out CPUs: the driver dra.cpu. [default: yes]")
@click.option(
    "--driver-config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Its settings."
)
@click.option(
    "--devices",
    multiple=True,
    metavar="FILE",
    help="Devices of a file, on all nodes: a path, or gpus, nics, accelerators; repeatable.",
)
@click.option(
    "--driver-listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Its health and metrics; '' for none.",
)
@click.option(
    "--leave-running", is_flag=True, help="Containers go on when all ends, and are taken over later."
)
@click.option("--feature-gates", "gates", default="", metavar="NAME=BOOL,...", help="All are on.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Log more, and to the terminal, not only to FOLDER/log.")
def run_up(
    listen: str | None,
    dashboard: str | None,
    gates: str,
    driver_config: Path | None,
    **given: Any,
) -> None:
    """Run a cluster on this machine: API server, scheduler, a node, the CPU driver, and a dashboard.

    Everything is kept in a folder: the same command brings it back as it was. Ctrl-C ends it.

    \b
    plimsoll up --demo
    plimsoll up --nodes 20 --devices gpus --devices nics
    plimsoll up -f manifests/
    kubectl get nodes,pods,resourceslices,resourceclaims,deviceclasses -A -o yaml | plimsoll up -f -
    kubectl --kubeconfig plimsoll-data/kubeconfig get nodes,resourceslices
    """
    from plimsoll.cli.options import is_colourful
    from plimsoll.common.addresses import read_address
    from plimsoll.drivers.cpu.process.settings import read_cpu_settings
    from plimsoll.tools.colors import Paint
    from plimsoll.up.console import Console
    from plimsoll.up.serve import serve_up
    from plimsoll.up.settings import UpSettings

    host, port = ("127.0.0.1", None) if listen is None else read_address(listen)
    page: tuple[str, int | None] | None = ("127.0.0.1", None)
    if dashboard is not None:
        page = read_address(dashboard, "--dashboard", "127.0.0.1:6480") if dashboard else None
    settings = UpSettings(
        host=host,
        port=port,
        dashboard=page,
        gates=Gates.parse(gates),
        cpu=read_cpu_settings(driver_config),
        **given,
    )
    console = Console(paint=Paint(is_colourful("auto")), live=sys.stdout.isatty())
    if not asyncio.run(serve_up(settings, console)):
        sys.exit(1)
