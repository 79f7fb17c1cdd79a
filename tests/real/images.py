"""Container images of this machine's programs, as tar files in the OCI layout, without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Image:
    """Programs of this machine by their paths in the image, symbolic links, and what runs by default."""

    programs: Mapping[str, str]
    entry: Sequence[str]
    args: Sequence[str] = ()  #: of the program that runs by default
    links: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)  #: contents of other files


def with_shell(entry: Sequence[str], *programs: str) -> Image:
    """Return an image with programs of this machine in /bin."""
    return Image({f"/bin/{name}": name for name in programs}, entry)


def with_busybox(entry: Sequence[str], programs: Mapping[str, str] | None = None) -> Image:
    """Return an image with busybox, under the name of each of its commands, and other programs.

    The shell is bash: some builds of busybox drop variables whose names are no identifiers.
    """
    listed = subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split()
    links = {f"/bin/{name}": "busybox" for name in listed if name not in ("busybox", "sh")}
    links["/bin/bash"] = "sh"
    return Image({"/bin/busybox": "busybox", "/bin/sh": "bash", **(programs or {})}, entry, links=links)


def write_images(path: Path, images: Mapping[str, Image]) -> None:
    """Write images with their programs and the libraries of these, by names that include the registry.

    Images with the same contents share a layer.
    """
    layers: dict[str, bytes] = {}
    manifests, blobs = [], dict[str, bytes]()
    for name, image in images.items():
        contents = repr([sorted(each.items()) for each in (image.programs, image.links, image.texts)])
        if contents not in layers:
            layers[contents] = _tar(_files(image.programs), image.links, image.texts)
        manifests.append(_add_image(name, image, layers[contents], blobs))
    index = {"schemaVersion": 2, "manifests": manifests}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    path.write_bytes(_tar_of_bytes({**files, **blobs}))


def _add_image(name: str, image: Image, layer: bytes, blobs: dict[str, bytes]) -> dict[str, object]:
    """Add the blobs of an image; return its entry in the index."""
    machine = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    config = {
        **machine,
        "config": {"Entrypoint": list(image.entry), "Cmd": list(image.args), "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    settings = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _describe(_CONFIG, settings),
        "layers": [_describe(_LAYER, layer)],
    }
    contents = json.dumps(manifest).encode()
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    blobs |= {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (layer, settings, contents)}
    return _describe(_MANIFEST, contents) | {"annotations": names, "platform": machine}


def _files(programs: Mapping[str, str]) -> dict[str, str]:
    """Return the files of programs and their libraries: paths in the image and on this machine."""
    found = {}
    for path, program in programs.items():
        source = shutil.which(program)
        assert source, f"this machine has no {program}"
        found[path] = source
        output = subprocess.run(["ldd", source], capture_output=True, text=True).stdout
        for line in output.splitlines():
            found |= {word: word for word in line.split() if word.startswith("/")}
    return found


def _tar(files: Mapping[str, str], links: Mapping[str, str], texts: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        directories = {"tmp", "var", "var/tmp", "proc", "sys", "dev", "etc"}
        for path in files:
            directories |= {str(directory)[1:] for directory in Path(path).parents if directory != Path("/")}
        for directory in sorted(directories):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path, source in files.items():
            archive.add(os.path.realpath(source), arcname=path[1:])
        for path, text in texts.items():
            entry = tarfile.TarInfo(path[1:])
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path, target in links.items():
            entry = tarfile.TarInfo(path[1:])
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()


def _tar_of_bytes(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            archive.addfile(entry, io.BytesIO(contents))
    return buffer.getvalue()


def _describe(media: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"
