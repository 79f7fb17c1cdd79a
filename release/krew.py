"""Manifest and archive for krew, the package manager of kubectl plugins.

`python -m release.krew ZIPAPP DIR --url URL` writes `plimsoll.tar.gz`, to be published at URL, and the
manifest `plimsoll.yaml` with its digest. `kubectl krew install --manifest plimsoll.yaml --archive
plimsoll.tar.gz` installs it without a network.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import platform
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

from release.payload import ROOT, version

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PLUGIN = "kubectl-plimsoll"


def write_archive(path: Path, zipapp: Path) -> None:
    """Write an archive with the plugin and the license; the same inputs give the same bytes."""
    files = ((_PLUGIN, 0o755, zipapp), ("LICENSE", 0o644, ROOT / "LICENSE"))
    with (
        path.open("wb") as stream,
        gzip.GzipFile("", "wb", 6, stream, 0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, mode, source in files:
            content = source.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(content)
            archive.addfile(entry, io.BytesIO(content))


def manifest(archive: Path, url: str) -> dict[str, Any]:
    """Return the manifest of an archive that is published at a URL."""
    template = yaml.safe_load((ROOT / "deploy" / "krew" / "plimsoll.yaml").read_text())
    template["spec"]["version"] = f"v{version()}"
    (entry,) = template["spec"]["platforms"]
    entry["uri"] = url
    entry["sha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
    labels = entry["selector"]["matchLabels"]
    labels["arch"] = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return dict(template)


def main() -> None:
    """Write the files that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m release.krew")
    parser.add_argument("zipapp", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--url", required=True, help="address at which plimsoll.tar.gz will be published")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    archive = given.directory / "plimsoll.tar.gz"
    write_archive(archive, given.zipapp)
    path = given.directory / "plimsoll.yaml"
    path.write_text(yaml.safe_dump(manifest(archive, given.url), sort_keys=False))
    sys.stdout.write(f"{path}, {archive}: {archive.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
