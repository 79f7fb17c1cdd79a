"""Container images in the OCI layout, from directories: no daemon, no registry, the same bytes every time.

The tar file is an OCI image layout that `ctr images import` reads, with the index that `docker load` and
`podman load` look for.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
#: Time of everything in an image; images of the same content are equal.
_CREATED = "1970-01-01T00:00:00Z"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What a container of the image runs by default."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    ports: tuple[str, ...] = ()  #: such as 8080/tcp
    labels: dict[str, str] = field(default_factory=dict)
    architecture: str = "amd64"


def write_image(path: Path, name: str, layers: Sequence[Path], config: ImageConfig) -> None:
    """Write an image with a layer for each directory; `name` includes registry and tag."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".image-") as scratch:
        blobs = _Blobs(Path(scratch))
        described, diffs = [], []
        for directory in layers:
            layer, diff = blobs.add_layer(directory)
            described.append(layer)
            diffs.append(diff)
        settings = blobs.add(_CONFIG, _dump(_config_file(config, diffs)))
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": settings, "layers": described}
        listed = blobs.add(_MANIFEST, _dump(manifest))
        listed["annotations"] = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
        listed["platform"] = {"architecture": config.architecture, "os": "linux"}
        docker = {"Config": _blob_path(settings), "RepoTags": [name], "Layers": [*map(_blob_path, described)]}
        small = {
            "oci-layout": _dump({"imageLayoutVersion": "1.0.0"}),
            "index.json": _dump({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [listed]}),
            "manifest.json": _dump([docker]),
        }
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for directory_name in ("blobs", "blobs/sha256"):
                archive.addfile(_entry(directory_name, tarfile.DIRTYPE, 0o755))
            for blob in sorted(Path(scratch).iterdir()):
                with blob.open("rb") as stream:
                    entry = _entry(f"blobs/sha256/{blob.name}", tarfile.REGTYPE, 0o644)
                    entry.size = blob.stat().st_size
                    archive.addfile(entry, stream)
            for file_name, content in small.items():
                entry = _entry(file_name, tarfile.REGTYPE, 0o644)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def _config_file(config: ImageConfig, diffs: list[str]) -> dict[str, Any]:
    return {
        "architecture": config.architecture,
        "os": "linux",
        "created": _CREATED,
        "config": {
            "User": config.user,
            "Env": [f"{name}={value}" for name, value in config.environment.items()],
            "Entrypoint": list(config.entrypoint),
            "Cmd": list(config.command),
            "ExposedPorts": {port: {} for port in config.ports},
            "Labels": config.labels,
        },
        "rootfs": {"type": "layers", "diff_ids": diffs},
        "history": [{"created": _CREATED, "created_by": "release.oci"} for _ in diffs],
    }


class _Blobs:
    """Blobs of an image as files named by their digests."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, media: str, content: bytes) -> dict[str, Any]:
        """Keep a blob and return its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        (self._directory / digest).write_bytes(content)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    def add_layer(self, directory: Path) -> tuple[dict[str, Any], str]:
        """Keep a directory as a layer; return its descriptor and the digest of the uncompressed tar."""
        part = self._directory / "part"
        with part.open("wb") as stream:
            compressed = _HashingWriter(stream)
            # No name and no time, so that the same tar gives the same bytes.
            with gzip.GzipFile("", "wb", 6, compressed, 0) as packed:
                plain = _HashingWriter(packed)
                write_layer(plain, directory)
        digest = compressed.hexdigest()
        part.rename(self._directory / digest)
        size = (self._directory / digest).stat().st_size
        return {
            "mediaType": _LAYER,
            "digest": f"sha256:{digest}",
            "size": size,
        }, f"sha256:{plain.hexdigest()}"


class _HashingWriter(io.RawIOBase):
    """Binary stream that computes the digest of what is written to another one."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._digest.update(content)
        self._stream.write(content)
        return len(content)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def write_layer(stream: Any, directory: Path) -> None:
    """Write a directory as tar: sorted, of root, without times; devices and sockets are left out."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as archive:
        for path in sorted(directory.rglob("*"), key=lambda found: found.relative_to(directory).parts):
            name, found = path.relative_to(directory).as_posix(), path.lstat()
            if stat.S_ISLNK(found.st_mode):
                entry = _entry(name, tarfile.SYMTYPE, 0o777)
                entry.linkname = os.readlink(path)
                archive.addfile(entry)
            elif stat.S_ISDIR(found.st_mode):
                sticky = found.st_mode & stat.S_ISVTX
                archive.addfile(_entry(name, tarfile.DIRTYPE, 0o1777 if sticky else 0o755))
            elif stat.S_ISREG(found.st_mode):
                entry = _entry(name, tarfile.REGTYPE, 0o755 if found.st_mode & stat.S_IXUSR else 0o644)
                entry.size = found.st_size
                with path.open("rb") as content:
                    archive.addfile(entry, content)


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry


def _blob_path(descriptor: dict[str, Any]) -> str:
    return f"blobs/{str(descriptor['digest']).replace(':', '/')}"


def _dump(tree: Any) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()
