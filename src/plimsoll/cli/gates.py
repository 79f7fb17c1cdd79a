"""`plimsoll gates`: the feature gates. Owns its arguments."""

# ruff: noqa: PLC0415

from __future__ import annotations

import click


@click.command(name="gates")
@click.option(
    "--feature-gates", "gates", default="", metavar="NAME=BOOL,...", help="Switch features; all are on."
)
def run_gates(gates: str) -> None:
    """List the feature gates and what they switch.

    \b
    plimsoll gates
    plimsoll gates --feature-gates DRAPartitionableDevices=false
    """
    from plimsoll.api.gates import Gates
    from plimsoll.tools import columns, switches

    for line in columns.lay_out(switches.table(Gates.parse(gates))):
        click.echo(line)
