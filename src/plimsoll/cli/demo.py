"""`plimsoll demo`: one node and its two books. Owns its arguments."""

# ruff: noqa: PLC0415

from __future__ import annotations

from datetime import UTC, datetime

import click


@click.command(name="demo")
def run_demo() -> None:
    """Show one node, its two books, and what they add up to."""
    from plimsoll.tools import demo

    for line in demo.tell(datetime.now(UTC)):
        click.echo(line)
