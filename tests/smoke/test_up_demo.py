"""`plimsoll up` from the command line: the demo, files, ports in use, and every way to stop it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, PODS
from tests.fork_server import run_forked, start_forked
from tests.outputs import check_output
from tests.smoke.up_process import Up
from tests.waiting import DEADLINE, wait_until

FREE = ["--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"]
LIGHT = ["--runtime", "none", "--no-driver"]


def run(*options: object, text: str = "") -> subprocess.CompletedProcess[str]:
    return run_forked(["up", *options], DEADLINE, text)


def demo_output(text: str) -> str:
    """Return the output that is the same on every machine."""
    output = text[text.index("\nOne node, two ledgers") :].removesuffix("stopped\n")
    return re.sub(r" +http://\S+#/pending .*\n", "", output)


def test_the_demo_from_end_to_end_and_again(root: Path) -> None:
    done = run("--data", root / "data", "--demo", "--once", *FREE)
    assert (done.returncode, done.stderr) == (0, "")
    check_output("up/story.txt", demo_output(done.stdout))
    assert len(re.findall(r"http://127\.0\.0\.1:\d+/", done.stdout)) == 1
    again = run("--data", root / "data", "--demo", "--once", *FREE)
    assert (again.returncode, again.stderr) == (0, "")
    assert "The demo is already loaded" in again.stdout
    assert "database   pending" in again.stdout
    assert (root / "data" / "log").stat().st_size > 0


def test_the_dashboard_after_the_demo(root: Path) -> None:
    up = Up(root, "--demo", "--runtime", "none")

    async def look(client: Client) -> None:
        assert (await client.get(PODS, "web", "demo"))["spec"]["nodeName"] == "small-1"
        assert "nodeName" not in (await client.get(PODS, "database", "demo"))["spec"]
        for name in ("small-1", "large-1", "train-1"):
            assert await client.get(NODES, name)

    try:
        up.start()
        address = re.search(r"dashboard    (http://\S+)\n", up.text())
        assert address is not None

        def overview() -> bytes:
            assert address is not None
            with urllib.request.urlopen(f"{address[1]}api/overview", timeout=DEADLINE) as answer:
                return bytes(answer.read())

        wait_until(overview, lambda shown: b'"pending":1' in shown)
        up.run_scenario(look)
    finally:
        code = up.stop()
    assert code == 0
    assert "Traceback" not in up.text()


def test_files_are_applied_and_mistakes_are_lines(root: Path) -> None:
    (root / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad}\nspec: {containers: [{name: a, image: a}]}\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: '2', memory: 4Gi}}\n"
    )
    done = run("--data", root / "data", "-f", root / "pod.yaml", "--once", *LIGHT, *FREE)
    assert done.returncode == 1  # not everything that was asked for is there
    assert "  manifests    1 objects created, 0 unchanged, 1 rejected\n" in done.stdout
    assert (
        f'    {root}/pod.yaml, document 1, line 1: Pod Bad: Pod "Bad" is invalid: metadata.name'
        in done.stdout
    )
    assert "  simulated    n1\n" in done.stdout
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n"
    done = run("--data", root / "data", "-f", "-", "--once", *LIGHT, *FREE, text=text)
    assert done.returncode == 0
    assert "  manifests    1 objects created, 0 unchanged\n" in done.stdout
    assert "  simulated    n1\n" in done.stdout  # of last time


def test_an_address_that_is_taken(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for flag in ("--listen", "--dashboard"):
            given = [*LIGHT, *FREE, flag, address]
            done = run("--data", root / "data", "--once", *given)
            assert done.returncode == 2
            assert done.stderr.startswith(f"plimsoll: cannot listen on {address}: Address already in use; ")
            assert f"choose another with {flag}" in done.stderr
            assert done.stderr.count("\n") == 1


def test_the_usual_ports_are_taken_by_another_cluster(root: Path) -> None:
    """Without given addresses the second cluster takes other ports, and keeps them."""
    ports: list[dict[str, int]] = []
    taken: set[int] = set()
    with socket.socket() as api, socket.socket() as page:
        for each, port in ((api, 6443), (page, 6480)):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                each.bind(("127.0.0.1", port))
                each.listen()
                taken.add(port)
            except OSError:
                pass  # another process has it, but may end
        for _ in range(2):
            done = run("--data", root / "data", "--once", *LIGHT)
            assert (done.returncode, done.stderr) == (0, "")
            ports.append(json.loads((root / "data" / "ports").read_text()))
            assert f"https://127.0.0.1:{ports[-1]['api']}\n" in done.stdout
    assert ports[0] == ports[1]
    assert ports[0].keys() == {"api", "dashboard"}
    assert not taken & set(ports[0].values())


def test_one_cluster_for_each_directory(root: Path) -> None:
    up = Up(root, *LIGHT)
    try:
        up.start()
        second = run("--data", root / "data", "--once", *LIGHT, *FREE)
    finally:
        code = up.stop()
    assert code == 0
    assert second.returncode == 2
    assert re.fullmatch(
        r"plimsoll: \S+/data: the cluster with PID \d+ uses this directory; "
        r"stop it, or choose another with --data\n",
        second.stderr,
    )


def at_terminal(root: Path, keys: bytes, *options: str) -> tuple[int, str]:
    """Run the command at a terminal and press keys when it is ready; return exit code and output."""
    terminal, other_end = pty.openpty()
    command = ["up", "--data", root / "data", *LIGHT, *FREE, *options]
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("NO_COLOR", raising=False)
        environment.setenv("TERM", "xterm")
        process = start_forked(command, stdin=other_end, stdout=other_end, stderr=other_end, at_terminal=True)
    os.close(other_end)
    shown = b""
    pressed = False
    deadline = time.monotonic() + DEADLINE
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the other end is gone
                piece = b""
            if not piece:
                break
            shown += piece
            if b"Press Ctrl-C" in shown and not pressed:
                pressed = True
                for key in keys:
                    os.write(terminal, bytes([key]))
        else:
            process.kill()
    finally:
        os.close(terminal)
        code = process.wait(DEADLINE)
    return code, shown.decode(errors="replace")


def test_ctrl_c_at_a_terminal(root: Path) -> None:
    code, screen = at_terminal(root, b"\x03")
    assert code == 0
    assert "stopping; press Ctrl-C again to stop immediately" in screen
    assert screen.rstrip().endswith("stopped")
    assert "\x1b[1mAPI server  \x1b[0m" in screen  # colours
    assert "Traceback" not in screen


def test_ctrl_c_twice_ends_it_at_once_and_nothing_is_lost(root: Path) -> None:
    code, screen = at_terminal(root, b"\x03\x03")
    assert code in (0, 130), screen  # it may have been quick enough
    assert "Traceback" not in screen
    again = run("--data", root / "data", "--once", *LIGHT, *FREE)
    assert (again.returncode, again.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_stop_the_cluster(root: Path, number: signal.Signals) -> None:
    up = Up(root, *LIGHT)
    up.start()
    assert up.stop(number) == 0
    assert up.text().endswith("stopped\n")


#: Becomes an ordinary user and goes on as another program. Not by subprocess's own `user=`: that forks, and a
#: fork beside threads of gRPC, which other tests leave behind, may crash.
BECOME_UNPRIVILEGED = """
import os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
os.execv(sys.argv[1], sys.argv[1:])
"""


#: Of another version, a Python cannot load the extension modules that are installed here.
IMPORTS = "import plimsoll.errors, msgspec, numpy, google.protobuf, grpc"


@cache
def python_for_others() -> str:
    """Return a Python that any user can run, or None."""
    for path in (sys.executable, "/usr/bin/python3"):
        try:
            found = subprocess.run(
                [sys.executable, "-c", BECOME_UNPRIVILEGED, path, "-c", IMPORTS],
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                cwd="/",
                capture_output=True,
                timeout=DEADLINE,
                check=False,
            )
        except OSError:
            continue
        if found.returncode == 0:
            return path
    return ""


def cannot_be_others() -> str:
    if os.geteuid() != 0:
        return "needs root to change the user"
    return "" if python_for_others() else "needs a Python that any user can run"


def run_unprivileged(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BECOME_UNPRIVILEGED, python_for_others(), "-m", "plimsoll.cli.main", *words],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(home), "PATH": os.defpath},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_the_demo_as_an_ordinary_user(root: Path) -> None:
    if reason := cannot_be_others():
        pytest.skip(reason)
    own = root / "own"
    own.mkdir()
    os.chmod(root, 0o755)
    os.chown(own, 65534, 65534)
    done = run_unprivileged("up", "--data", str(own / "d"), "--demo", "--once", *FREE, home=own)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    check_output("up/story.txt", demo_output(done.stdout))
    locked = run_unprivileged("up", "--data", "/proc/1/x", "--once", home=own)
    assert locked.returncode == 2
    assert re.fullmatch(
        r"plimsoll: /proc/1/x: cannot be used: .*; choose another with --data\n", locked.stderr
    )
