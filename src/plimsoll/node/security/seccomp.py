"""RuntimeDefault seccomp profile as a program for the kernel's BPF filter. Pure.

The profile refuses what containerd's default profile refuses, with EPERM, and depends on the container's
capabilities in the same way. System calls newer than this table, and those of another architecture (32-bit
programs), fail with ENOSYS, so that programs fall back to older calls.

DIFF: containerd lists what is allowed, the filter here what is refused and where the table ends; between them
are only numbers that the kernel has not assigned to any call
(test_the_profile_refuses_what_containerds_does).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from plimsoll.node.security.capabilities import mask_of

#: Architecture as the kernel's audit names it.
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Newest system call that the table considers (removexattrat, of Linux 6.13).
NEWEST = 466
EPERM, ENOSYS = 1, 38

#: Refused whatever the capabilities: name -> (x86_64, aarch64), None where it does not exist.
_NEVER: Mapping[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "add_key": (248, 217),
    "afs_syscall": (183, None),
    "create_module": (174, None),
    "get_kernel_syms": (177, None),
    "getpmsg": (181, None),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "nfsservctl": (180, 42),
    "pivot_root": (155, 41),
    "putpmsg": (182, None),
    "query_module": (178, None),
    "request_key": (249, 218),
    "security": (185, None),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "tuxcall": (184, None),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vserver": (236, None),
}
#: Refused unless the container has one of the capabilities.
_UNLESS: Mapping[str, tuple[tuple[str, ...], int | None, int | None]] = {
    "acct": (("SYS_PACCT",), 163, 89),
    "bpf": (("SYS_ADMIN", "BPF"), 321, 280),
    "chroot": (("SYS_CHROOT",), 161, 51),
    "clock_settime": (("SYS_TIME",), 227, 112),
    "delete_module": (("SYS_MODULE",), 176, 106),
    "fanotify_init": (("SYS_ADMIN",), 300, 262),
    "finit_module": (("SYS_MODULE",), 313, 273),
    "fsconfig": (("SYS_ADMIN",), 431, 431),
    "fsmount": (("SYS_ADMIN",), 432, 432),
    "fsopen": (("SYS_ADMIN",), 430, 430),
    "fspick": (("SYS_ADMIN",), 433, 433),
    "get_mempolicy": (("SYS_NICE",), 239, 236),
    "init_module": (("SYS_MODULE",), 175, 105),
    "ioperm": (("SYS_RAWIO",), 173, None),
    "iopl": (("SYS_RAWIO",), 172, None),
    "kcmp": (("SYS_PTRACE",), 312, 272),
    "lookup_dcookie": (("SYS_ADMIN",), 212, 18),
    "mbind": (("SYS_NICE",), 237, 235),
    "mount": (("SYS_ADMIN",), 165, 40),
    "mount_setattr": (("SYS_ADMIN",), 442, 442),
    "move_mount": (("SYS_ADMIN",), 429, 429),
    "open_by_handle_at": (("DAC_READ_SEARCH",), 304, 265),
    "open_tree": (("SYS_ADMIN",), 428, 428),
    "perf_event_open": (("SYS_ADMIN", "PERFMON"), 298, 241),
    "pidfd_getfd": (("SYS_PTRACE",), 438, 438),
    "process_madvise": (("SYS_PTRACE",), 440, 440),
    "quotactl": (("SYS_ADMIN",), 179, 60),
    "quotactl_fd": (("SYS_ADMIN",), 443, 443),
    "reboot": (("SYS_BOOT",), 169, 142),
    "set_mempolicy": (("SYS_NICE",), 238, 237),
    "set_mempolicy_home_node": (("SYS_NICE",), 450, 450),
    "setdomainname": (("SYS_ADMIN",), 171, 162),
    "sethostname": (("SYS_ADMIN",), 170, 161),
    "setns": (("SYS_ADMIN",), 308, 268),
    "settimeofday": (("SYS_TIME",), 164, 170),
    "syslog": (("SYS_ADMIN", "SYSLOG"), 103, 116),
    "umount2": (("SYS_ADMIN",), 166, 39),
    "unshare": (("SYS_ADMIN",), 272, 97),
    "vhangup": (("SYS_TTY_CONFIG",), 153, 58),
}
_SOCKET, _PERSONALITY, _CLONE, _CLONE3 = (41, 198), (135, 92), (56, 220), (435, 435)
#: Kinds of sockets into the kernel's crypto and to the hypervisor.
_AF_REFUSED = (38, 40)
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
#: Namespaces of every kind that clone can make.
_CLONE_NEW = 0x7E020000
_SYS_ADMIN = mask_of(("SYS_ADMIN",))

# Instructions of classic BPF, and offsets in struct seccomp_data.
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def refused_calls(machine: str, capabilities: int) -> frozenset[int]:
    """Return the numbers of the system calls that fail whatever their arguments."""
    place = tuple(MACHINES).index(machine)
    numbers = {each[place] for each in _NEVER.values()}
    for needed, *both in _UNLESS.values():
        if not mask_of(needed) & capabilities:
            numbers.add(both[place])
    return frozenset(number for number in numbers if number is not None)


def build_filter(machine: str, capabilities: int) -> bytes:
    """Return the profile as an array of `struct sock_filter`, for a container with these capabilities."""
    place = tuple(MACHINES).index(machine)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, MACHINES[machine]),
        _fail(ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_GREATER, 0, 1, NEWEST),
        _fail(ENOSYS),
    ]
    for number in sorted(refused_calls(machine, capabilities)):
        program += [(_EQUAL, 0, 1, number), _fail(EPERM)]
    program += _on_call(_SOCKET[place], [(_EQUAL, _AF_REFUSED)], allow=False)
    program += _on_call(_PERSONALITY[place], [(_EQUAL, _PERSONALITIES)], allow=True)
    if not capabilities & _SYS_ADMIN:
        program += _on_call(_CLONE[place], [(_ANY_BIT, (_CLONE_NEW,))], allow=False)
        # Its flags are in memory, where a filter cannot look; programs fall back to clone.
        program += [(_EQUAL, 0, 1, _CLONE3[place]), _fail(ENOSYS)]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _fail(errno: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ERRNO | errno)


def _on_call(
    number: int, tests: list[tuple[int, tuple[int, ...]]], *, allow: bool
) -> list[tuple[int, int, int, int]]:
    """Return instructions that allow or refuse a call by the low half of its first argument."""
    hit, miss = ((_RETURN, 0, 0, _ALLOW), _fail(EPERM)) if allow else (_fail(EPERM), (_RETURN, 0, 0, _ALLOW))
    instructions: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _ARGUMENT)]
    for code, values in tests:
        for value in values:
            instructions += [(code, 0, 1, value), hit]
    instructions.append(miss)
    return [(_EQUAL, 0, len(instructions), number), *instructions]
