"""`plimsoll driver`: drivers as processes.

Owns the group; each driver has a module of its own beside this one.
"""

from __future__ import annotations

import click

from plimsoll.cli.driver_cpu import cpu_commands
from plimsoll.cli.driver_fake import run_fake


@click.group(name="driver")
def driver_commands() -> None:
    """Run a driver: tell the cluster of devices and hand them out on a node."""


driver_commands.add_command(cpu_commands)
driver_commands.add_command(run_fake)
