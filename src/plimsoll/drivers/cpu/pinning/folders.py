"""The cgroups of pods and containers, by the names that kubelets and runtimes give them.

Owns the names: `pod<UID>` of the cgroupfs driver and of our own agent, `..-pod<UID with _>.slice` of systemd,
and inside them containers as `<id>`, `crio-<id>`, `cri-containerd-<id>.scope` and the like. Where in the tree
they are does not matter. Only cgroups of pods that are known are ever found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from plimsoll.drivers.cpu.pinning.cpusets import DEEPEST, Files

_SCOPE, _SLICE = ".scope", ".slice"
#: Folders beside containers that are none.
_NO_CONTAINERS = ("crio-conmon-",)


class Folders:
    """Finds cgroups below a root, and remembers where pods were."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._known: dict[str, Path] = {}

    def pods(self, uids: Iterable[str]) -> dict[str, Path]:
        """The cgroups of pods, those that have one."""
        wanted = set(uids)
        found = {
            uid: folder
            for uid, folder in self._known.items()
            if uid in wanted and self._files.read(folder / "cgroup.procs") is not None
        }
        if len(found) < len(wanted):
            found |= self._search(wanted)
        self._known = found
        return dict(found)

    def _search(self, uids: set[str]) -> dict[str, Path]:
        by_name = {_plain(uid): uid for uid in uids}
        found: dict[str, Path] = {}
        for folder in self._walk(self._root, 0):
            uid = by_name.get(pod_part(folder.name))
            if uid is not None:
                found.setdefault(uid, folder)
        return found

    def _walk(self, folder: Path, depth: int) -> Iterator[Path]:
        for name in self._files.folders(folder):
            inner = folder / name
            yield inner
            # What is inside a pod are containers, and what is inside these is theirs.
            if depth < DEEPEST and not pod_part(name):
                yield from self._walk(inner, depth + 1)

    def containers(self, pod: Path, ids: Iterable[str]) -> dict[str, Path]:
        """The cgroups inside a pod's, by the ids of the containers; others by what looks like an id."""
        known = set(ids)
        found = {}
        for name in self._files.folders(pod):
            if not name.startswith(_NO_CONTAINERS):
                found[container_id(name, known)] = pod / name
        return found


def pod_part(name: str) -> str:
    """The UID in the name of a pod's cgroup in a plain form; nothing if it is none."""
    if name.startswith("pod"):
        return _plain(name.removeprefix("pod"))
    if name.endswith(_SLICE) and "-pod" in name:
        return _plain(name.removesuffix(_SLICE).rpartition("-pod")[2])
    return ""


def _plain(uid: str) -> str:
    # systemd takes dashes for steps in the tree, so that they are written otherwise.
    return uid.replace("-", "_")


def container_id(name: str, known: Collection[str] = ()) -> str:
    """The id in the name of a container's cgroup."""
    plain = name.removesuffix(_SCOPE)
    if plain in known:
        return plain
    parts = plain.split("-")
    for first in range(1, len(parts)):
        rest = "-".join(parts[first:])
        if rest in known:
            return rest
    return plain if plain == name else parts[-1]
