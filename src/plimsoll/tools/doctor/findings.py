"""Findings of the doctor, and the commands in their fixes.

An ID is `area.check` and never changes its meaning; docs/doctor.md lists all.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from plimsoll.tools.findings import Finding, Severity


def finding(id: str, severity: Severity, subject: object, message: str, fix: str = "") -> Finding:
    """Return the result of a check. Bytes of file names that are not UTF-8 are escaped."""
    texts = (text.encode(errors="backslashreplace").decode() for text in (str(subject), message, fix))
    subject, message, fix = texts
    return Finding(id, id.partition(".")[2], severity, subject, message, fix=fix)


def ok(id: str, subject: object, message: str) -> Finding:
    return finding(id, Severity.OK, subject, message)


def note(id: str, subject: object, message: str, fix: str = "") -> Finding:
    return finding(id, Severity.INFO, subject, message, fix)


def warning(id: str, subject: object, message: str, fix: str) -> Finding:
    return finding(id, Severity.WARNING, subject, message, fix)


def error(id: str, subject: object, message: str, fix: str) -> Finding:
    return finding(id, Severity.ERROR, subject, message, fix)


def command(*words: object) -> str:
    """Return a shell command that can be printed: other characters are escaped for Bash ($'...')."""
    return " ".join(map(_quote, map(str, words)))


def move_away(path: Path, directory: Path) -> str:
    """Return the command that moves a file to the quarantine directory."""
    return f"{command('mkdir', '-p', directory)} && {command('mv', '-n', path, directory)}"


def _quote(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    plain = {*range(32, 127)} - {*b"'\\"}
    shown = (chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in os.fsencode(word))
    return f"$'{''.join(shown)}'"
