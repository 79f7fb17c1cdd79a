"""Validation of projected volumes."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, forbidden, invalid, required
from plimsoll.apiserver.validation.file_paths import validate_local_non_reserved_path
from plimsoll.apiserver.validation.pod.volume_sources import (
    validate_downward_file,
    validate_key_to_path,
    validate_mode,
)

_SHORTEST = 600
_LONGEST = 1 << 32
_CONFLICT = "conflicting duplicate paths"


def validate_projection(source: View, path: FieldPath, *, allow_nonlocal_token_path: bool) -> FieldErrors:
    """Validate a projected volume; stored ones may keep a token path outside of the volume."""
    yield from validate_mode(source.default_mode, path.child("defaultMode"))
    taken: set[str] = set()
    for index, projection in enumerate(source.sources):
        at = path.child("sources").index(index)
        yield from _validate_files(projection, at)
        for file in _files(projection):
            if file in taken:
                yield invalid(path, file, _CONFLICT)
            taken.add(file)
        if projection.service_account_token is not None:
            token = projection.service_account_token
            yield from _validate_token(
                token, at.child("serviceAccountToken"), path, allow_nonlocal_token_path
            )
        sources = (
            projection.secret,
            projection.config_map,
            projection.downward_api,
            projection.service_account_token,
        )
        if sum(each is not None for each in sources) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _validate_files(projection: View, path: FieldPath) -> FieldErrors:
    for name, source in (("secret", projection.secret), ("configMap", projection.config_map)):
        if source is not None:
            yield from _validate_items(source, path.child(name))
    if projection.downward_api is not None:
        for file in projection.downward_api.items:
            yield from validate_downward_file(file, path.child("downwardAPI"))


def _validate_items(source: View, path: FieldPath) -> FieldErrors:
    if not source.name:
        yield required(path.child("name"))
    for index, item in enumerate(source.items):
        yield from validate_key_to_path(item, path.child("items").index(index))


def _files(projection: View) -> Iterator[str]:
    for source in (projection.secret, projection.config_map, projection.downward_api):
        if source is not None:
            yield from (item.path for item in source.items if item.path)


def _validate_token(
    token: View, path: FieldPath, volume: FieldPath, allow_nonlocal_path: bool
) -> FieldErrors:
    seconds, at = token.expiration_seconds or 0, path.child("expirationSeconds")
    if seconds < _SHORTEST:
        yield invalid(at, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST:
        yield invalid(at, seconds, "may not specify a duration larger than 2^32 seconds")
    if not token.path:
        yield required(volume.child("path"))
    elif not allow_nonlocal_path:
        yield from validate_local_non_reserved_path(token.path, volume.child("path"))
