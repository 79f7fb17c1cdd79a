"""Sources of the documentation site, laid out as the repository, so that links between pages stay the same.

`python -m release.docs.site DIR` writes them: README, changelog, `docs/`, `examples/`, `deploy/`, and two
generated pages in `reference/`. `make docs` then runs mkdocs on the directory.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from release.docs.command_reference import command_reference
from release.docs.markdown import for_python_markdown
from release.docs.python_reference import python_reference

ROOT = Path(__file__).parents[2]
#: Directories whose files the pages show or link to.
_DIRECTORIES = ("docs", "examples", "deploy", ".github")
_FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "pyproject.toml")
#: Pages that are made from the code.
GENERATED = {"reference/commands.md": command_reference, "reference/python.md": python_reference}


def source_files() -> list[Path]:
    """Return the files of the site, relative to the repository, without the generated ones."""
    found = [Path(name) for name in _FILES]
    for directory in _DIRECTORIES:
        found += [
            path.relative_to(ROOT)
            for path in (ROOT / directory).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ]
    return sorted(found)


def pages() -> list[str]:
    """Return the names of all pages, the generated ones included."""
    return [path.as_posix() for path in source_files() if path.suffix == ".md"] + list(GENERATED)


def write_site_sources(directory: Path) -> None:
    """Write all sources into a directory, which is emptied first."""
    shutil.rmtree(directory, ignore_errors=True)
    for path in source_files():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(for_python_markdown((ROOT / path).read_text()))
        else:
            shutil.copyfile(ROOT / path, target)
    for name, make in GENERATED.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(for_python_markdown(make()))


if __name__ == "__main__":
    write_site_sources(Path(sys.argv[1]))
