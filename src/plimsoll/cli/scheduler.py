"""`plimsoll scheduler`: run the scheduler."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from plimsoll.cli.options import FILE, connection_options, feature_gates_option, process_options

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
@process_options("plimsoll-scheduler", "127.0.0.1:10259")
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
def run_scheduler(
    kubeconfig: Path | None,
    context: str,
    config: Path | None,
    names: tuple[str, ...],
    debug: bool | None,
    binds: int | None,
    wire_form: str | None,
    gates: str | None,
    dry_run: bool | None,
    shadow: bool | None,
    report: Path | None,
    **settings_given: Any,
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
        debug=debug,
        binds=binds,
        wire_form=wire_form,
        gates=gates,
        dry_run=dry_run,
        shadow=shadow,
        report=report,
        **settings_given,
    )
    cluster = find_config(kubeconfig or settings.client.kubeconfig or None, context=context)
    if settings.shadow:
        from plimsoll.scheduler.process.shadow.run import serve_shadow

        asyncio.run(serve_shadow(cluster, settings.shadowing(), click.echo))
        return
    if settings.dry_run:
        sys.exit(0 if asyncio.run(run_dry(cluster, settings, click.echo)) else 1)
    asyncio.run(serve_scheduler(cluster, settings))
