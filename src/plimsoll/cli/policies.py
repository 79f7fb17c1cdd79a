"""`plimsoll policies`: compare a cluster under each accounting policy."""

# ruff: noqa: PLC0415

from __future__ import annotations

import click

from plimsoll.cli.options import OutputFormat, Progress, Where, ledger_options, output_options, write_report


@click.command(name="policies")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of nodes and of pods to show; 0 shows all.",
)
@ledger_options
@output_options
def run_policies(limit: int, where: Where, form: OutputFormat) -> None:
    """Compare the charges of a cluster under the four accounting policies.

    All claims of bound pods are charged as if one policy applied to all devices; recorded charges count only
    in the column of the current state. Nothing is changed.

    \b
    plimsoll policies
    plimsoll policies -n ml -o wide
    plimsoll policies -f cluster.json.gz
    """
    from plimsoll.tools.policies import compare_policies

    cluster_state = where.cluster_state()
    with Progress() as progress:
        report = compare_policies(cluster_state, namespace=where.namespace, limit=limit, tick=progress.tick)
    write_report(report, form)
