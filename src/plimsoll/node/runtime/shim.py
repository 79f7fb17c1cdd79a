"""Shim: parent process of a container that starts it, writes its log and records its exit.

Run as `python -I -S shim.py SPEC.json`; a standalone program that imports nothing else of this package, so
that it starts fast, stays small and outlives the agent, of any version. It inherits two descriptors: 3, a
pipe on which it reports in one line of JSON that the container runs or why not, and 4, a file that stays
locked for as long as the shim lives, so that a later agent can detect it.

Guarantees, in the container's directory: `run.json` exists before the container's command runs (pid and start
times), `exit.json` exists when all its processes are gone (exit code, signal, time). Each is written under
another name and renamed. If the shim is killed, the container's first process dies with it; also if the
directory is removed. A container's process has the credentials of the spec before its command runs, or the
command does not run.

Its other modules, `confinement.py`, `console.py`, `container_log.py` and `container_mounts.py`, are in the
same directory, compiled or not.

   shim --- first process --- its descendants; orphans become the shim's children and die with the first
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all the rest
    from typing import Any, NoReturn

    from plimsoll.node.runtime.confinement import (
        SystemCalls,
        confine,
        describe,
        enter_directory,
        execute,
        join_cgroups,
        own_output,
        reset_signals,
        set_limits,
        start_time,
        take_terminal,
    )
    from plimsoll.node.runtime.console import ContainerConsole
    from plimsoll.node.runtime.container_log import ContainerLog, read_tail
    from plimsoll.node.runtime.container_mounts import mount_all
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from confinement import (
        SystemCalls,
        confine,
        describe,
        enter_directory,
        execute,
        join_cgroups,
        own_output,
        reset_signals,
        set_limits,
        start_time,
        take_terminal,
    )
    from console import ContainerConsole
    from container_log import ContainerLog, read_tail
    from container_mounts import mount_all

    del sys.path[0]

STATUS, LOCK = 3, 4
#: Exit code of other runtimes for a command that could not be started.
START_ERROR = 128
#: Size of the message of an exit, in bytes; the kubelet's.
MESSAGE_MAX = 4096
#: Time to wait for processes that do not die, and for remaining output (seconds).
PATIENCE = 5.0
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36


def save(directory: str, name: str, value: dict[str, Any]) -> None:
    temporary = os.path.join(directory, f".{name}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(value, file)
    os.rename(temporary, os.path.join(directory, name))


# -- the container's first process, between fork and exec


def end_with_parent(kernel: SystemCalls, parent: int) -> None:
    """Have the kernel kill this process when its parent exits; exit if it has exited."""
    with contextlib.suppress(OSError):
        kernel.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(START_ERROR)


def prepare(spec: dict[str, Any], kernel: SystemCalls) -> tuple[list[str], list[str]]:
    """Set up cgroups, limits and mounts. Return tolerable failures: notes, which may explain how the
    container exits, and minor ones, which do not.
    """
    join_cgroups(spec)
    minor = set_limits(spec)
    notes = mount_all(spec, kernel)
    missing = sorted({*spec.get("gids", ())} - {*os.getgroups(), os.getegid()})
    if missing and not spec["credentials"]["switch"]:
        notes.append(f"groups {missing} cannot be joined: {os.strerror(errno.EPERM)}")
    enter_directory(spec)
    return notes, minor


def become(
    spec: dict[str, Any],
    kernel: SystemCalls,
    status_fd: int,
    go: int,
    stdio: tuple[int, int, int],
    parent: int,
) -> NoReturn:
    """Set up the first process, then execute its command. Never returns."""
    try:
        reset_signals()
        os.setsid()
        end_with_parent(kernel, parent)
        shared = os.stat("/proc/self/ns/mnt").st_ino
        notes, minor = prepare(spec, kernel)
        own_mounts = os.stat("/proc/self/ns/mnt").st_ino != shared
        own_output(spec["credentials"], stdio[1:])
        confine(spec["credentials"], kernel)
        # Changing the user has cleared it.
        end_with_parent(kernel, parent)
        ready = {"notes": notes, "minor": minor, "own_mounts": own_mounts}
        os.write(status_fd, json.dumps(ready).encode() + b"\n")
        if os.read(go, 1) != b"g":
            os._exit(START_ERROR)
        for target, source in enumerate(stdio):
            os.dup2(source, target)
        if spec.get("tty"):
            take_terminal()
        if spec.get("pause"):
            pause(status_fd)
        execute(spec)
    except BaseException as error:  # any error must be reported, and the process must not continue
        with contextlib.suppress(BaseException):
            os.write(status_fd, json.dumps({"error": describe(spec, error)}).encode() + b"\n")
    os._exit(START_ERROR)


def pause(status_fd: int) -> NoReturn:
    """Do nothing until signaled to terminate."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    os.close(status_fd)
    while True:
        signal.pause()


# -- the shim itself


class Shim:
    def __init__(self, spec: dict[str, Any], directory: str) -> None:
        self.spec, self.directory = spec, directory
        self.kernel = SystemCalls()
        self.notes: list[str] = []
        self.log = ContainerLog(spec["log"], spec.get("log_bytes", 10 << 20), spec.get("log_files", 5))
        self.status: int | None = None  # of the first process, as waitpid has it
        self.finished_at = 0.0
        self.pid = 0

    def run(self) -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        try:
            self.kernel.call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            self.kernel.call("prctl", _PR_SET_NAME, b"plimsoll-shim", 0, 0, 0)
        except OSError as error:
            self.notes.append(f"orphaned processes are not collected: {error.strerror}")
        self.wake, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        # Opened before the start is reported: the directory may be removed at any time after that.
        self.place = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.console = ContainerConsole(self.spec, self.place)
        outs = self.start()
        if outs is None:
            return
        self.serve(outs)
        self.end_orphans()
        self.drain(outs)
        self.finish()

    def start(self) -> dict[int, bytes] | None:
        """Start the first process; return its two outputs, or None if it could not be started."""
        stdio, outs = self.console.open()
        (status_r, status_w), (go_r, go_w) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        me = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go_w)  # otherwise it would wait for itself
            become(self.spec, self.kernel, status_w, go_r, stdio, me)
        for fd in {*stdio, status_w, go_r}:
            os.close(fd)
        with os.fdopen(status_r, "rb") as status:
            first = json.loads(status.readline() or b'{"error": "it died before its command ran"}')
            self.notes += first.get("notes", [])
            if "error" not in first:
                self.record_run(me, first.get("minor", []), own_mounts=first["own_mounts"])
                os.write(go_w, b"g")
                first = json.loads(status.readline() or b"{}")
        os.close(go_w)
        if "error" in first:
            os.waitpid(self.pid, 0)
            self.log.close()
            self.save_exit({"exit_code": START_ERROR, "error": first["error"], "finished_at": time.time()})
            self.report({"error": first["error"]})
            return None
        self.console.listen()  # before the report: clients attach as soon as the container runs
        self.report({"ok": True})
        for fd in outs:
            os.set_blocking(fd, False)
        return outs

    def record_run(self, me: int, minor: list[str], *, own_mounts: bool) -> None:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        save(
            self.directory,
            "run.json",
            {
                "pid": self.pid,
                "pid_start": start_time(self.pid),
                "shim": me,
                "shim_start": start_time(me),
                "boot_id": boot,
                "started_at": time.time(),
                "own_mounts": own_mounts,
                "notes": self.notes + minor,
            },
        )

    def report(self, value: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the agent may be gone
            os.write(STATUS, json.dumps(value).encode() + b"\n")
        os.close(STATUS)

    def serve(self, outs: dict[int, bytes]) -> None:
        """Keep output until the first process has exited."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        for fd in outs:
            poll.register(fd, select.POLLIN)
        self.console.register(poll)
        every = self.spec.get("look_every", 5.0)
        looked = time.monotonic()
        self.reap()
        while self.status is None:
            ready = poll.poll(every * 1000)
            if time.monotonic() - looked >= every:
                looked = time.monotonic()
                # The directory was removed: this container can never be found again, so it must not continue.
                if os.fstat(self.place).st_nlink == 0:
                    os.kill(self.pid, signal.SIGKILL)
            for fd, event in ready:
                if fd == self.wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake, 4096)
                    self.reap()
                elif fd not in outs:
                    self.console.handle(fd, event)
                elif not self.pump(fd, outs):
                    poll.unregister(fd)

    def pump(self, fd: int, outs: dict[int, bytes]) -> bool:
        """Read available output; return False at the end."""
        try:
            data = os.read(fd, 32768)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if data:
            self.log.feed(outs[fd], data)
            self.console.output(outs[fd], data)
            return True
        os.close(fd)
        del outs[fd]
        return False

    def reap(self) -> bool:
        """Reap exited processes; return False if no child is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.pid:
                    self.status, self.finished_at = status, time.time()
        except ChildProcessError:
            return False

    def end_orphans(self) -> None:
        """Kill all descendants of the first process: they are children of the shim by now, or will be."""
        deadline = time.monotonic() + PATIENCE
        while self.reap():
            for pid in children(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                self.notes.append(f"processes that do not die: {children(os.getpid())}")
                return
            select.select([self.wake], [], [], 0.02)
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake, 4096)

    def drain(self, outs: dict[int, bytes]) -> None:
        """Read the output that was written before the exit."""
        deadline = time.monotonic() + PATIENCE
        while outs and time.monotonic() < deadline:
            ready, _, _ = select.select(list(outs), [], [], 0.5)
            for fd in ready:
                self.pump(fd, outs)
            if not ready:
                break  # a process that is not a descendant keeps it open
        self.log.close()
        self.console.close(1.0)

    def finish(self) -> None:
        code, number = os.waitstatus_to_exitcode(self.status or 0), 0
        if code < 0:
            code, number = 128 - code, -code
        if self.log.lost:
            self.notes.append(f"{self.log.lost} bytes of output are lost: the log could not be written")
        self.save_exit(
            {
                "exit_code": code,
                "signal": number,
                "finished_at": self.finished_at,
                "oom": out_of_memory(self.spec["join"]),
                "message": self.read_message(code),
            }
        )

    def read_message(self, code: int) -> str:
        """Return the message of the container: of its file, or if it has failed the end of its log."""
        try:
            if self.spec.get("message_file"):
                with open(self.spec["message_file"], "rb") as file:
                    text = file.read(MESSAGE_MAX)
                if text:
                    return text.decode(errors="replace")
            if code and self.spec.get("message_from_log"):
                return read_tail(self.spec["log"]).decode(errors="replace")
        except OSError:
            pass
        return ""

    def save_exit(self, value: dict[str, Any]) -> None:
        value["notes"] = self.notes
        for _ in range(30):
            try:
                save(self.directory, "exit.json", value)
                return
            except FileNotFoundError:
                return  # the directory was removed: the result is not needed
            except OSError:
                time.sleep(1)  # disk full: the exit code is worth some waiting


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(text) for text in file.read().split()]
    except OSError:
        pass
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == pid:
                found.append(int(name))
    return found


def out_of_memory(join: list[str]) -> bool:
    """Return whether the kernel has OOM-killed a process in these cgroups."""
    for path in join:
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError), open(os.path.join(os.path.dirname(path), name)) as file:
                for line in file:
                    key, _, value = line.partition(" ")
                    if key == "oom_kill" and value.strip() not in ("", "0"):
                        return True
    return False


def main() -> None:
    gc.disable()  # nothing here creates cycles
    for fd in (STATUS, LOCK):
        os.set_inheritable(fd, False)
    os.closerange(LOCK + 1, 65536)
    fcntl.flock(
        LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB
    )  # already held by the parent process, through this very file
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    Shim(spec, os.path.dirname(os.path.abspath(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
