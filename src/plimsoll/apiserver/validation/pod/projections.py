"""Projected volumes: files from several sources in one directory."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.apiserver.validation.field_errors import Path, Problems, forbidden, invalid, required
from plimsoll.apiserver.validation.file_paths import check_projected
from plimsoll.apiserver.validation.pod.volume_sources import (
    check_downward_file,
    check_key_to_path,
    check_mode,
)
from plimsoll.apiserver.validation.pod.volume_view import (
    Projected,
    SecretProjection,
    TokenProjection,
    VolumeProjection,
)

_SHORTEST = 600
_LONGEST = 1 << 32
_CONFLICT = "conflicting duplicate paths"


def check_projection(source: Projected, path: Path, *, any_token_path: bool) -> Problems:
    """A projected volume; `any_token_path` is for one that is stored already, with a token put outside."""
    yield from check_mode(source.default_mode, path.child("defaultMode"))
    taken: set[str] = set()
    for place, projection in enumerate(source.sources):
        at = path.child("sources").index(place)
        yield from _check_files(projection, at)
        for file in _files(projection):
            if file in taken:
                yield invalid(path, file, _CONFLICT)
            taken.add(file)
        if projection.service_account_token is not None:
            token = projection.service_account_token
            yield from _check_token(token, at.child("serviceAccountToken"), path, any_token_path)
        sources = (
            projection.secret,
            projection.config_map,
            projection.downward_api,
            projection.service_account_token,
        )
        if sum(each is not None for each in sources) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _check_files(projection: VolumeProjection, path: Path) -> Problems:
    for name, source in (("secret", projection.secret), ("configMap", projection.config_map)):
        if source is not None:
            yield from _check_items(source, path.child(name))
    if projection.downward_api is not None:
        for file in projection.downward_api.items:
            yield from check_downward_file(file, path.child("downwardAPI"))


def _check_items(source: SecretProjection, path: Path) -> Problems:
    if not source.name:
        yield required(path.child("name"))
    for place, item in enumerate(source.items):
        yield from check_key_to_path(item, path.child("items").index(place))


def _files(projection: VolumeProjection) -> Iterator[str]:
    for source in (projection.secret, projection.config_map, projection.downward_api):
        if source is not None:
            yield from (item.path for item in source.items if item.path)


def _check_token(token: TokenProjection, path: Path, volume: Path, any_path: bool) -> Problems:
    seconds, at = token.expiration_seconds or 0, path.child("expirationSeconds")
    if seconds < _SHORTEST:
        yield invalid(at, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST:
        yield invalid(at, seconds, "may not specify a duration larger than 2^32 seconds")
    if not token.path:
        yield required(volume.child("path"))
    elif not any_path:
        yield from check_projected(token.path, volume.child("path"))
