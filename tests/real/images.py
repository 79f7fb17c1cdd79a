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
from collections.abc import Sequence
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def write_image(path: Path, name: str, programs: Sequence[str], entry: Sequence[str]) -> None:
    """Write an image with these programs and their libraries; `name` includes the registry."""
    layer = _tar(_files(programs))
    machine = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    config = {
        **machine,
        "config": {"Entrypoint": list(entry), "Env": ["PATH=/bin"]},
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
    listed = _describe(_MANIFEST, contents) | {"annotations": names, "platform": machine}
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode(),
    }
    files |= {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (layer, settings, contents)}
    path.write_bytes(_tar_of_bytes(files))


def _files(programs: Sequence[str]) -> dict[str, str]:
    """Yield paths in the image and on this machine."""
    found = {}
    for program in programs:
        source = shutil.which(program)
        assert source, f"this machine has no {program}"
        found[f"/bin/{program}"] = source
        output = subprocess.run(["ldd", source], capture_output=True, text=True).stdout
        for line in output.splitlines():
            found |= {word: word for word in line.split() if word.startswith("/")}
    return found


def _tar(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        directories = {"tmp", "proc", "sys", "dev", "etc"}
        for path in files:
            directories |= {str(directory)[1:] for directory in Path(path).parents if directory != Path("/")}
        for directory in sorted(directories):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path, source in files.items():
            archive.add(os.path.realpath(source), arcname=path[1:])
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
