"""`plimsoll up`: a whole cluster on this machine.

Owns its arguments. What it needs is imported when it runs, so that the other commands start quickly.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
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
    "--listen", default="127.0.0.1:6443", show_default=True, metavar="HOST:PORT", help="Port 0: any free one."
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
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run_up(listen: str, gates: str, driver_config: Path | None, **given: Any) -> None:
    """Run a cluster on this machine: API server, scheduler, a node, and the CPU driver.

    \b
    plimsoll up
    kubectl --kubeconfig plimsoll-data/kubeconfig get nodes,resourceslices
    """
    from plimsoll.run.addresses import read_address
    from plimsoll.run.driver.settings import read_cpu_settings
    from plimsoll.run.up import UpSettings, serve_up

    host, port = read_address(listen)
    settings = UpSettings(
        host=host, port=port, gates=Gates.parse(gates), cpu=read_cpu_settings(driver_config), **given
    )
    asyncio.run(serve_up(settings, click.echo))
