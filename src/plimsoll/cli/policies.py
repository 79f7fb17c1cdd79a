"""`plimsoll policies`: the same cluster under each accounting policy.

Owns its arguments. What it needs is imported when it runs.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import click

from plimsoll.cli.options import Form, Where, cluster_options, output_options, write_report


@click.command(name="policies")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Show so many nodes and so many pods; 0 is all.",
)
@cluster_options
@output_options
def run_policies(limit: int, where: Where, form: Form) -> None:
    """Show what the four accounting policies would charge, side by side.

    Every claim of the pods that have a node is priced anew and booked as if one policy held for all; what
    statuses say was charged counts only in the column of the cluster as it is. Nothing is changed.

    \b
    plimsoll policies
    plimsoll policies -n ml -o wide
    kubectl get nodes,pods,resourceclaims,resourceslices,deviceclasses -A -o yaml | plimsoll policies -f -
    """
    from plimsoll.tools.policies import compare_policies

    write_report(compare_policies(where.cluster_state(), namespace=where.namespace, limit=limit), form)
