"""`plimsoll scheduler`: run the scheduler."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from plimsoll.cli.options import DIRECTORY, FILE, connection_options, feature_gates_option

_WIRE_FORMS = ("auto", "1.36", "1.37", "draft", "annotation")


@click.command(name="scheduler")
@connection_options
@click.option(
    "--config",
    type=FILE,
    metavar="FILE",
    help="Configuration file (YAML), our own or a KubeSchedulerConfiguration; flags override it.",
)
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Schedule pods with this schedulerName. Repeatable. [default: plimsoll]",
)
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Elect a leader among replicas. [default: no]"
)
@click.option(
    "--lease",
    metavar="[NAMESPACE/]NAME",
    help="Leader election Lease. [default: kube-system/plimsoll-scheduler]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address for health and metrics; '' disables it. [default: 127.0.0.1:10259]",
)
@click.option(
    "--cert-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Serve HTTPS with tls.crt and tls.key of DIR, self-signed if missing; metrics need a token.",
)
@click.option("--debug/--no-debug", default=None, help="Serve /debug/queue and /debug/ledger.")
@click.option(
    "--binds",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Maximum number of concurrent bindings. [default: 128]",
)
@click.option(
    "--wire-form", type=click.Choice(_WIRE_FORMS), help="Wire form of claim charges. [default: auto]"
)
@feature_gates_option(None)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format. [default: text]")
@click.option(
    "--dry-run/--no-dry-run", default=None, help="Print scheduling decisions without writing them, then exit."
)
@click.option(
    "--shadow/--no-shadow",
    default=None,
    help="Follow another scheduler without writing, and report the pods that would be scheduled differently.",
)
@click.option(
    "--report",
    type=FILE,
    metavar="FILE",
    help="Keep the results of --shadow: JSON in FILE, text in FILE.txt.",
)
@click.option("-v", "--verbose", is_flag=True, help="Enable debug logging.")
def run_scheduler(
    kubeconfig: Path | None,
    context: str,
    config: Path | None,
    names: tuple[str, ...],
    leader_elect: bool | None,
    lease: str | None,
    listen: str | None,
    cert_dir: Path | None,
    debug: bool | None,
    binds: int | None,
    wire_form: str | None,
    gates: str | None,
    log_format: str | None,
    dry_run: bool | None,
    shadow: bool | None,
    report: Path | None,
    verbose: bool,
) -> None:
    """Run the scheduler: pod requests and DRA claims on one ledger.

    A pod selects its scheduler by spec.schedulerName (default: default-scheduler).

    \b
    plimsoll scheduler --kubeconfig ./kubeconfig --scheduler-name default-scheduler
    plimsoll scheduler --kubeconfig ./kubeconfig --dry-run
    plimsoll scheduler --kubeconfig ./kubeconfig --shadow --report shadow.json
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.scheduler.process.configuration import override, read_settings
    from plimsoll.scheduler.process.dry_run import run_dry
    from plimsoll.scheduler.process.run import serve_scheduler

    settings = override(
        read_settings(config, gates, lambda text: click.echo(f"warning: {text}", err=True)),
        names=names,
        leader_elect=leader_elect,
        lease=lease,
        listen=listen,
        cert_dir=cert_dir,
        debug=debug,
        binds=binds,
        wire_form=wire_form,
        gates=gates,
        log_format=log_format,
        dry_run=dry_run,
        shadow=shadow,
        report=report,
        verbose=verbose or None,
    )
    cluster = find_config(kubeconfig or settings.client.kubeconfig or None, context=context)
    if settings.shadow:
        from plimsoll.scheduler.process.shadow.run import serve_shadow

        asyncio.run(serve_shadow(cluster, settings.shadowing(), click.echo))
        return
    if settings.dry_run:
        sys.exit(0 if asyncio.run(run_dry(cluster, settings, click.echo)) else 1)
    asyncio.run(serve_scheduler(cluster, settings))
