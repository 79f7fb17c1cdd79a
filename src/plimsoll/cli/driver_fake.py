"""Command `plimsoll driver fake`: simulated devices from a file."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from plimsoll.api.forms import Form
from plimsoll.cli.options import DIRECTORY, FILE


@click.command(name="fake")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--kubeconfig", type=FILE, metavar="FILE", help="Kubeconfig file. [default: $KUBECONFIG, or in-cluster]"
)
@click.option("--context", default="", metavar="NAME", help="Kubeconfig context.")
@click.option(
    "--node", "nodes", multiple=True, metavar="NAME", help="Node name; repeatable. [default: host name]"
)
@click.option(
    "--root",
    type=DIRECTORY,
    default=Path("/var/lib/kubelet"),
    show_default=True,
    metavar="DIR",
    help="Root directory of the kubelet or node agent; for several nodes, the parent of their directories.",
)
@click.option(
    "--cdi",
    type=DIRECTORY,
    metavar="DIR",
    help="Directory for CDI files. [default: /var/run/cdi, or ROOT/cdi]",
)
@click.option("--publish-only", is_flag=True, help="Publish ResourceSlices only, for nodes without sockets.")
@click.option(
    "--control", type=FILE, metavar="FILE", help="Control file for fault injection; reloaded on change."
)
@click.option("--classes/--no-classes", default=True, help="Create DeviceClasses. [default: yes]")
@click.option(
    "--form",
    type=click.Choice(["1.36", "1.37"]),
    help="Wire form of node resources. [default: newest supported by the API server]",
)
@click.option("--withdraw", is_flag=True, help="Delete the ResourceSlices on exit.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log format."
)
@click.option("-v", "--verbose", is_flag=True, help="Enable debug logging.")
def run_fake(
    files: tuple[str, ...],
    kubeconfig: Path | None,
    context: str,
    nodes: tuple[str, ...],
    root: Path,
    cdi: Path | None,
    publish_only: bool,
    control: Path | None,
    classes: bool,
    form: str | None,
    withdraw: bool,
    log_format: str,
    verbose: bool,
) -> None:
    """Run a driver with simulated devices from files.

    FILE is a path or a built-in name: gpus, nics, accelerators.

    \b
    plimsoll driver fake gpus --node worker-1 --root /var/lib/plimsoll
    plimsoll driver fake ./devices.yaml --control ./control.yaml
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.drivers.fake.process import find_node_paths, find_plans, serve_fake
    from plimsoll.tools.device_file_check import require_valid_plan

    plans = find_plans(files)
    node_paths = find_node_paths(nodes, root, cdi, sockets=not publish_only)
    asyncio.run(
        serve_fake(
            find_config(kubeconfig, context=context),
            plans,
            node_paths,
            control=control,
            classes=classes,
            form=Form(form) if form else None,
            validate=require_valid_plan,
            withdraw=withdraw,
            log_format=log_format,
            verbose=verbose,
        )
    )
