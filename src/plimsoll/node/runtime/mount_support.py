"""Mounts that the process runtime supports, and whether containers can get any of their own."""

from __future__ import annotations

import subprocess
import sys

from plimsoll.node.containers import ContainerSpec

#: Volume types that are provided where that is possible.
VOLUME_TYPES = frozenset(
    {
        *("emptyDir", "configMap", "secret", "downwardAPI", "projected", "hostPath"),
        *("persistentVolumeClaim", "ephemeral"),
    }
)
_PROBE = """
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
if c.unshare(0x20000):
    uid, gid = os.geteuid(), os.getegid()
    if c.unshare(0x10000000 | 0x20000):
        raise SystemExit(1)
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write(f"{uid} {uid} 1")
    open("/proc/self/gid_map", "w").write(f"{gid} {gid} 1")
if c.mount(b"none", b"/", None, ctypes.c_ulong(16384 | 1 << 19), None):
    raise SystemExit(1)
raise SystemExit(bool(c.mount(b"none", b"/proc", b"tmpfs", ctypes.c_ulong(0), None)))
"""
_SECONDS = 30.0


def can_mount() -> bool:
    """Return whether a process of this user can mount something that only it sees."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROBE], capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def describe_propagation(spec: ContainerSpec) -> str:
    """Return the problem of a mount that propagates, in either direction; or ""."""
    for volume in spec.volumes:
        if volume.propagation not in ("", "None"):
            return (
                f"volumeMounts[{volume.target}].mountPropagation: {volume.propagation} is not supported by "
                "the process runtime, whose mounts are private; remove the field or set None"
            )
    return ""
