"""Command group `plimsoll driver`; each driver has its own module."""

from __future__ import annotations

import click

from plimsoll.cli.driver_cpu import cpu_commands
from plimsoll.cli.driver_fake import run_fake
from plimsoll.cli.driver_memory import run_memory


@click.group(name="driver")
def driver_commands() -> None:
    """Run a DRA driver: publish the devices of a node and prepare claims for them."""


driver_commands.add_command(cpu_commands)
driver_commands.add_command(run_fake)
driver_commands.add_command(run_memory)
