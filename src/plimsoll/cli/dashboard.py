"""`plimsoll dashboard`: web dashboard of a cluster."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from plimsoll.cli.options import FILE, Where, ledger_options


@click.command(name="dashboard")
@ledger_options
@click.option(
    "--listen",
    default="127.0.0.1:6480",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to serve on; port 0 selects a free port.",
)
@click.option("--open", "opened", is_flag=True, help="Open the dashboard in a browser.")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Allowed Host header besides IP addresses and localhost. Repeatable.",
)
@click.option(
    "--token-file",
    type=FILE,
    metavar="FILE",
    help="Require the bearer token in this file.",
)
@click.option(
    "--history",
    type=FILE,
    metavar="FILE",
    help="File in which the history of the cluster is kept. [default: in memory]",
)
@click.option("--metrics-only", is_flag=True, help="Serve metrics, history and health, but no page.")
def run_dashboard(
    where: Where,
    listen: str,
    opened: bool,
    names: tuple[str, ...],
    token_file: Path | None,
    history: Path | None,
    metrics_only: bool,
) -> None:
    """Serve a read-only web dashboard of a cluster or dump.

    Shows all namespaces, or with -n only one (for users who may not list all of them).

    \b
    plimsoll dashboard
    plimsoll dashboard --kubeconfig ~/.kube/config --open
    plimsoll dump -o yaml > dump.yaml
    plimsoll dashboard -f dump.yaml
    """
    from plimsoll.api.gates import Gates
    from plimsoll.tools.dashboard.process import DashboardSettings, serve_dashboard

    source = where.source()
    if where.namespace and source.files:
        raise click.UsageError("-n: the dashboard shows all namespaces of a dump")
    if history is not None and source.files:
        raise click.UsageError("--history: a dump has no history")
    cluster_state = where.cluster_state() if source.files else None
    settings = DashboardSettings(
        listen=listen,
        names=names,
        token_file=token_file,
        cluster_state=cluster_state,
        cluster=None if cluster_state is not None else source.config,
        gates=Gates.parse(where.gates),
        namespace=where.namespace,
        assume_mapping=where.assume_mapping,
        history=history,
        page=not metrics_only,
    )

    def ready(url: str) -> None:
        click.echo(f"the dashboard is at {url}")
        if opened:
            click.launch(url)

    asyncio.run(serve_dashboard(settings, ready, lambda text: click.echo(text, err=True)))
