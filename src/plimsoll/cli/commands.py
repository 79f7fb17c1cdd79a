"""Table of commands, grouped as `plimsoll --help` shows them.

`Commands` is a click group that imports the module of a command when it is called, so that help, completion
and other commands start quickly. To add a command, add a row to `TABLE`: its name, the module under
`plimsoll.cli` that defines a click command of this name, and a one-line description.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

#: Exit code when the reader of the output has closed the pipe, as after SIGPIPE.
UNREAD = 141


class CommandRow(NamedTuple):
    """Row of the table: one command."""

    name: str
    module: str
    text: str
    windows: bool = True  #: runs on Windows


TABLE: Mapping[str, tuple[CommandRow, ...]] = {
    "Query a cluster or a dump": (
        CommandRow(
            "top", "top", "Show allocatable, charged and free resources of nodes, pods, claims, devices."
        ),
        CommandRow(
            "explain", "explain", "Explain why a pod or claim is pending, or why it was placed where it is."
        ),
        CommandRow("whatif", "whatif", "Simulate changes to a cluster in memory and compare the result."),
        CommandRow("defrag", "defrag", "Find the fewest pods to move so that others fit."),
        CommandRow("audit", "audit", "Check a cluster for accounting and allocation errors."),
        CommandRow("policies", "policies", "Compare a cluster under each accounting policy."),
        CommandRow("diff", "diff", "Compare two dumps, or a dump and the cluster now."),
        CommandRow("dump", "dump", "Write everything the tools read to one file."),
        CommandRow("dashboard", "dashboard", "Serve the dashboard for a browser."),
    ),
    "Run": (
        CommandRow("up", "up", "Run a cluster on this machine.", windows=False),
        CommandRow("kubectl", "kubectl", "Run kubectl with the cluster of `plimsoll up`.", windows=False),
        CommandRow("server", "server", "Run the API server.", windows=False),
        CommandRow("scheduler", "scheduler", "Run the scheduler for any cluster.", windows=False),
        CommandRow(
            "charge",
            "charge",
            "Charge nodes for the claims of pods that kube-scheduler places.",
            windows=False,
        ),
        CommandRow("node", "node", "Run a node agent.", windows=False),
        CommandRow(
            "driver", "driver", "Run a DRA driver: CPUs, memory, or simulated devices.", windows=False
        ),
        CommandRow("store", "server", "Back up, restore or recover the API server's store.", windows=False),
        CommandRow("kubeconfig", "server", "Write a kubeconfig for a running server.", windows=False),
    ),
    "Check": (
        CommandRow("doctor", "doctor", "Check a node and its machine.", windows=False),
        CommandRow(
            "podresources",
            "podresources",
            "Query or export the PodResources API of a kubelet.",
            windows=False,
        ),
        CommandRow("cgroups", "cgroups", "Show the cgroup settings of pods.", windows=False),
        CommandRow("gates", "gates", "List feature gates."),
    ),
    "Work with objects of files or a cluster": (
        CommandRow("check", "files", "Validate objects as the API server does on create."),
        CommandRow("select", "files", "List the devices that a CEL selector matches."),
        CommandRow("allocate", "files", "Allocate devices to pending claims, or explain why that fails."),
        CommandRow("convert", "files", "Convert node-allocatable fields to another wire form."),
    ),
    "Other": (CommandRow("completion", "completion", "Print a completion script for bash, zsh or fish."),),
}
ROWS: dict[str, CommandRow] = {row.name: row for rows in TABLE.values() for row in rows}


class Commands(click.Group):
    """Click group of the table's commands; each is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*ROWS, *(name for name in sorted(self.commands) if name not in ROWS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = ROWS.get(cmd_name)
        return self.commands.get(cmd_name) if row is None else load(row)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            near = get_close_matches(name, self.list_commands(ctx), 2, 0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else f"see {ctx.command_path} --help"
            ctx.fail(f"unknown command {name!r}; {hint}")
        if name in ROWS and not ROWS[name].windows and sys.platform == "win32":
            ctx.fail(f"{name} does not run on Windows; run it on Linux, for example in WSL")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would use 1, which means a negative result here
            forget_output()
            ctx.exit(UNREAD)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, ROWS))
        for title, rows in TABLE.items():
            with formatter.section(title):
                formatter.write_dl([(row.name.ljust(width), row.text) for row in rows])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(row.name, help=row.text)
            for row in ROWS.values()
            if row.name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


def load(row: CommandRow) -> click.Command:
    """Return the command of a row."""
    module = import_module(f"plimsoll.cli.{row.module}")
    return next(
        thing
        for thing in vars(module).values()
        if isinstance(thing, click.Command) and thing.name == row.name
    )


def forget_output() -> None:
    """Discard further output after the reader of the pipe has closed it, without an error at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end
