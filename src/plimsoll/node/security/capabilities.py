"""Names of Linux capabilities, and the sets that containerd gives to containers. Pure.

A set of capabilities is an integer with the bit of each capability set, as in `/proc/PID/status`.
"""

from __future__ import annotations

from collections.abc import Iterable

#: In the order of their numbers (linux/capability.h).
NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
#: Stands for every capability in `add` and `drop`.
ALL = "ALL"
_BITS = {name: 1 << number for number, name in enumerate(NAMES)}


def bit_of(name: str) -> int:
    """Return the bit of a capability named as in a security context; 0 if there is no such capability."""
    return _BITS.get(name.upper(), 0)


def mask_of(names: Iterable[str]) -> int:
    """Return the set of the named capabilities; names must be known."""
    mask = 0
    for name in names:
        mask |= _BITS[name]
    return mask


def names_in(mask: int) -> tuple[str, ...]:
    """Return the names of the capabilities in a set, those without a name as `CAP_NUMBER`."""
    numbers = [number for number in range(mask.bit_length()) if mask >> number & 1]
    return tuple(NAMES[n] if n < len(NAMES) else f"CAP_{n}" for n in numbers)


#: Capabilities of a container that specifies none: containerd's default, and Docker's.
DEFAULT = mask_of(
    (
        "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP",
        "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
    )
)  # fmt: skip
#: Capabilities an agent needs to start processes as other users, and to stop them.
SWITCH_USER = mask_of(("CHOWN", "KILL", "SETGID", "SETUID", "SETPCAP"))
SYS_ADMIN = mask_of(("SYS_ADMIN",))
