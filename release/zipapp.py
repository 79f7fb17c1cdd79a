"""Single-file Plimsoll: a zip file that Python runs, for machines without a package index.

`python -m release.zipapp FILE` writes it. Compiled modules cannot be imported from a zip file: it unpacks
itself into a cache directory when it is first run (`bootstrap.py`). The same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

from release.payload import dependency_files, package_files

#: Earliest time that a zip file can record, for all files.
_TIME = (1980, 1, 1, 0, 0, 0)
#: Directory of the payload in the file.
PAYLOAD = "site"


def write_zipapp(path: Path, payload: dict[str, Path]) -> None:
    """Write the program with these files (name on Python's path -> file)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w") as archive:
            digest = hashlib.sha256()
            for name, source in sorted(payload.items()):
                content = source.read_bytes()
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
                _add(archive, f"{PAYLOAD}/{name}", content)
            _add(archive, "__main__.py", (Path(__file__).parent / "bootstrap.py").read_bytes())
            _add(archive, "payload", f"{digest.hexdigest()} {_tag()}\n".encode())
    path.chmod(0o755)


def _tag() -> str:
    """Return the interpreters that the compiled modules are for: implementation and version."""
    return sys.implementation.cache_tag or ""


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


def main() -> None:
    """Write the file that the command line names."""
    path = Path(sys.argv[1])
    write_zipapp(path, {**dependency_files(), **package_files()})
    sys.stdout.write(f"{path}: {path.stat().st_size / 1e6:.1f} MB, for {_tag()}\n")


if __name__ == "__main__":
    main()
