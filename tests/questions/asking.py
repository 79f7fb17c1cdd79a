"""Query commands run in this process.

`ask` runs a command line, and `COMMANDS` are those run on every input. A `CommandResult` is checked for the
properties that hold for any input: exit code 0, 1 or 2, no traceback, no internal error, and with exit code 2
nothing but one line.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from plimsoll.cli.main import main

VIEWS = ("nodes", "pods", "claims", "devices", "pools", "namespaces")
#: Commands run on every dump. NODE, POD and CLAIM stand for existing ones, see `named`.
COMMANDS: dict[str, tuple[str, ...]] = {
    **{f"top {view}": ("top", view) for view in VIEWS},
    **{f"top {view} wide": ("top", view, "-o", "wide") for view in VIEWS},
    "top json": ("top", "nodes", "-o", "json"),
    "top yaml": ("top", "claims", "-o", "yaml"),
    "explain": ("explain",),
    "explain json": ("explain", "-o", "json"),
    "whatif": ("whatif",),
    "whatif as": ("whatif", "--as", "kube-1.36", "-o", "json"),
    "whatif policy": ("whatif", "--policy", "Max", "--no-preemption"),
    "audit": ("audit",),
    "audit wide": ("audit", "-o", "wide", "--fail-on", "info"),
    "audit sarif": ("audit", "-o", "sarif"),
    "audit junit": ("audit", "-o", "junit"),
    "policies": ("policies",),
    "policies wide": ("policies", "-o", "wide", "--limit", "0"),
}
#: One of each command, where all variants would give the same error.
FEW = ("top nodes", "explain", "whatif", "audit", "policies")
#: Commands on single objects; they have another reader, and refuse more.
FILE_COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check",),
    "allocate": ("allocate",),
    "select": ("select", "true"),
    "convert": ("convert", "--form", "1.37"),
    "cgroups": ("cgroups", "--memory", "8Gi"),
}


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on standard error that are not notes."""
        return [line for line in self.err.splitlines() if not line.startswith("note: ")]

    def check(self) -> CommandResult:
        """Check the properties of every result."""
        shown = f"{' '.join(self.words)}\n{self.out}\n{self.err}"
        assert self.code in (0, 1, 2), shown
        assert "Traceback" not in self.err, shown
        assert "plimsoll: internal error" not in self.err, shown
        assert not steering(self.out + self.err), (steering(self.out + self.err), shown)
        if self.code == 2:
            assert not self.out, shown
            assert len(self.errors) == 1, shown
            assert self.errors[0].startswith("plimsoll"), shown
            assert len(self.errors[0]) < 600, shown
        return self


def steering(text: str) -> set[str]:
    """Return the characters of a text that could control a terminal."""
    return {letter for letter in text if not letter.isprintable() and letter not in "\n"}


class _Bytes(io.TextIOWrapper):
    """Text stream over bytes, as standard streams are."""

    def __init__(self, content: bytes = b"") -> None:
        self.bytes = io.BytesIO(content)
        super().__init__(self.bytes, encoding="utf-8", newline="")

    def text(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode(errors="surrogateescape")


def ask(*words: str | Path, stdin: bytes = b"") -> CommandResult:
    """Run a command to its end."""
    given = tuple(str(word) for word in words)
    out, err = _Bytes(), _Bytes()
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = _Bytes(stdin), out, err
    try:
        with pytest.raises(SystemExit) as ended:
            main(list(given))
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
    code = ended.value.code
    assert isinstance(code, int), code
    return CommandResult(given, code, out.text(), err.text())
