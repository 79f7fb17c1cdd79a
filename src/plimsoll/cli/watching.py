"""`--watch` of query commands: the report is written again whenever the cluster changes.

On a terminal each report replaces the previous one, elsewhere it follows it.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from plimsoll.cli.options import OutputFormat, Progress, Where, write_report

if TYPE_CHECKING:
    from plimsoll.tools.cluster_state import ClusterState
    from plimsoll.tools.report import Report

F = TypeVar("F", bound=Callable[..., Any])


def watch_option(command: F) -> F:
    """Add `-w` to a command, as `watch`."""
    text = "Watch for changes until interrupted."
    return click.option("-w", "--watch", is_flag=True, help=text)(command)


def watch_cluster(
    where: Where,
    form: OutputFormat,
    title: str,
    report: Callable[[ClusterState], Report],
    pace: float | None = None,
) -> None:
    """Write a report now and after every change, until Ctrl-C; at most once in `pace` seconds."""
    from plimsoll.errors import ConfigError

    if where.files:
        raise ConfigError("-w and -f cannot be combined: a dump does not change")
    try:
        asyncio.run(_follow(where, form, title, report, pace))
    except KeyboardInterrupt:
        click.echo()


async def _follow(
    where: Where,
    form: OutputFormat,
    title: str,
    report: Callable[[ClusterState], Report],
    pace: float | None,
) -> None:
    from plimsoll.api.gates import Gates
    from plimsoll.client import Client
    from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
    from plimsoll.tools.colors import printable
    from plimsoll.tools.top.watch import PACE, follow

    source = where.source()
    assert source.config is not None
    cluster_state = ClusterState(
        ClusterObjects(),
        Gates.parse(where.gates),
        origin=source.origin,
        assume_mapping=where.assume_mapping,
    )
    writer = ReportWriter(form, f"{title}, {source.origin}; Ctrl-C ends")
    progress = Progress()
    progress.tick("reading the cluster", 0, 0)

    def show() -> None:
        progress.__exit__()
        writer.write(report(cluster_state))

    def on_error(why: str) -> None:
        writer.report_problem(printable(why))

    async with Client.connect(source.config) as client:
        await follow(
            client,
            cluster_state,
            show,
            namespace=source.namespace,
            on_error=on_error,
            pace=PACE if pace is None else pace,
        )


class ReportWriter:
    """Writer of successive reports: on a terminal each replaces the previous one, elsewhere it follows it."""

    def __init__(self, form: OutputFormat, title: str) -> None:
        self._form = form
        self._title = title
        self._over = sys.stdout.isatty() and form.output in ("table", "wide")
        self._started = False
        self._last: Report | None = None
        self._trouble = ""

    def report_problem(self, why: str) -> None:
        """Report why the output may be outdated; "" clears the message."""
        self._trouble = why
        if self._over and self._last is not None:
            self.write(self._last)
        else:
            click.echo(f"note: connection lost: {why}" if why else "note: connected again", err=True)

    def write(self, report: Report) -> None:
        self._last = report
        form = self._form
        time_of_day = datetime.now().strftime("%H:%M:%S")
        if form.output == "json":
            click.echo(json.dumps(report.as_json(), separators=(",", ":")))
        elif self._over:
            paint = form.paint
            rows = map(paint.sanitize, report.lines(paint, wide=form.output == "wide"))
            lines = [f"{time_of_day}  {self._title}", self._warning(), *rows]
            height = shutil.get_terminal_size((100, 40)).lines
            cut = lines[: height - 1]
            clear = "\x1b[H" if self._started else "\x1b[2J\x1b[H"
            click.echo(clear + "\x1b[K\n".join(cut) + "\x1b[K\x1b[J", color=True)
        else:
            if form.output == "yaml":
                click.echo("---")
            elif self._started:
                click.echo(f"--- {time_of_day}")
            write_report(report, form)
        self._started = True
        sys.stdout.flush()

    def _warning(self) -> str:
        if not self._trouble:
            return ""
        message = f"connection lost, the data below is out of date: {self._trouble}"
        width = shutil.get_terminal_size((100, 40)).columns
        return self._form.paint.red(message[: width - 1])
