"""`plimsoll up`: run a cluster on this machine."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from plimsoll.api.gates import Gates
from plimsoll.cli.options import FILE, data_dir_option, feature_gates_option


@click.command(name="up")
@data_dir_option(
    "Directory for cluster state, certificates and logs.", default=Path("plimsoll-data"), show_default=True
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Manifests or a cluster dump: YAML or JSON file, directory or archive (- for standard input). "
    "Repeatable.",
)
@click.option("--demo", is_flag=True, help="Load the demo cluster and run the demo.")
@click.option(
    "--once",
    is_flag=True,
    help="Exit when everything is ready and the demo is done (exit code 1 on failure).",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address of the API server; port 0 selects a free port. [default: 127.0.0.1:6443, or a free port]",
)
@click.option(
    "--dashboard",
    metavar="HOST:PORT",
    help="Address of the dashboard; '' disables it. [default: 127.0.0.1:6480, or a free port]",
)
@click.option("--name", default="", metavar="NAME", help="Node name. [default: the host name]")
@click.option(
    "--runtime",
    type=click.Choice(["process", "none"]),
    default="process",
    show_default=True,
    help="Container runtime: local processes, or none (simulated).",
)
@click.option(
    "--unsupported-security-context",
    "on_unsupported_security",
    type=click.Choice(["refuse", "warn"]),
    default="refuse",
    show_default=True,
    help="Action for a container whose security context the process runtime cannot fully apply: "
    "refuse to start it, or start it and warn.",
)
@click.option(
    "--nodes",
    type=click.IntRange(0, 5000),
    default=0,
    metavar="N",
    help="Number of simulated nodes to add (sim-0, sim-1, ...).",
)
@click.option(
    "--simulated-label",
    "simulated_labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of the simulated nodes. Repeatable.",
)
@click.option(
    "--simulated-taint",
    "simulated_taints",
    multiple=True,
    metavar="KEY=VALUE:EFFECT",
    help="Taint of the simulated nodes, so that only pods that tolerate it are placed there. Repeatable.",
)
@click.option(
    "--stages",
    type=FILE,
    metavar="FILE",
    help="File with the run times and exit codes of simulated pods.",
)
@click.option("--driver/--no-driver", default=True, help="Run the CPU driver (dra.cpu). [default: yes]")
@click.option(
    "--driver-config",
    type=FILE,
    metavar="FILE",
    help="CPU driver configuration file.",
)
@click.option(
    "--devices",
    multiple=True,
    metavar="FILE",
    help="Simulated devices on all nodes: a device file, or gpus, nics, accelerators. Repeatable.",
)
@click.option(
    "--driver-listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Address for health and metrics of the CPU driver; '' disables it.",
)
@click.option(
    "--leave-running", is_flag=True, help="Keep containers running on exit; the next start adopts them."
)
@feature_gates_option()
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log format."
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Enable debug logging, also to the terminal (otherwise only to DIR/log).",
)
def run_up(
    listen: str | None,
    dashboard: str | None,
    gates: str,
    driver_config: Path | None,
    simulated_labels: tuple[str, ...],
    simulated_taints: tuple[str, ...],
    stages: Path | None,
    **given: Any,
) -> None:
    """Run a cluster on this machine: API server, scheduler, a node, the CPU driver, and a dashboard.

    All state is kept in one directory: the same command resumes the cluster. Stop it with Ctrl-C.

    \b
    plimsoll up --demo
    plimsoll up --nodes 20 --devices gpus --devices nics
    plimsoll up -f manifests/
    plimsoll dump --context prod | plimsoll up -f -
    kubectl --kubeconfig plimsoll-data/kubeconfig get nodes,resourceslices
    """
    from plimsoll.cli.options import is_colored
    from plimsoll.common.addresses import read_address
    from plimsoll.common.config_file import read_flag
    from plimsoll.drivers.cpu.config_file import read_settings
    from plimsoll.node.machine.file_values import parse_taint, read_labels
    from plimsoll.node.runtime.stages import read_stages_file
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
        cpu=read_settings(driver_config),
        stages=() if stages is None else read_stages_file(stages),
        simulated_labels=read_flag(
            dict(text.partition("=")[::2] for text in simulated_labels), read_labels, "--simulated-label"
        ),
        simulated_taints=tuple(
            read_flag(text, parse_taint, "--simulated-taint") for text in simulated_taints
        ),
        **given,
    )
    console = Console(paint=Paint(is_colored("auto")), live=sys.stdout.isatty())
    if not asyncio.run(serve_up(settings, console)):
        sys.exit(1)
