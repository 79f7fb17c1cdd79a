"""Cgroups: controllers of the machine, the cgroup tree of this node, and leaked cgroups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plimsoll.errors import InputError
from plimsoll.node.cgroups import Cgroups, detect, open_cgroups
from plimsoll.node.cgroups.detect import DetectedCgroups
from plimsoll.node.cgroups.kernel import LinuxKernel
from plimsoll.node.cgroups.ownership import read_mark
from plimsoll.node.cgroups.tree import root_parts
from plimsoll.tools.doctor.facts import CgroupFacts, NodeFacts, OrphanRoot
from plimsoll.tools.doctor.findings import command, error, finding, note, ok, warning
from plimsoll.tools.findings import Finding, Severity

MOUNT = Path("/sys/fs/cgroup")
_OWNER = "owner."
_TIERS = ("burstable", "besteffort")
#: Controller -> consequence if it is missing.
NEEDED = {
    "cpu": "CPU shares and quotas are not set",
    "memory": "memory limits are not enforced, and memory pressure is not detected",
    "cpuset": "containers are not pinned to CPUs",
    "pids": "pod process counts are not limited",
}


def open_tree(root: str, owner: str, want: str, mount: Path = MOUNT) -> Cgroups | None:
    """Return the cgroups of a node as its agent manages them, or None."""
    if want == "plan":
        return None
    try:
        tree = open_cgroups(root, mount=mount, want=want, owner=owner)  # type: ignore[arg-type]
    except (InputError, OSError):
        return None
    return tree if tree.version else None


def gather(root: str, owner: str, tree: Cgroups | None, mount: Path = MOUNT) -> CgroupFacts:
    kernel = LinuxKernel()
    found = detect(mount, kernel)
    version = tree.version if tree is not None else found.version
    mounts = _mounts(found, version)
    controllers = found.v2 if version == 2 else tuple(found.v1)
    try:
        name = "/".join(root_parts(root))
    except InputError:
        return CgroupFacts(version=version, controllers=controllers, read_only=found.read_only, root=root)
    owners, missing, exists = set[str](), [], False
    for directory in (each / name for each in mounts):
        below = kernel.subdirectories(directory)
        exists = exists or kernel.exists(directory)
        own = [each.removeprefix(_OWNER) for each in below if each.startswith(_OWNER)]
        owners.update(own)
        if own:
            missing += [str(directory / tier) for tier in _TIERS if tier not in below]
    pods = {uid: _count(tree, uid) for uid in tree.pods()} if tree is not None else {}
    return CgroupFacts(
        version=version,
        controllers=controllers,
        read_only=found.read_only,
        root=name,
        owner=owner,
        exists=exists,
        owners=tuple(sorted(owners)),
        missing_tiers=tuple(missing),
        pods=pods,
        orphans=tuple(sorted(_orphans(mounts, kernel, name), key=lambda each: each.name)),
    )


def _count(tree: Cgroups, uid: str) -> int:
    try:
        return len(tree.pids(uid))
    except InputError:  # not the name of a pod
        return 0


def _mounts(found: DetectedCgroups, version: int) -> tuple[Path, ...]:
    if version == 2:
        return (found.v2_mount,) if found.v2_mount is not None else ()
    return tuple(dict.fromkeys(found.v1.values()))


def _orphans(mounts: tuple[Path, ...], kernel: LinuxKernel, own: str) -> Iterator[OrphanRoot]:
    """Yield the roots of agents that are not running and whose directory was deleted."""
    for name in {name for mount in mounts for name in kernel.subdirectories(mount) if name != own}:
        directories = tuple(each / name for each in mounts if kernel.exists(each / name))
        below = {each for directory in directories for each in kernel.subdirectories(directory)}
        if any(each.startswith(_OWNER) for each in below):
            mark = read_mark(directories)
            if mark.gone and not mark.alive:
                inside = {pid for directory in directories for pid in _pids(directory, kernel)}
                yield OrphanRoot(name=name, directories=directories, data=mark.data, processes=len(inside))


def _pids(directory: Path, kernel: LinuxKernel) -> Iterator[str]:
    yield from (kernel.read(directory / "cgroup.procs") or "").split()
    for name in kernel.subdirectories(directory):
        yield from _pids(directory / name, kernel)


def check(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cgroups
    text_found = (
        f"version {found.version}: {' '.join(found.controllers)}" if found.version else "not available"
    )
    if found.read_only:
        text_found += f"; not writable: {' '.join(found.read_only)}"
    if facts.is_kubelet or facts.runtime != "process" or found.planned:
        yield note("cgroups.version", "cgroups", text_found)
        return
    yield from _check_version(facts, text_found)
    if not found.version:
        return
    yield from _check_root(facts)
    yield from _check_leftovers(facts)


def _check_version(facts: NodeFacts, text_found: str) -> Iterator[Finding]:
    found = facts.cgroups
    if not found.version:
        fix = "mount cgroups writable for the agent; until then limits are not enforced"
        yield warning("cgroups.version", "cgroups", text_found, fix)
        return
    missing = [name for name in NEEDED if name not in found.controllers]
    for name in missing:
        fix = "enable the controller for the agent"
        yield warning("cgroups.controller", name, f"not available: {NEEDED[name]}", fix)
    if not missing:
        yield ok("cgroups.version", "cgroups", text_found)


def _check_root(facts: NodeFacts) -> Iterator[Finding]:
    found, subject = facts.cgroups, facts.cgroups.root
    strange = [name for name in found.owners if name != found.owner]
    if found.exists and (strange or not found.owners):
        whose = strange[0] if strange else "another owner"
        fix = "use another root with --cgroup-root"
        yield error("cgroups.root", subject, f"it belongs to {whose}, not to {found.owner}", fix)
    elif found.exists and found.missing_tiers:
        fix = "restart the agent: it creates them"
        severity = Severity.ERROR if facts.running else Severity.INFO
        yield finding("cgroups.tiers", severity, subject, f"missing: {' '.join(found.missing_tiers)}", fix)
    elif found.exists:
        yield ok("cgroups.root", subject, f"of {facts.node}, with its QoS tiers; {len(found.pods)} pods")
    elif facts.running:
        fix = "if the agent uses another name or cgroup root, pass --name or --cgroup-root"
        yield warning("cgroups.root", subject, "an agent is running, but it does not exist", fix)
    else:
        yield ok("cgroups.root", subject, "does not exist; the agent creates it")
    for other in found.orphans:
        text = f"of an agent whose directory {other.data} was deleted; {other.processes} processes inside"
        fix = f"kill the processes and remove it: {_removal(other.directories)}"
        yield warning("cgroups.orphan", other.name, text, fix)


def _removal(directories: tuple[Path, ...]) -> str:
    """Return the commands that kill the processes of cgroups, and remove them."""
    find = command("find", *directories)
    return f"{find} -name cgroup.procs -exec cat {{}} + | xargs -r kill -9; sleep 1; {find} -type d -delete"


def _check_leftovers(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cgroups
    if not facts.records.admitted.usable:
        if found.pods:
            text = f"{len(found.pods)} pods have cgroups; the admitted pods are unknown"
            yield note("cgroups.leftover", found.root, text, "correct the record of admitted pods first")
        return
    known = {*facts.records.pods, *(pod.uid for pod in facts.pods.pods)}
    left = [uid for uid in found.pods if uid not in known]
    for uid in left:
        text = f"of an unknown pod; {found.pods[uid]} processes inside"
        fix = "the agent removes it within a minute" if facts.running else "start the agent: it removes it"
        yield warning("cgroups.leftover", f"pod {uid}", text, fix)
    if not left:
        yield ok("cgroups.leftover", found.root, f"{len(found.pods)} pods, all known")
