"""`plimsoll top`: resource usage, once or (with `-w`) at every change."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from plimsoll.cli.options import OutputFormat, Progress, Where, ledger_options, output_options, write_report

if TYPE_CHECKING:
    from plimsoll.tools.report import Report

#: Aliases of the views.
_VIEWS = {
    alias: view
    for view, aliases in {
        "nodes": "nodes node no",
        "pods": "pods pod po",
        "claims": "claims claim resourceclaims resourceclaim",
        "devices": "devices device dev",
        "pools": "pools pool",
        "namespaces": "namespaces namespace ns",
    }.items()
    for alias in aliases.split()
}
#: Lines that are not rows: headings, totals, notes.
_AROUND = 9


@click.command(name="top")
@click.argument("view", default="nodes")
@click.argument("name", default="")
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME",
    help="Limit to this resource, for example cpu. Repeatable.",
)
@click.option(
    "--sort",
    type=click.Choice(["name", "free", "used", "claims"]),
    default="name",
    show_default=True,
    help="Order of nodes, overcommitted ones first: by name, most free, least free, or "
    "most charged by claims.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of rows; 0 shows all. [default: what fits the terminal, all in a pipe]",
)
@click.option("-w", "--watch", is_flag=True, help="Watch for changes until interrupted.")
@ledger_options
@output_options
def run_top(
    view: str,
    name: str,
    resources: tuple[str, ...],
    sort: str,
    limit: int | None,
    watch: bool,
    where: Where,
    form: OutputFormat,
) -> None:
    """Show allocatable, charged and free resources, from one ledger per node.

    VIEW is nodes (the default), pods, claims, devices, pools or namespaces. NAME selects one of them; for
    devices and pools it is a part of the name, or a node.

    \b
    plimsoll top                          every node: requests, claims, overhead, free
    plimsoll top nodes node-17            one node: its pods, claims and devices
    plimsoll top nodes --sort free -w     most free first, watching for changes
    plimsoll top claims -n ml             claims with their devices and charges
    plimsoll top devices node-17          devices of a node, with shares and holders
    kubectl get nodes,pods,resourceclaims,resourceslices,deviceclasses -A -o yaml | plimsoll top -f -
    """
    from plimsoll.errors import ConfigError
    from plimsoll.tools.top.top import top

    if view not in _VIEWS:
        known = ", ".join(dict.fromkeys(_VIEWS.values()))
        raise ConfigError(f"{view}: unknown view; valid views: {known} (or: plimsoll top nodes {view})")
    what = _VIEWS[view]
    asked: dict[str, Any] = {"name": name, "resources": resources, "sort": sort}
    asked["limit"] = _limit(limit, what, form)
    if watch:
        _watch(where, form, what, asked)
        return
    write_report(top(where.cluster_state(), what, where.namespace, **asked), form)


def _limit(given: int | None, what: str, form: OutputFormat) -> int:
    """Return the number of rows: the height of the terminal unless a limit is given."""
    if given is not None:
        return given
    if form.output != "table" or not sys.stdout.isatty():
        return 0
    lines = shutil.get_terminal_size((100, 40)).lines - _AROUND
    return max(3, lines // 2 if what in ("nodes", "pods", "namespaces") else lines)


# -- watch


def _watch(where: Where, form: OutputFormat, what: str, asked: dict[str, Any]) -> None:
    from plimsoll.errors import ConfigError

    if where.files:
        raise ConfigError("-w and -f cannot be combined: a dump does not change")
    try:
        asyncio.run(_follow(where, form, what, asked))
    except KeyboardInterrupt:
        click.echo()


async def _follow(where: Where, form: OutputFormat, what: str, asked: dict[str, Any]) -> None:
    from plimsoll.api.gates import Gates
    from plimsoll.client import Client
    from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
    from plimsoll.tools.colors import printable
    from plimsoll.tools.top.top import top
    from plimsoll.tools.top.watch import follow

    source = where.source()
    assert source.config is not None
    cluster_state = ClusterState(
        ClusterObjects(),
        Gates.parse(where.gates),
        origin=source.origin,
        assume_mapping=where.assume_mapping,
    )
    writer = _Writer(form, f"plimsoll top {what}, {source.origin}; Ctrl-C ends")
    progress = Progress()
    progress.tick("reading the cluster", 0, 0)

    def show() -> None:
        progress.__exit__()
        writer.write(top(cluster_state, what, where.namespace, **asked))

    def on_error(why: str) -> None:
        writer.report_problem(printable(why))

    async with Client.connect(source.config) as client:
        await follow(client, cluster_state, show, namespace=source.namespace, on_error=on_error)


class _Writer:
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
