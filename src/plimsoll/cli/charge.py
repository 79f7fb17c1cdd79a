"""`plimsoll charge`: show kube-scheduler what the claims of its pods charge."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from plimsoll.cli.options import FILE, connection_options, process_options


@click.command(name="charge")
@connection_options
@click.option(
    "--config",
    type=FILE,
    metavar="FILE",
    help="Configuration file of the scheduler (YAML); flags override it.",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Charge pods in this namespace only. Repeatable. [default: all namespaces]",
)
@process_options("plimsoll-charge", "127.0.0.1:10261")
def run_charge(
    kubeconfig: Path | None,
    context: str,
    config: Path | None,
    namespaces: tuple[str, ...],
    listen: str | None,
    **settings_given: Any,
) -> None:
    """Charge nodes for the claims of pods that kube-scheduler places.

    For API servers without DRANodeAllocatableResources. Each pod whose claims have devices of a class with
    the annotation plimsoll.dev/node-allocatable gets a placeholder pod on its node, which requests what the
    claims charge. Pods that `plimsoll scheduler` places have one already.

    \b
    plimsoll charge --kubeconfig ./kubeconfig
    plimsoll charge --kubeconfig ./kubeconfig -n training -n inference
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.scheduler.process.charge import LISTEN, serve_charges
    from plimsoll.scheduler.process.configuration import override, read_settings

    settings = override(
        read_settings(config, None, lambda text: click.echo(f"warning: {text}", err=True)),
        listen=LISTEN if listen is None and config is None else listen,
        **settings_given,
    )
    cluster = find_config(kubeconfig or settings.client.kubeconfig or None, context=context)
    asyncio.run(serve_charges(cluster, settings, namespaces))
