"""Files of Plimsoll and of everything it needs to run, from the environment that runs this.

The environment is the one that `make install` makes from `requirements.lock`: zipapp and image contain the
tested versions, and making them needs no network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from plimsoll.errors import ConfigError

ROOT = Path(__file__).parents[1]
PACKAGE = "plimsoll"
#: Extra with what servers, node agents and drivers need.
EXTRA = "server"
#: Names in the payload: paths relative to a directory on Python's path.
Payload = dict[str, Path]
#: Records of an installation that are wrong elsewhere, and what is not needed to run.
_SKIPPED_FILES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_SKIPPED_DIRECTORIES = {"__pycache__", "tests", "test", "include"}


def dependencies() -> list[str]:
    """Return the names of the distributions that all commands need, Plimsoll excluded, sorted."""
    found: set[str] = set()
    waiting = [PACKAGE]
    while waiting:
        package = waiting.pop()
        extra = {"extra": EXTRA if package == PACKAGE else ""}
        for text in distribution(package).requires or ():
            requirement = Requirement(text)
            name = _normalize(requirement.name)
            if (requirement.marker is None or requirement.marker.evaluate(extra)) and name not in found:
                found.add(name)
                waiting.append(name)
    return sorted(found - {PACKAGE})


def dependency_files() -> Payload:
    """Return the files of all dependencies: modules, compiled ones included, and metadata."""
    found: Payload = {}
    for name in dependencies():
        for inside, path in _installed_files(distribution(name)):
            found[inside] = path
    return dict(sorted(found.items()))


def package_files() -> Payload:
    """Return the files of the package from the sources, and its metadata (version, commands)."""
    source = ROOT / "src"
    found = {
        path.relative_to(source).as_posix(): path
        for path in sorted((source / PACKAGE).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    metadata = [
        (inside, path) for inside, path in _installed_files(distribution(PACKAGE)) if ".dist-info/" in inside
    ]
    return {**found, **dict(sorted(metadata))}


def version() -> str:
    """Return the version of the package."""
    return distribution(PACKAGE).version


def _installed_files(dist: Distribution) -> Iterator[tuple[str, Path]]:
    if dist.files is None:
        raise ConfigError(f"{dist.name}: the installation has no list of files; run make install")
    for file in dist.files:
        inside = PurePosixPath(file)
        skipped = inside.name in _SKIPPED_FILES or inside.suffix in (".pyc", ".pth")
        if skipped or ".." in inside.parts or _SKIPPED_DIRECTORIES & set(inside.parts):
            continue  # scripts are in ../../../bin
        path = Path(str(file.locate()))
        if not path.is_file():
            raise ConfigError(f"{dist.name}: {inside} is missing; run make install again")
        yield inside.as_posix(), path


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
