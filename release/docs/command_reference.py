"""Command reference: every command with its help text and options, from the click commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

import click

from plimsoll.cli.commands import TABLE
from plimsoll.cli.main import plimsoll

_TITLE = "Command reference"
_INTRO = """Generated from `plimsoll --help`. What the commands have in common (clusters and dumps, output
formats, exit codes) is described in [commands](../docs/commands.md)."""


def command_reference() -> str:
    """Return the page: the groups of the command table, each command with its subcommands."""
    root = click.Context(plimsoll, info_name="plimsoll")
    parts = [f"# {_TITLE}", _INTRO]
    for group, rows in TABLE.items():
        parts += [f"## {group}", "| command | |\n|---|---|"]
        parts[-1] += "".join(f"\n| [`{row.name}`](#plimsoll-{row.name}) | {row.text} |" for row in rows)
        for row in rows:
            command = plimsoll.get_command(root, row.name)
            assert command is not None
            parts += _describe(click.Context(command, parent=root, info_name=row.name), 3)
    return "\n\n".join(parts) + "\n"


def _describe(ctx: click.Context, level: int) -> Iterator[str]:
    """Yield the paragraphs of a command and of its subcommands, which follow it at the same level."""
    command = ctx.command
    yield f"{'#' * level} {ctx.command_path}"
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield f"```text\n{usage}\n```"
    yield from _help_text(command.help or "")
    params = [param for param in command.params if isinstance(param, click.Option)]
    options = [record for param in params if (record := param.get_help_record(ctx))]
    if options:
        yield "| option | |\n|---|---|" + "".join(
            f"\n| `{_cell(names)}` | {_cell(_plain(text))} |" for names, text in options
        )
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            if inner is not None and not inner.hidden:
                yield from _describe(click.Context(inner, parent=ctx, info_name=name), level)


def _help_text(text: str) -> Iterator[str]:
    r"""Yield the paragraphs of a help text; those that click leaves as they are (\b) are code blocks."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            yield "```text\n" + dedent("\n".join(lines[1:])) + "\n```"
        elif lines:
            yield _plain(" ".join(line.strip() for line in lines))


def _plain(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return re.sub(r"([<>*_\[\]])(?=(?:[^`]*`[^`]*`)*[^`]*$)", r"\\\1", text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
