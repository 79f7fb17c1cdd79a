"""Confinement of a container process: joins cgroups, sets limits and credentials before exec.

With `shim.py` it forms a standalone program that imports nothing else of this package. Run as
`confinement.py FD` it becomes a command inside a running container, with the container's cgroups, limits,
mounts and credentials; the spec is read from the descriptor in `marshal` format: its caller runs the same
Python, and JSON takes longer to import than most commands take. A command runs with the credentials of its
spec, or it does not run.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import marshal
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all the rest
    from typing import Any, NoReturn

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_SECCOMP_MODE_FILTER, _PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1


class SystemCalls:
    """System calls that Python does not offer; without ctypes each of them fails with ENOSYS."""

    def __init__(self) -> None:
        self._libc: Any = None
        try:
            import ctypes  # noqa: PLC0415 - some Pythons are built without it

            self._libc, self._errno = ctypes.CDLL(None, use_errno=True), ctypes.get_errno
        except (ImportError, OSError):
            pass

    def call(self, name: str, *args: object) -> None:
        if self._libc is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if getattr(self._libc, name)(*args) != 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))

    def unshare_mounts(self, *, user: bool) -> None:
        """Create a mount namespace, optionally inside a new user namespace."""
        self.call("unshare", _CLONE_NEWNS | (_CLONE_NEWUSER if user else 0))

    def mount(self, source: str, target: str, kind: str, flags: int, data: str = "") -> None:
        texts = [os.fsencode(text) if text else None for text in (source, target, kind, data)]
        from ctypes import c_ulong  # noqa: PLC0415

        self.call("mount", texts[0], texts[1], texts[2], c_ulong(flags), texts[3])

    def set_read_only(self, path: str, *, on: bool, recursive: bool = False) -> None:
        """Make a mount read-only or writable, optionally with the mounts below it; other flags stay."""
        from ctypes import byref, c_uint64  # noqa: PLC0415

        # struct mount_attr: attr_set, attr_clr, propagation, userns_fd
        flags = (_MOUNT_ATTR_RDONLY, 0, 0, 0) if on else (0, _MOUNT_ATTR_RDONLY, 0, 0)
        attributes = (c_uint64 * 4)(*flags)
        self.call(
            "syscall",
            _SYS_MOUNT_SETATTR,
            _AT_FDCWD,
            os.fsencode(path),
            _AT_RECURSIVE if recursive else 0,
            byref(attributes),
            32,
        )

    def set_capabilities(self, mask: int) -> None:
        """Set the permitted and effective capabilities, and clear the inheritable and ambient ones."""
        from ctypes import byref, c_uint32  # noqa: PLC0415

        with contextlib.suppress(OSError):  # a kernel without ambient capabilities has none to clear
            self.call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        low, high = mask & 0xFFFFFFFF, mask >> 32
        header = (c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        data = (c_uint32 * 6)(low, low, 0, high, high, 0)
        self.call("capset", byref(header), byref(data))

    def install_filter(self, program: bytes) -> None:
        """Install a seccomp filter for this process and its descendants."""
        from ctypes import (  # noqa: PLC0415
            Structure,
            byref,
            c_char_p,
            c_ushort,
        )

        class Program(Structure):
            _fields_ = (("length", c_ushort), ("filter", c_char_p))

        value = Program(len(program) // 8, program)
        self.call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, byref(value), 0, 0)


def start_time(pid: int) -> int:
    """Return the start time of a process in ticks since boot: with the pid it identifies one process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


# -- cgroups and limits


def reset_signals() -> None:
    """Reset the signal handlers of Python and the shim."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError, ValueError):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def join_cgroups(spec: dict[str, Any]) -> None:
    for path in spec["join"]:
        with open(path, "w") as file:
            file.write(str(os.getpid()))


def set_limits(spec: dict[str, Any]) -> list[str]:
    """Set what a process inherits; return tolerable failures."""
    failures = []
    if spec.get("oom_score_adj") is not None:
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write(str(spec["oom_score_adj"]))
        except OSError as error:
            failures.append(f"oom_score_adj {spec['oom_score_adj']} cannot be set: {error.strerror}")
    if spec.get("affinity"):
        try:
            os.sched_setaffinity(0, spec["affinity"])
        except OSError as error:
            failures.append(f"CPUs {spec['affinity']} cannot be set: {error.strerror}")
    for name, (soft, hard) in spec.get("rlimits", {}).items():
        import resource  # noqa: PLC0415 - seldom needed

        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))
    return failures


def enter_directory(spec: dict[str, Any]) -> None:
    os.umask(spec.get("umask", 0o022))
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise RuntimeError(f'chdir to cwd ("{spec["cwd"]}") failed: {error.strerror}') from None


# -- credentials


def take_terminal() -> None:
    """Make the input, a terminal, the controlling terminal of this session."""
    import fcntl  # noqa: PLC0415 - seldom needed
    import termios  # noqa: PLC0415

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def own_output(credentials: dict[str, Any], outputs: tuple[int, ...]) -> None:
    """Change the owner of the outputs to the container's user, so that it can open /dev/stdout."""
    if credentials["uid"] != os.geteuid():
        for fd in outputs:
            os.fchown(fd, credentials["uid"], -1)


def confine(credentials: dict[str, Any], kernel: SystemCalls) -> None:
    """Set the credentials of a container, in the order in which the rights to do so are lost."""
    program = binascii.a2b_base64(credentials["seccomp"])
    uid, gid, mask = credentials["uid"], credentials["gid"], credentials["capabilities"]
    step = "seccomp filter"
    try:
        if program and not credentials["no_new_privs"]:
            kernel.install_filter(program)  # needs CAP_SYS_ADMIN, which is dropped below
        if credentials["switch"]:
            step = "capabilities"
            drop_bounding(mask, kernel)
            step = f"groups {credentials['groups']}"
            os.setgroups(credentials["groups"])
            step = f"group {gid}"
            os.setresgid(gid, gid, gid)
            step = f"user {uid}"
            os.setresuid(uid, uid, uid)
        step = "capabilities"
        kernel.set_capabilities(mask if uid == 0 else 0)
        step = "no_new_privs"
        if credentials["no_new_privs"]:
            kernel.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            step = "seccomp filter"
            if program:
                kernel.install_filter(program)
    except OSError as error:
        raise RuntimeError(f"cannot set {step} of the container: {error.strerror}") from None


def drop_bounding(mask: int, kernel: SystemCalls) -> None:
    """Drop all other capabilities from the bounding set, including those without a name."""
    for number in range(64):
        if not mask >> number & 1:
            try:
                kernel.call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
            except OSError as error:
                if error.errno != errno.EINVAL:  # beyond the last capability that the kernel knows
                    raise


# -- the command


def execute(spec: dict[str, Any]) -> NoReturn:
    argv, env = spec["argv"], spec["env"]
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)
    failure: OSError = FileNotFoundError(errno.ENOENT, "executable file not found in $PATH")
    for directory in env.get("PATH", DEFAULT_PATH).split(":"):
        try:
            os.execve(os.path.join(directory or ".", argv[0]), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            failure = error
    raise failure


def describe(spec: dict[str, Any], error: BaseException) -> str:
    if isinstance(error, RuntimeError):
        return str(error)
    command = (spec.get("argv") or [""])[0]
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        if error.filename in spec["join"]:
            return f"the container's cgroup cannot be joined: {error.filename}: {text}"
        return f'exec: "{command}": {text[:1].lower()}{text[1:]}'
    return f'exec: "{command}": {error}'


# -- commands in running containers


def run_inside(fd: int) -> NoReturn:
    """Become a command in a running container; the spec identifies the container's first process."""
    with os.fdopen(fd, "rb") as file:
        spec = marshal.load(file)
    kernel, report = SystemCalls(), spec.get("report", 2)
    try:
        reset_signals()
        if report != 2:
            os.set_inheritable(report, False)  # closed by a command that is executed
        if spec.get("tty"):
            take_terminal()
        join_cgroups(spec)
        if spec["own_mounts"]:
            enter_mounts(spec["pid"], spec["pid_start"], kernel)
        set_limits(spec)
        enter_directory(spec)
        own_output(spec["credentials"], (1, 2))
        confine(spec["credentials"], kernel)
        execute(spec)
    except BaseException as error:  # the caller reads any error, by default as the command's output
        os.write(report, describe(spec, error).encode(errors="replace") + b"\n")
    os._exit(126)


def enter_mounts(pid: int, start: int, kernel: SystemCalls) -> None:
    """Join the mount namespace of a process."""
    try:
        fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        if start_time(pid) != start:
            raise ProcessLookupError
        if os.stat(f"/proc/{pid}/ns/user").st_ino != os.stat("/proc/self/ns/user").st_ino:
            user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            kernel.call("setns", user, _CLONE_NEWUSER)
            os.close(user)
        kernel.call("setns", fd, _CLONE_NEWNS)
        os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        raise RuntimeError("the container is no longer running") from None
    except OSError as error:
        raise RuntimeError(f"cannot join the mounts of the container: {error.strerror}") from None


if __name__ == "__main__":
    run_inside(int(sys.argv[1]))
