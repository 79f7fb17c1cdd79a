"""`plimsoll completion`: completion scripts for shells (click's), and completion of the kubectl plugin."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
from click.shell_completion import ShellComplete, get_completion_class

_VARIABLE = "_PLIMSOLL_COMPLETE"
#: Directives of kubectl: also complete file names, or not.
_WITH_FILES, _WITHOUT_FILES = 0, 4


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def run_completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for a shell.

    \b
    source <(plimsoll completion bash)          # or in ~/.bashrc
    source <(plimsoll completion zsh)           # in ~/.zshrc
    plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish

    `kubectl plimsoll` is completed by kubectl's own completion.
    """
    found = get_completion_class(shell)
    assert found is not None  # click has all three
    made = found(ctx.find_root().command, {}, "plimsoll", _VARIABLE)
    # Not `made.source()`, which checks the version of the local bash; the script may be for another machine.
    click.echo(made.source_template % made.source_vars())


def complete_for_kubectl(argv: list[str] | None = None) -> NoReturn:
    """`kubectl_complete-plimsoll ARGUMENTS... WORD`: print the completions, one per line."""
    from plimsoll.cli.main import plimsoll  # noqa: PLC0415 - main imports the commands

    *arguments, word = (sys.argv[1:] if argv is None else argv) or [""]
    items = ShellComplete(plimsoll, {}, "kubectl plimsoll", _VARIABLE).get_completions(arguments, word)
    with_files = any(item.type in ("file", "dir") for item in items)
    for item in items:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_WITH_FILES if with_files else _WITHOUT_FILES}")
    sys.exit(0)
