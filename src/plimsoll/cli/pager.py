"""Pager for reports that are longer than the terminal, as git has one.

The program is PLIMSOLL_PAGER, else PAGER, else less. An empty value or `cat` disables it, and so does
`plimsoll --no-pager`. Without a terminal on both
standard input and output nothing is paged.
"""

from __future__ import annotations

import os
import shutil
import sys

import click

#: Options of less unless LESS is set: leave if all fits, colors, keep the text on the screen.
_LESS = "FRX"


def show(text: str) -> None:
    """Write a text to standard output, through a pager if it is longer than the terminal."""
    program = pager_program()
    if not program or text.count("\n") + 1 < shutil.get_terminal_size((100, 40)).lines:
        click.echo(text, color=True)  # Paint has decided about colors
        return
    os.environ.setdefault("LESS", _LESS)
    os.environ["PAGER"] = program  # which click runs
    click.echo_via_pager(f"{text}\n", color=True)


def pager_program() -> str:
    """Return the pager to use; "" for none."""
    ctx = click.get_current_context(silent=True)
    disabled = ctx is not None and ctx.find_root().params.get("no_pager")
    if disabled or not sys.stdout.isatty() or sys.stdin is None or not sys.stdin.isatty():
        return ""
    environ = os.environ
    program = environ.get("PLIMSOLL_PAGER", environ.get("PAGER", "less")).strip()
    found = program and program != "cat" and shutil.which(program.split()[0])
    return program if found else ""
