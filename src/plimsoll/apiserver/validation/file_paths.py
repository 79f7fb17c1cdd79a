"""Paths in file systems: relative ones that stay inside, absolute ones that do not go back."""

from __future__ import annotations

from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid


def validate_path_no_backsteps(target: str, path: FieldPath) -> FieldErrors:
    if ".." in target.split("/"):
        yield invalid(path, target, "must not contain '..'")


def validate_local_descending_path(target: str, path: FieldPath) -> FieldErrors:
    """A relative path that never leaves the directory it starts from."""
    if target.startswith("/"):
        yield invalid(path, target, "must be a relative path")
    yield from validate_path_no_backsteps(target, path)


def validate_local_non_reserved_path(target: str, path: FieldPath) -> FieldErrors:
    """A place for a file in a volume that is made of files; names with two dots in front are taken."""
    yield from validate_local_descending_path(target, path)
    if target.startswith("..") and not target.startswith("../"):
        yield invalid(path, target, "must not start with '..'")


def is_local_non_reserved_path(target: str) -> bool:
    return not any(True for _ in validate_local_non_reserved_path(target, FieldPath("")))
