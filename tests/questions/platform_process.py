"""Process that runs query commands as on another platform: `python platform_process.py PLATFORM < JSON`.

PLATFORM is `win32` or `darwin`: what the standard library lacks there, and the packages of the extra
`server`, are removed before Plimsoll is imported; files that only Linux has cannot be opened. With `native`
nothing is changed, which also runs on Windows (docs/conformance.md). Standard input is a JSON list of
commands; standard output is the list of their exit codes, outputs and errors. Other dependencies are loaded
before the change: they have wheels for all platforms.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import io
import json
import os
import platform
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
import zipfile
import zoneinfo
from collections.abc import Callable
from typing import Any

#: Modules, and attributes of `os`, `signal` and `socket`, that a platform lacks.
MODULES = {
    "win32": "crypt curses fcntl grp nis ossaudiodev posix pty pwd readline resource spwd syslog termios tty",
    "darwin": "ossaudiodev spwd",
}
ATTRIBUTES = {
    "win32": {
        os: """O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC
            O_TMPFILE WEXITSTATUS WIFEXITED chown environb eventfd fchdir fchmod fchown
            fdatasync fork forkpty fstatvfs getegid geteuid getgid getgroups getloadavg getpgid
            getpgrp getpriority getrandom getsid getuid getxattr killpg lchown major makedev
            memfd_create minor mkfifo mknod nice openpty pidfd_open pipe2 posix_fallocate
            posix_spawn pread pwrite readv register_at_fork sched_getaffinity sched_setaffinity
            sendfile setgid setpgid setpriority setsid setuid setxattr statvfs sync sysconf
            ttyname uname wait waitid writev""",
        signal: """SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 SIGWINCH
            alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending
            sigtimedwait sigwait""",
        socket: """AF_NETLINK AF_UNIX AF_VSOCK CMSG_LEN CMSG_SPACE MSG_DONTWAIT MSG_NOSIGNAL SCM_RIGHTS
            SO_PEERCRED SO_REUSEPORT SOCK_CLOEXEC SOCK_NONBLOCK TCP_USER_TIMEOUT recv_fds send_fds""",
        asyncio: "open_unix_connection start_unix_server",
    },
    "darwin": {
        os: """O_DIRECT O_NOATIME O_PATH O_TMPFILE eventfd fdatasync getrandom getxattr memfd_create
            pidfd_open posix_fallocate sched_getaffinity sched_setaffinity setxattr""",
        signal: "sigtimedwait sigwaitinfo",
        socket: "AF_NETLINK SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK TCP_QUICKACK TCP_USER_TIMEOUT",
    },
}
#: Constants that only Windows has.
OF_WINDOWS = {"O_BINARY": 0, "O_NOINHERIT": getattr(os, "O_CLOEXEC", 0)}
LINUX_FILES = ("/proc/", "/sys/", "/run/", "/var/run/", "/etc/localtime", "/usr/share/zoneinfo/", "/dev/shm")
PACKAGES = ("aiohttp.web", "click.shell_completion", "msgspec.json", "numpy", "re2", "tzdata", "yaml")
SERVER_PACKAGES = ("cryptography", "google", "grpc", "h2", "jwt")
#: What asyncio on Windows does not implement.
OF_LOOPS = """add_reader add_signal_handler add_writer create_unix_connection create_unix_server remove_reader
    remove_signal_handler remove_writer"""


def become(name: str) -> None:
    """Change this process's standard library to that of a platform."""
    assert not [module for module in sys.modules if module.split(".")[0] == "plimsoll"]
    for module in PACKAGES:
        importlib.import_module(module)
    if name == "win32":  # where it needs no Unix sockets
        socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)
    platform.uname()  # which keeps what it returns
    for module in (*MODULES[name].split(), *SERVER_PACKAGES):
        sys.modules[module] = None  # type: ignore[assignment]
    for place, names in ATTRIBUTES[name].items():
        for each in names.split():
            if hasattr(place, each):
                delattr(place, each)
    zoneinfo.reset_tzpath([])
    sys.addaudithook(refuse_linux_files)
    sys.platform = name
    if name == "win32":
        for constant, value in OF_WINDOWS.items():
            setattr(os, constant, value)
        os.pathsep = ";"
        for each in OF_LOOPS.split():
            setattr(
                asyncio.SelectorEventLoop, each, not_implemented(getattr(asyncio.SelectorEventLoop, each))
            )


def not_implemented(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that only asyncio itself may call."""

    def call(*given: Any, **named: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("asyncio."):
            return method(*given, **named)
        raise NotImplementedError

    return call


def refuse_linux_files(event: str, given: tuple[Any, ...]) -> None:
    """Audit hook: what only Linux has is not there."""
    if event in ("open", "os.listdir", "os.scandir") and str(given[0]).startswith(LINUX_FILES):
        raise FileNotFoundError(2, "No such file or directory", given[0])


def run(words: list[str]) -> tuple[object, str, str]:
    """Run a command to its end; return its exit code, its output and its errors."""
    from plimsoll.cli.main import main  # noqa: PLC0415 - after `become`

    visited = _Visited() if words[0] == "dashboard" else None
    out, err = visited or io.BytesIO(), io.BytesIO()
    code: object = None
    writers = _writer(out), _writer(err)  # which close what they write to when they are freed
    with contextlib.redirect_stdout(writers[0]), contextlib.redirect_stderr(writers[1]):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
    return code, _text(out) if visited is None else "\n".join(visited.pages), _text(err)


def _writer(content: io.BytesIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(content, encoding="utf-8", newline="", write_through=True)


def _text(content: io.BytesIO) -> str:
    return content.getvalue().decode().replace(os.linesep, "\n")


class _Visited(io.BytesIO):
    """Output of the dashboard: when it names its address, get pages there and interrupt the process."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[str] = []

    def write(self, content: Any) -> int:
        if b"http://" in content:
            url = bytes(content).decode().split()[-1]
            threading.Thread(target=visit, args=(url, self.pages)).start()
        return super().write(content)


def visit(url: str, pages: list[str]) -> None:
    """Get pages of a dashboard, then interrupt this process."""
    try:
        for path in ("", "api/nodes", "metrics"):
            with urllib.request.urlopen(url + path, timeout=30) as reply:
                pages.append(f"{path} {reply.status} {len(reply.read()) > 100}")
    except OSError as error:
        pages.append(repr(error))
    time.sleep(0.1)
    if os.name == "nt":
        signal.raise_signal(signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Run the commands of standard input."""
    commands: list[list[str]] = json.load(sys.stdin)
    if sys.argv[1] != "native":
        become(sys.argv[1])
    sys.stdout.write(json.dumps([run(words) for words in commands]))


if __name__ == "__main__":
    main()

#: Loaded before the change, because they use at import what a platform lacks.
_LOADED = (ssl, subprocess, tarfile, zipfile)
