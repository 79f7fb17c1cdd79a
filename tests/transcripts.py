"""Commands and their outputs in Markdown, run and compared.

A block that begins with `$ ` holds commands and what each printed, standard output and error together as at a
terminal. `cat FILE` makes a file. A line `...` stands for lines that are
left out or differ from run to run. `PLIMSOLL_GOLDEN=write pytest ...` writes the outputs anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plimsoll.cli.main import main

_BLOCK = re.compile(r"^```(console)?\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A command and what it is expected to print."""

    command: str
    output: str


def steps_of(text: str) -> list[Step]:
    """The steps of a Markdown text, in order."""
    return [step for _, block in _BLOCK.findall(text) for step in _read(block)]


def check_transcripts(path: Path, directory: Path) -> int:
    """Run the steps of a file in a scratch directory and compare; how many there were."""
    text = path.read_text()
    with contextlib.chdir(directory):
        made = _BLOCK.sub(lambda block: f"```{block[1] or ''}\n{_played(block[2])}```", text)
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        path.write_text(made)
    elif made != text:
        differing = next((a, b) for a, b in zip(steps_of(text), steps_of(made), strict=True) if a != b)
        assert differing[1].output == differing[0].output, f"{path}: $ {differing[0].command}"
        raise AssertionError(f"{path}: the blocks are not laid out as they would be written")
    return len(steps_of(text))


def _played(block: str) -> str:
    return "".join(f"$ {step.command}\n{_settle(_play(step), step.output)}" for step in _read(block))


def _play(step: Step) -> str:
    program, *arguments = shlex.split(step.command.replace("\\\n", " "))
    if program == "cat":
        (name,) = arguments
        Path(name).write_text(step.output)
        return step.output
    assert program == "plimsoll", f"a page may show cat and plimsoll, not {program}"
    return run(arguments)


def _settle(output: str, expected: str) -> str:
    """The output as it is to be written: what was expected, if it differs only where it may."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)]
    if len(parts) > 1 and re.fullmatch(r"(?:.*\n)*?".join(parts), output):
        return expected
    return output


def run(arguments: list[str]) -> str:
    """Run a command of ours in this process; what it printed."""
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        contextlib.suppress(SystemExit),
    ):
        main(arguments)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def _read(block: str) -> Iterator[Step]:
    for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = piece.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command}\n{more}"
        yield Step(command, output)
