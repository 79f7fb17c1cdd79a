"""First module of the zipapp: unpack it once into a cache directory, and run the command from there.

The cache is PLIMSOLL_CACHE, or `plimsoll` in XDG_CACHE_HOME or ~/.cache, or a directory for this user in the
directory for temporary files. A directory is named after its content and appears when it is complete, so that
processes that start at the same time do not disturb each other. Only the standard library is used here.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path

_MARKER = "payload"
_INSIDE = "site/"


def unpack(archive: Path, cache: Path) -> Path:
    """Return the directory with the unpacked files of the archive, made if it is missing."""
    with zipfile.ZipFile(archive) as opened:
        digest, tag = opened.read(_MARKER).decode().split()
        if tag != sys.implementation.cache_tag:
            sys.exit(f"plimsoll: {archive} is for {tag}, this Python is {sys.implementation.cache_tag}")
        target = cache / digest[:32]
        if target.is_dir():
            return target
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=cache))
        try:
            for entry in opened.infolist():
                if entry.filename.startswith(_INSIDE):
                    path = part / entry.filename.removeprefix(_INSIDE)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with opened.open(entry) as source, path.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
            part.chmod(0o755)
            part.rename(target)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            if not target.is_dir():  # another process was faster
                raise
    return target


def find_cache() -> Path:
    """Return the first cache directory that belongs to this user and is writable by no other."""
    named = os.environ.get("PLIMSOLL_CACHE")
    home = os.environ.get("HOME")
    usual = os.environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    temporary = os.path.join(tempfile.gettempdir(), f"plimsoll-{os.getuid()}")
    places = [named] if named else [os.path.join(usual, "plimsoll")] * bool(usual) + [temporary]
    problem = ""
    for place in places:
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            found = os.stat(place)
        except OSError as error:
            problem = f"{place}: {error.strerror}"
            continue
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            problem = f"{place}: belongs to another user, or others can write there"
        elif not os.access(place, os.W_OK | os.X_OK):
            problem = f"{place}: not writable"
        else:
            return Path(place)
    sys.exit(f"plimsoll: no directory to unpack into: {problem}; name one with PLIMSOLL_CACHE")


def main() -> None:
    """Unpack this archive and run the command."""
    archive = Path(sys.argv[0]).resolve()
    try:
        directory = unpack(archive, find_cache())
    except OSError as error:
        sys.exit(f"plimsoll: cannot unpack {archive}: {error.strerror or error}")
    sys.path[0] = str(directory)  # in place of the archive
    # Processes that commands start find the modules in the same place.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(directory), os.environ.get("PYTHONPATH", "")])
    )
    from plimsoll.cli.main import main as run  # noqa: PLC0415 - importable only now
    from plimsoll.cli.main import run_as_plugin  # noqa: PLC0415

    # kubectl starts a plugin by the name of its file.
    (run_as_plugin if os.path.basename(sys.argv[0]).startswith("kubectl-") else run)()


if __name__ == "__main__":
    main()
