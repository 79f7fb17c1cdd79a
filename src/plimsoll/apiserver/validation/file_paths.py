"""Paths in file systems: relative ones that stay inside, absolute ones that do not go back."""

from __future__ import annotations

from plimsoll.apiserver.validation.field_errors import Path, Problems, invalid


def check_no_backsteps(target: str, path: Path) -> Problems:
    if ".." in target.split("/"):
        yield invalid(path, target, "must not contain '..'")


def check_descending(target: str, path: Path) -> Problems:
    """A relative path that never leaves the directory it starts from."""
    if target.startswith("/"):
        yield invalid(path, target, "must be a relative path")
    yield from check_no_backsteps(target, path)


def check_projected(target: str, path: Path) -> Problems:
    """A place for a file in a volume that is made of files; names with two dots in front are taken."""
    yield from check_descending(target, path)
    if target.startswith("..") and not target.startswith("../"):
        yield invalid(path, target, "must not start with '..'")


def is_projected(target: str) -> bool:
    return not any(True for _ in check_projected(target, Path("")))
