"""RuntimeDefault seccomp profile, run by a small BPF interpreter."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.security.capabilities import DEFAULT, NAMES, mask_of
from plimsoll.node.security.seccomp import MACHINES, NEWEST, build_filter, refused_calls

EVERY = mask_of(NAMES)
ALLOW, EPERM, ENOSYS = "allow", 1, 38
#: Calls of x86_64 that containerd's default profile has in none of its lists, or only for capabilities that
#: containers do not have by default; by number, beside those that it judges by their arguments.
REFUSED_BY_DEFAULT = {
    103, 134, 136, 139, 153, 155, 156, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176,
    177, 178, 179, 180, 181, 182, 183, 184, 185, 212, 227, 236, 237, 238, 239, 246, 248, 249, 250, 256, 272,
    279, 298, 300, 304, 308, 312, 313, 320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 440,
    442, 443, 450,
}  # fmt: skip


def run(program: bytes, machine: str, number: int, arguments: Sequence[int] = ()) -> str | int:
    """Run a BPF program as the kernel does and return its verdict on one system call."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=iIQ6Q", number, MACHINES.get(machine, 0x40000003), 0, *padded)
    accumulator, at = 0, 0
    instructions = list(struct.iter_unpack("=HBBI", program))
    while True:
        code, hit, miss, value = instructions[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return ALLOW if value == 0x7FFF0000 else value & 0xFFFF
        else:
            test = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x45: bool(accumulator & value),
            }
            at += hit if test[code] else miss


@pytest.mark.parametrize("machine", list(MACHINES))
@given(number=st.integers(0, 600), capabilities=st.integers(0, EVERY), argument=st.integers(0, 2**64 - 1))
def test_the_bpf_program_equals_the_table(
    machine: str, number: int, capabilities: int, argument: int
) -> None:
    place = list(MACHINES).index(machine)
    found = run(build_filter(machine, capabilities), machine, number, [argument])
    admin = bool(capabilities & mask_of(("SYS_ADMIN",)))
    low = argument & 0xFFFFFFFF
    if number > NEWEST:
        expected: str | int = ENOSYS
    elif number in refused_calls(machine, capabilities):
        expected = EPERM
    elif number == (41, 198)[place]:
        expected = EPERM if low in (38, 40) else ALLOW
    elif number == (135, 92)[place]:
        expected = ALLOW if low in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF) else EPERM
    elif number == (56, 220)[place] and not admin:
        expected = EPERM if low & 0x7E020000 else ALLOW
    elif number == 435 and not admin:
        expected = ENOSYS
    else:
        expected = ALLOW
    assert found == expected


@pytest.mark.parametrize("machine", list(MACHINES))
@pytest.mark.parametrize("family", [1, 2, 10, 16, 17, 38, 40])
def test_sockets(machine: str, family: int) -> None:
    number = {"x86_64": 41, "aarch64": 198}[machine]
    found = run(build_filter(machine, DEFAULT), machine, number, [family])
    assert found == (EPERM if family in (38, 40) else ALLOW)


@pytest.mark.parametrize("machine", list(MACHINES))
def test_processes_and_namespaces(machine: str) -> None:
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    program = build_filter(machine, DEFAULT)
    fork, thread = 17, 0x3D0F00
    assert run(program, machine, clone, [fork]) == ALLOW
    assert run(program, machine, clone, [thread]) == ALLOW
    for kind in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert run(program, machine, clone, [kind | fork]) == EPERM
    assert run(program, machine, 435) == ENOSYS
    assert run(build_filter(machine, EVERY), machine, clone, [0x20000 | fork]) == ALLOW


def test_the_profile_refuses_what_containerds_does() -> None:
    assert refused_calls("x86_64", DEFAULT) == REFUSED_BY_DEFAULT
    # chroot is for those who may; nothing else depends on the default capabilities.
    assert refused_calls("x86_64", 0) == REFUSED_BY_DEFAULT | {161}
    never = refused_calls("x86_64", EVERY)
    assert never < REFUSED_BY_DEFAULT
    assert {425, 426, 427, 246, 250, 323} <= never
    assert {165, 272, 308, 321} <= REFUSED_BY_DEFAULT - never


def test_programs_of_another_architecture() -> None:
    program = build_filter("x86_64", EVERY)
    assert run(program, "i386", 1) == ENOSYS
    assert run(program, "x86_64", 0x40000000) == ENOSYS  # x32
    # As many instructions as the kernel takes, and no jump leads out of the program.
    assert len(program) // 8 < 4096
