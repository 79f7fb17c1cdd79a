"""`plimsoll charge`: show kube-scheduler what the claims of its pods charge."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from plimsoll.cli.options import DIRECTORY, FILE, connection_options


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
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Elect a leader among replicas. [default: no]"
)
@click.option(
    "--lease",
    metavar="[NAMESPACE/]NAME",
    help="Leader election Lease. [default: kube-system/plimsoll-charge]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address for health and metrics; '' disables it. [default: 127.0.0.1:10261]",
)
@click.option(
    "--cert-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Serve HTTPS with tls.crt and tls.key of DIR, self-signed if missing; metrics need a token.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format. [default: text]")
@click.option("-v", "--verbose", is_flag=True, help="Enable debug logging.")
def run_charge(
    kubeconfig: Path | None,
    context: str,
    config: Path | None,
    namespaces: tuple[str, ...],
    leader_elect: bool | None,
    lease: str | None,
    listen: str | None,
    cert_dir: Path | None,
    log_format: str | None,
    verbose: bool,
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
        leader_elect=leader_elect,
        lease=lease,
        listen=LISTEN if listen is None and config is None else listen,
        cert_dir=cert_dir,
        log_format=log_format,
        verbose=verbose or None,
    )
    cluster = find_config(kubeconfig or settings.client.kubeconfig or None, context=context)
    asyncio.run(serve_charges(cluster, settings, namespaces))
