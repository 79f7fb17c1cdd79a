"""`plimsoll top`: resource usage, once or (with `-w`) at every change."""

# ruff: noqa: PLC0415

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from plimsoll.cli.name_completion import complete_names, complete_row
from plimsoll.cli.options import OutputFormat, Progress, Where, ledger_options, output_options, write_report
from plimsoll.cli.watching import watch_cluster, watch_option

if TYPE_CHECKING:
    from plimsoll.tools.cluster_state import ClusterState
    from plimsoll.tools.report import Report

#: Aliases of the views.
_VIEWS = {
    alias: view
    for view, aliases in {
        "nodes": "nodes node no",
        "pods": "pods pod po",
        "claims": "claims claim resourceclaims resourceclaim",
        "classes": "classes class deviceclasses deviceclass",
        "gpus": "gpus gpu accelerators",
        "devices": "devices device dev",
        "pools": "pools pool",
        "namespaces": "namespaces namespace ns",
    }.items()
    for alias in aliases.split()
}


def _complete_view(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(view) for view in dict.fromkeys(_VIEWS.values()) if view.startswith(incomplete)]


#: Lines that are not rows: headings, totals, notes.
_AROUND = 9


@click.command(name="top")
@click.argument("view", default="nodes", shell_complete=_complete_view)
@click.argument("name", default="", shell_complete=complete_row)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME",
    help="Limit to this resource, for example cpu. Repeatable.",
)
@click.option(
    "--sort",
    type=click.Choice(["name", "free", "used", "claims", "devices"]),
    default="name",
    show_default=True,
    help="Order of nodes, overcommitted ones first: by name, most free, least free, or "
    "most charged by claims. Namespaces: by name, most used, most charged by claims, or most devices.",
)
@click.option(
    "--class",
    "device_class",
    default="",
    metavar="NAME",
    shell_complete=complete_names("deviceclasses"),
    help="Limit devices or gpus to those that a DeviceClass selects.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of rows; 0 shows all. [default: what fits the terminal, all in a pipe]",
)
@watch_option
@ledger_options
@output_options
def run_top(
    view: str,
    name: str,
    resources: tuple[str, ...],
    sort: str,
    device_class: str,
    limit: int | None,
    watch: bool,
    where: Where,
    form: OutputFormat,
) -> None:
    """Show allocatable, charged and free resources, from one ledger per node.

    VIEW is nodes (the default), pods, claims, classes, gpus, devices, pools or namespaces. NAME selects one
    of them; for gpus, devices and pools it is a part of the name, or a node.

    \b
    plimsoll top                          every node: requests, claims, overhead, free
    plimsoll top nodes node-17            one node: its pods, claims and devices
    plimsoll top nodes --sort free -w     most free first, watching for changes
    plimsoll top claims -n ml             claims with their devices and charges
    plimsoll top gpus                     physical GPUs: whole and free, what still fits, who holds them
    plimsoll top devices node-17          devices of a node, with shares and holders
    plimsoll top devices --class gpu      devices that a class selects
    plimsoll top namespaces --sort devices
    plimsoll top classes                  how many devices of each class can still be allocated
    plimsoll top -f cluster.json.gz
    """
    from plimsoll.errors import ConfigError
    from plimsoll.tools.top.top import top

    if view not in _VIEWS:
        known = ", ".join(dict.fromkeys(_VIEWS.values()))
        raise ConfigError(f"{view}: unknown view; valid views: {known} (or: plimsoll top nodes {view})")
    what = _VIEWS[view]
    asked: dict[str, Any] = {"name": name, "resources": resources, "sort": sort, "device_class": device_class}
    asked["limit"] = _limit(limit, what, form)

    def report(cluster_state: ClusterState) -> Report:
        return top(cluster_state, what, where.namespace, **asked)

    if watch:
        watch_cluster(where, form, f"plimsoll top {what}", report)
        return
    cluster_state = where.cluster_state()
    with Progress() as progress:
        cluster_state.compute_ledgers(progress.tick)
        made = report(cluster_state)
    write_report(made, form)


def _limit(given: int | None, what: str, form: OutputFormat) -> int:
    """Return the number of rows: the height of the terminal unless a limit is given."""
    if given is not None:
        return given
    if form.output != "table" or not sys.stdout.isatty():
        return 0
    lines = shutil.get_terminal_size((100, 40)).lines - _AROUND
    return max(3, lines // 2 if what in ("nodes", "pods", "namespaces") else lines)
