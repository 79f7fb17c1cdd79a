"""Writer of CDI files: a temporary file and a rename, so that readers never see a partial file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import yaml

from plimsoll.common.atomic_file import replace_file, temporary_path
from plimsoll.protocols.cdi.reading import CdiFault
from plimsoll.protocols.cdi.spec import CdiSpec, check_spec


def spec_name(vendor: str, cls: str, transient: str = "") -> str:
    """Return the name of a file without extension.

    `transient` is the ID of its owner, such as a claim, if the file is removed with it.
    """
    name = f"{vendor}-{cls}"
    return f"{name}_{transient.replace('/', '_')}" if transient else name


def write_spec(directory: Path, name: str, spec: CdiSpec) -> Path | CdiFault:
    """Write a file, replacing one of the same name; JSON unless the name ends in `.yaml`. Return its path.

    Not durable: containers end with a crash of the machine, and claims are prepared again after it.
    """
    path, fault = _path(directory, name)
    if fault is not None:
        return fault
    if findings := check_spec(spec):
        return CdiFault("invalid", str(path), f"invalid CDI Spec: {'; '.join(findings)}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, _encode(spec, path), mode=0o644, durable=False)
    except (OSError, ValueError) as error:
        return CdiFault("unwritable", str(path), f"failed to write Spec file: {error}")
    return path


def remove_spec(directory: Path, name: str) -> CdiFault | None:
    """Remove a file; succeeds if it does not exist."""
    path, fault = _path(directory, name)
    if fault is not None:
        return fault
    try:
        path.unlink(missing_ok=True)
        if os.path.lexists(temporary_path(path)):
            temporary_path(path).unlink(missing_ok=True)
    except OSError as error:
        return CdiFault("unwritable", str(path), f"failed to remove Spec file: {error}")
    return None


def _path(directory: Path, name: str) -> tuple[Path, CdiFault | None]:
    if not name.endswith((".json", ".yaml")):
        name += ".json"
    path = directory / name
    if "/" in name or "\0" in name or name.startswith("."):
        return path, CdiFault("unwritable", repr(name), "not a valid name of a CDI file")
    return path, None


def _encode(spec: CdiSpec, path: Path) -> bytes:
    tree = msgspec.to_builtins(spec)
    if path.suffix == ".yaml":
        return ("---\n" + yaml.safe_dump(tree, sort_keys=False)).encode()
    return msgspec.json.format(msgspec.json.encode(tree), indent=2) + b"\n"
