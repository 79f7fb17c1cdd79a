"""Validation of file system paths in volumes and profiles."""

from __future__ import annotations

from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid


def validate_path_no_backsteps(target: str, path: FieldPath) -> FieldErrors:
    if ".." in target.split("/"):
        yield invalid(path, target, "must not contain '..'")


def validate_local_descending_path(target: str, path: FieldPath) -> FieldErrors:
    """Validate a relative path that never leaves its directory."""
    if target.startswith("/"):
        yield invalid(path, target, "must be a relative path")
    yield from validate_path_no_backsteps(target, path)


def validate_local_non_reserved_path(target: str, path: FieldPath) -> FieldErrors:
    """Validate the path of a projected file; names that start with two dots are reserved."""
    yield from validate_local_descending_path(target, path)
    if target.startswith("..") and not target.startswith("../"):
        yield invalid(path, target, "must not start with '..'")


def is_local_non_reserved_path(target: str) -> bool:
    return not any(True for _ in validate_local_non_reserved_path(target, FieldPath("")))
