"""`plimsoll driver fake`: devices of a file, for clusters without hardware.

Owns its arguments. What it needs is imported when it runs, so that the other commands start quickly.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from plimsoll.api.forms import Form

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(name="fake")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--kubeconfig", type=_FILE, metavar="FILE", help="The cluster; else KUBECONFIG, or the pod's own account."
)
@click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig.")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Repeatable. [default: the host's name]")
@click.option(
    "--root",
    type=_FOLDER,
    default=Path("/var/lib/kubelet"),
    show_default=True,
    metavar="FOLDER",
    help="The node's, with the sockets; of several nodes, the folder with those of their names.",
)
@click.option(
    "--cdi", type=_FOLDER, metavar="FOLDER", help="Of CDI files. [default: the kubelet's, or ROOT/cdi]"
)
@click.option(
    "--publish-only", is_flag=True, help="The nodes have no sockets: publish devices, nothing else."
)
@click.option("--control", type=_FILE, metavar="FILE", help="How drivers behave; read again when it changes.")
@click.option("--classes/--no-classes", default=True, help="Make DeviceClasses. [default: yes]")
@click.option(
    "--form",
    type=click.Choice(["1.36", "1.37"]),
    help="Of node resources. [default: the newest that the API server knows]",
)
@click.option("--withdraw", is_flag=True, help="Take the devices away at the end.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
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
    """Offer devices that stand in files, and hand them out as a driver does.

    A FILE is a path, or one of those that come along: gpus, nics, accelerators.

    \b
    plimsoll driver fake gpus --node worker-1 --root /var/lib/plimsoll
    plimsoll driver fake ./devices.yaml --control ./control.yaml
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.drivers.fake.process import find_places, find_plans, serve_fake
    from plimsoll.tools.device_file_check import require_valid_plan

    plans = find_plans(files)
    places = find_places(nodes, root, cdi, sockets=not publish_only)
    asyncio.run(
        serve_fake(
            find_config(kubeconfig, context=context),
            plans,
            places,
            control=control,
            classes=classes,
            form=Form(form) if form else None,
            validate=require_valid_plan,
            withdraw=withdraw,
            log_format=log_format,
            verbose=verbose,
        )
    )
