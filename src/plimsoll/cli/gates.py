"""`plimsoll gates`: list the feature gates."""

# ruff: noqa: PLC0415

from __future__ import annotations

import click

from plimsoll.cli.options import OutputFormat, feature_gates_option, output_options, write_report


@click.command(name="gates")
@feature_gates_option()
@output_options
def run_gates(gates: str, form: OutputFormat) -> None:
    """List the feature gates and their effects.

    \b
    plimsoll gates
    plimsoll gates --feature-gates DRAPartitionableDevices=false
    """
    from plimsoll.api.gates import Gates
    from plimsoll.tools import columns
    from plimsoll.tools import feature_gates as switches
    from plimsoll.tools.report import StaticReport

    switched = Gates.parse(gates)
    write_report(
        StaticReport(list(columns.format_table(switches.table(switched))), switches.as_json(switched)), form
    )
