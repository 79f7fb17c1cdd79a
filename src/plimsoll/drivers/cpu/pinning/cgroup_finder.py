"""Discovery of the cgroups of pods and containers by their names.

Supported names: `pod<UID>` of the cgroupfs driver and of the Plimsoll node agent, `..-pod<UID with _>.slice`
of systemd, and inside them containers as `<id>`, `crio-<id>`, `cri-containerd-<id>.scope` and similar,
anywhere in the hierarchy. Only cgroups of known pods are returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from plimsoll.drivers.cpu.pinning.cpusets import MAX_DEPTH, Files

_SCOPE, _SLICE = ".scope", ".slice"
#: Prefixes of sibling directories that are not containers.
_NO_CONTAINERS = ("crio-conmon-",)


class CgroupFinder:
    """Finds cgroups below a root, and caches those of pods."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._known: dict[str, Path] = {}

    def pods(self, uids: Iterable[str]) -> dict[str, Path]:
        """Return the existing cgroups of pods by UID."""
        desired = set(uids)
        found = {
            uid: directory
            for uid, directory in self._known.items()
            if uid in desired and self._files.read(directory / "cgroup.procs") is not None
        }
        if len(found) < len(desired):
            found |= self._search(desired)
        self._known = found
        return dict(found)

    def _search(self, uids: set[str]) -> dict[str, Path]:
        by_name = {_plain(uid): uid for uid in uids}
        found: dict[str, Path] = {}
        for directory in self._walk(self._root, 0):
            uid = by_name.get(pod_part(directory.name))
            if uid is not None:
                found.setdefault(uid, directory)
        return found

    def _walk(self, directory: Path, depth: int) -> Iterator[Path]:
        for name in self._files.subdirectories(directory):
            inner = directory / name
            yield inner
            # Pod cgroups contain containers, whose children are their own.
            if depth < MAX_DEPTH and not pod_part(name):
                yield from self._walk(inner, depth + 1)

    def containers(self, pod: Path, ids: Iterable[str]) -> dict[str, Path]:
        """Return the cgroups inside a pod's cgroup by container ID; unknown ones by what looks like an ID."""
        known = set(ids)
        found = {}
        for name in self._files.subdirectories(pod):
            if not name.startswith(_NO_CONTAINERS):
                found[container_id(name, known)] = pod / name
        return found


def pod_part(name: str) -> str:
    """Return the normalized UID in the name of a pod's cgroup, "" for other names."""
    if name.startswith("pod"):
        return _plain(name.removeprefix("pod"))
    if name.endswith(_SLICE) and "-pod" in name:
        return _plain(name.removesuffix(_SLICE).rpartition("-pod")[2])
    return ""


def _plain(uid: str) -> str:
    # systemd uses dashes as path separators, so they are escaped.
    return uid.replace("-", "_")


def container_id(name: str, known: Collection[str] = ()) -> str:
    """Return the container ID in the name of a cgroup."""
    plain = name.removesuffix(_SCOPE)
    if plain in known:
        return plain
    parts = plain.split("-")
    for first in range(1, len(parts)):
        rest = "-".join(parts[first:])
        if rest in known:
            return rest
    return plain if plain == name else parts[-1]
