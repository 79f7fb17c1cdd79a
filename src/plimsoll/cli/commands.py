"""The commands there are, in the groups in which `plimsoll --help` shows them.

Owns `TABLE` and `Commands`, a click group that imports a command's module when the command is called, not
before: help, completion and the other commands start without it. A row is all it takes to add a command: its
name, the module under `plimsoll.cli` that has a click command of this name, and a line for people.
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

#: How a program ends whose reader has gone, as others do by SIGPIPE.
UNREAD = 141


class Row(NamedTuple):
    """One command."""

    name: str
    module: str
    text: str


TABLE: Mapping[str, tuple[Row, ...]] = {
    "Ask a cluster or a dump": (
        Row("top", "top", "What is free and who holds it: nodes, claims, devices, pools."),
        Row("explain", "explain", "Why a pod or a claim waits, or why it is where it is."),
        Row("whatif", "whatif", "Add, remove or change things in memory, schedule, compare."),
        Row("audit", "audit", "Check a cluster for books that do not add up."),
        Row("policies", "policies", "The same cluster under each accounting policy, side by side."),
        Row("dashboard", "dashboard", "All of it as a page in a browser."),
    ),
    "Run": (
        Row("up", "up", "A whole cluster on this machine."),
        Row("server", "server", "The API server alone."),
        Row("scheduler", "scheduler", "The scheduler, for this or any other cluster."),
        Row("node", "node", "The agent of a node."),
        Row("driver", "driver", "DRA drivers: CPUs, and devices from a file."),
        Row("store", "server", "Look after the file that the server keeps its objects in."),
        Row("kubeconfig", "server", "Write a kubeconfig for a running server."),
    ),
    "Check": (
        Row("doctor", "doctor", "What of this machine and cluster is ready, and what is not."),
        Row("podresources", "podresources", "What a kubelet says of its pods' devices."),
        Row("cgroups", "cgroups", "The cgroup settings that pods get."),
        Row("gates", "gates", "The feature gates and what they switch."),
        Row("bench", "bench", "How fast this machine schedules."),
    ),
    "Look at objects, of files or of a cluster": (
        Row("check", "files", "Check objects as the API server would on create."),
        Row("select", "files", "Which devices a CEL selector matches."),
        Row("allocate", "files", "Which devices waiting claims would get, or why none."),
        Row("convert", "files", "Rewrite node-allocatable fields in another wire form."),
    ),
    "This command": (Row("completion", "completion", "Completion for bash, zsh or fish."),),
}
ROWS: dict[str, Row] = {row.name: row for rows in TABLE.values() for row in rows}


class Commands(click.Group):
    """The commands of the table; each is imported when it is called for."""

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
            ctx.fail(f"there is no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would make it 1, which is an answer here
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


def load(row: Row) -> click.Command:
    """The command of a row."""
    module = import_module(f"plimsoll.cli.{row.module}")
    return next(
        thing
        for thing in vars(module).values()
        if isinstance(thing, click.Command) and thing.name == row.name
    )


def forget_output() -> None:
    """Whoever read our output has gone: nothing more is written, nor complained about at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end
