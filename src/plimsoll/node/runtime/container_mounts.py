"""Mounts of a container: volumes, device nodes and a read-only root in a private mount namespace.

A module of the shim (see shim.py); imports nothing else of this package. Nothing that other processes see is
changed: mount points that do not exist are created in directories that cover the machine's for the container
only.
"""

from __future__ import annotations

import contextlib
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all the rest
    from typing import Any

    from plimsoll.node.runtime.confinement import SystemCalls

_MS = {
    "ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "sync": 16, "dirsync": 128, "noatime": 1024,
    "nodiratime": 2048, "bind": 4096, "rbind": 4096 | 16384, "relatime": 1 << 21, "strictatime": 1 << 24,
}  # fmt: skip
_MS_IGNORED = {
    "rw",
    "suid",
    "dev",
    "exec",
    "defaults",
    "async",
    "atime",
    "private",
    "rprivate",
    "slave",
    "rslave",
}
_MS_REMOUNT, _MS_BIND, _MS_MOVE, _MS_REC, _MS_SLAVE = 32, 4096, 8192, 16384, 1 << 19
#: Paths that stay writable under a read-only root file system, as in other runtimes: devices and /proc.
_STAYS_WRITABLE = ("/dev", "/proc")
#: Parts of /proc that are not per process and stay read-only (the readonlyPaths of OCI runtimes).
_PROC_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def mount_all(spec: dict[str, Any], kernel: SystemCalls) -> list[str]:
    """Perform mounts and device nodes in a private mount namespace: no other process sees them."""
    wanted, notes = list(spec.get("mounts", ())), []
    read_only = spec["credentials"]["read_only_root"]
    for device in spec.get("devices", ()):
        path, source = device["path"], device["host_path"] or device["path"]
        if not os.path.exists(source):
            notes.append(f"device {path}: {source} does not exist on this machine")
        elif os.path.realpath(path) != os.path.realpath(source):
            wanted.append({"source": source, "target": path, "type": "", "options": ["bind"]})
    volumes = spec.get("volumes", ())
    if not wanted and not volumes and not read_only:
        return notes
    try:
        unshare_mounts(kernel, with_user=bool(volumes))
        kernel.mount("none", "/", "", _MS_REC | _MS_SLAVE)
    except OSError as error:
        required = [volume["target"] for volume in volumes if not volume.get("optional")]
        if required:
            targets = ", ".join(required)
            raise RuntimeError(f"volumes cannot be mounted at {targets}: {error.strerror}") from None
        if read_only:
            text = f"the root file system cannot be made read-only: {error.strerror}"
            raise RuntimeError(text) from None
        targets = ", ".join(mount["target"] for mount in (*wanted, *volumes))
        return [*notes, f"nothing can be mounted at {targets}: {error.strerror}"]
    for mount in wanted:
        try:
            mount_one(mount, kernel)
        except OSError as error:
            notes.append(f"{mount['source']} cannot be mounted at {mount['target']}: {error.strerror}")
    if volumes:
        notes += mount_volumes(volumes, spec["stage"], kernel)
    if read_only:
        try:
            protect_root(kernel, [mount["target"] for mount in (*wanted, *volumes)])
        except OSError as error:
            text = f"the root file system cannot be made read-only: {error.strerror}"
            raise RuntimeError(text) from None
    return notes


def unshare_mounts(kernel: SystemCalls, *, with_user: bool) -> None:
    """Create a mount namespace; without the right to, if it is needed, inside a new user namespace in which
    this user and group keep their numbers.
    """
    try:
        kernel.unshare_mounts(user=False)
    except OSError as error:
        if not with_user or error.errno != errno.EPERM:
            raise
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare_mounts(user=True)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


# -- volumes


def mount_volumes(volumes: list[dict[str, Any]], stage: str, kernel: SystemCalls) -> list[str]:
    """Mount volumes, outer ones first; RuntimeError names the one that cannot be mounted. Return notes about
    optional ones that cannot.
    """
    notes = []
    sources = {volume["source"]: os.open(volume["source"], os.O_PATH | os.O_CLOEXEC) for volume in volumes}
    own: list[str] = []  #: directories in which only this container sees what is created
    for volume in sorted(volumes, key=lambda volume: volume["target"].count("/")):
        target = volume["target"]
        # By its descriptor: the path may lead elsewhere once the root is another one.
        source = f"/proc/self/fd/{sources[volume['source']]}"
        try:
            make_target(target, os.path.isdir(source), own, stage, kernel)
            kernel.mount(source, target, "", _MS_BIND | _MS_REC)
            if volume["read_only"]:
                kernel.set_read_only(target, on=True, recursive=True)
        except OSError as error:
            text = f"volume cannot be mounted at {target}: {error.strerror}"
            if not volume.get("optional"):
                raise RuntimeError(text) from None
            notes.append(text)
        own.append(target)
    for fd in sources.values():
        os.close(fd)
    return notes


def make_target(target: str, is_directory: bool, own: list[str], stage: str, kernel: SystemCalls) -> None:
    """Create a mount point if there is none, without changing anything that others see."""
    if os.path.exists(target):
        return
    top = os.path.dirname(target)
    while not os.path.isdir(top):
        top = os.path.dirname(top)
    if not any(is_below(top, (place,)) and (place != "/" or top == "/") for place in own):
        shadow(top, stage, kernel)
        own.append(top)
    os.makedirs(target if is_directory else os.path.dirname(target), mode=0o755, exist_ok=True)
    if not is_directory:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))


def shadow(directory: str, stage: str, kernel: SystemCalls) -> None:
    """Cover a directory by one in memory that has the same entries, by bind mounts."""
    os.makedirs(stage, mode=0o700, exist_ok=True)
    found = os.stat(directory)
    kernel.mount("none", stage, "tmpfs", 0, f"mode={found.st_mode & 0o7777:o},size=1m")
    with contextlib.suppress(OSError):
        os.chown(stage, found.st_uid, found.st_gid)
    for name in os.listdir(directory):
        source, place = os.path.join(directory, name), os.path.join(stage, name)
        if os.path.islink(source):
            os.symlink(os.readlink(source), place)
            continue
        if os.path.isdir(source):
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT, 0o600))
        try:
            kernel.mount(source, place, "", _MS_BIND | _MS_REC)
        except FileNotFoundError:  # removed meanwhile, as devices are
            os.rmdir(place) if os.path.isdir(place) else os.unlink(place)
    if directory == "/":
        os.chdir(stage)
        kernel.mount(stage, "/", "", _MS_MOVE)
        os.chroot(".")
        os.chdir("/")
    else:
        kernel.mount(stage, directory, "", _MS_MOVE)


def protect_root(kernel: SystemCalls, mounted: list[str]) -> None:
    """Make all file systems read-only in this mount namespace, except devices, /proc and the container's own
    mounts. Mounts that cannot be made writable again stay read-only.
    """
    tops = (*_STAYS_WRITABLE, *(os.path.realpath(path) for path in mounted))
    writable = [place for place in writable_mounts() if is_below(place, tops)]
    for path in _PROC_READ_ONLY:
        with contextlib.suppress(FileNotFoundError):
            kernel.mount(path, path, "", _MS_BIND)
    kernel.set_read_only("/", on=True, recursive=True)
    for place in writable:
        with contextlib.suppress(OSError):  # another mount hides it
            kernel.set_read_only(place, on=False)


def writable_mounts() -> list[str]:
    """Return the writable mount points of this namespace, parents first."""
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields = line.split(b" ")
            if b"rw" in fields[5].split(b","):
                # Blanks and the like are written as octal numbers.
                place = fields[4].decode("unicode_escape").encode("latin-1")
                found.append(os.fsdecode(place))
    return found


def is_below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)


def mount_one(mount: dict[str, Any], kernel: SystemCalls) -> None:
    source, target, kind = mount["source"], mount["target"], mount["type"]
    if not os.path.isabs(target):
        raise OSError(errno.EINVAL, "the target is not an absolute path")
    if not os.path.exists(target):
        raise OSError(errno.ENOENT, "the target does not exist, and this runtime changes nothing on the host")
    flags, data = 0, []
    for option in mount["options"]:
        if option in _MS:
            flags |= _MS[option]
        elif option not in _MS_IGNORED:
            data.append(option)
    if flags & _MS_BIND or kind in ("", "bind", "none"):
        kernel.mount(source, target, "", _MS_BIND | (flags & _MS_REC))
        if flags & ~(_MS_BIND | _MS_REC):
            kernel.mount("none", target, "", _MS_REMOUNT | _MS_BIND | (flags & ~_MS_REC))
    else:
        kernel.mount(source, target, kind, flags, ",".join(data))
