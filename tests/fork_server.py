"""Processes of `plimsoll` that start quickly: forked from one that has already imported all code.

As a module it is that process. It receives commands with their standard streams over a socket, forks a child
for each, and reports the exit of its children. `start_forked` is the side of the tests. Whatever depends on
the start of the interpreter (limits, users) needs a process of its own instead. Test processes that are
forked after `share_fork_server` each get a fork of one such process, so that the code is imported once.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

_MODULES = (
    "plimsoll.cli.main",
    "plimsoll.cli.up",
    "plimsoll.up.serve",
    "plimsoll.apiserver.process",
    "plimsoll.scheduler.process.dry_run",
    "plimsoll.scheduler.process.run",
    "plimsoll.node.process.run",
    "plimsoll.drivers.cpu.config_file",
    "plimsoll.drivers.cpu.process.run",
    "plimsoll.controllers.manager",
    "plimsoll.tools.audit.checks",
    "plimsoll.tools.dashboard.server",
)
_MESSAGE = 1 << 17  #: bytes of a request, most of them environment
_TICK = 0.1
#: Environment variable with the name of the socket of a shared server.
_SHARED = "PLIMSOLL_FORK_SERVER"


class ForkedProcess:
    """Process with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, server: _ForkServer, pid: int, stdout: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self._server = server

    def poll(self) -> int | None:
        return self._server.exit_code(self.pid)

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(f"PID {self.pid}", timeout)
            self._server.wait(min(left, _TICK))
        return code

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _ForkServer:
    """The process that forks, as its clients see it; its methods can be called from any thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if shared := os.environ.get(_SHARED):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.connect(f"\0{shared}")
        else:
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with other:
                self._process = _start_server(other)
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        atexit.register(self.close)

    def start(self, request: dict[str, Any], streams: Sequence[int]) -> int:
        """Fork a child; return its PID."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            while True:
                message = json.loads(self._socket.recv(_MESSAGE))
                if "code" not in message:
                    self._codes.pop(message["pid"], None)  # of an earlier process
                    return int(message["pid"])
                self._codes[message["pid"]] = message["code"]

    def exit_code(self, pid: int) -> int | None:
        with self._lock:
            while self.wait(0):
                message = json.loads(self._socket.recv(_MESSAGE))
                self._codes[message["pid"]] = message["code"]
            return self._codes.get(pid)

    def wait(self, seconds: float) -> bool:
        """Wait for a report; return whether there is one."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        self._socket.close()
        if self._process is not None:
            self._process.wait()


def _start_server(connection: socket.socket, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server", str(connection.fileno())],
        stdin=stdin,
        pass_fds=[connection.fileno()],
        cwd=Path(__file__).parents[1],
    )


@cache
def share_fork_server() -> subprocess.Popen[bytes]:
    """Start a server for this process and those that are forked from it; it ends after the last of them."""
    name = f"plimsoll-tests-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        os.environ[_SHARED] = name
        return _start_server(listening, stdin=subprocess.PIPE)


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


def start_forked(
    arguments: Sequence[object],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    at_terminal: bool = False,
    module: str = "plimsoll.cli.main",
) -> ForkedProcess:
    """Start `plimsoll ARGUMENTS` with the environment and the working directory of this process.

    `at_terminal` makes standard input the controlling terminal, so that Ctrl-C is a signal. `module` has the
    function `main` that gets the arguments.
    """
    null = os.open(os.devnull, os.O_RDWR)
    opened = [null]
    reader: IO[bytes] | None = None
    if stdout == subprocess.PIPE:
        here, there = os.pipe()
        reader, stdout = os.fdopen(here, "rb", buffering=0), there
        opened.append(there)
    try:
        streams = [
            null if each == subprocess.DEVNULL else each if isinstance(each, int) else each.fileno()
            for each in (stdin, stdout, stderr)
        ]
        request = {
            "arguments": [*map(str, arguments)],
            "cwd": os.getcwd(),
            "environment": dict(os.environ),
            "at_terminal": at_terminal,
            "module": module,
        }
        server = _fork_server()
        return ForkedProcess(server, server.start(request, streams), reader)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def run_forked(
    arguments: Sequence[object], timeout: float, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `plimsoll ARGUMENTS` to its end, with a text as standard input."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as errors:
        given.write(text.encode())
        given.seek(0)
        process = start_forked(arguments, stdin=given.fileno(), stdout=out, stderr=errors)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        texts = [os.pread(each.fileno(), 1 << 24, 0).decode() for each in (out, errors)]
    return subprocess.CompletedProcess([*map(str, arguments)], code, *texts)


# -- the process that forks


def main() -> None:
    """Serve until the other end is closed, then kill the children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in _MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is imported is not searched again in every child
    if control.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        control = _accept_in_child(control)
    wakeup, signaled = socket.socketpair()
    for each in (wakeup, signaled):
        each.setblocking(False)
    signal.set_wakeup_fd(signaled.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    children: set[int] = set()
    while True:
        ready = select.select([control, wakeup], [], [])[0]
        if wakeup in ready:
            wakeup.recv(4096)
            for pid, code in _reap():
                children.discard(pid)
                with suppress(OSError):
                    control.send(json.dumps({"pid": pid, "code": code}).encode())
        if control in ready:
            data, streams, _, _ = socket.recv_fds(control, _MESSAGE, 3)
            if not data:
                break
            pid = os.fork()
            if not pid:
                for each in (control, wakeup, signaled):
                    each.close()
                _become(json.loads(data), streams)
            for descriptor in streams:
                os.close(descriptor)
            children.add(pid)
            control.send(json.dumps({"pid": pid}).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _accept_in_child(listening: socket.socket) -> socket.socket:
    """Fork a child for each connection, in which this returns; end when standard input is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no exit codes are needed
    while True:
        ready = select.select([listening, sys.stdin], [], [])[0]
        if sys.stdin in ready:
            sys.exit()
        connection = listening.accept()[0]
        if not os.fork():
            listening.close()
            return connection
        connection.close()


def _reap() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found[0], os.waitstatus_to_exitcode(found[1])


def _become(request: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    """Run a command in the forked process."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["at_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # As the interpreter makes them: whether a stream can seek is found out when it is opened.
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    random.seed()
    sys.argv = ["plimsoll", *request["arguments"]]
    sys.exit(importlib.import_module(request["module"]).main(request["arguments"]))


if __name__ == "__main__":
    main()
