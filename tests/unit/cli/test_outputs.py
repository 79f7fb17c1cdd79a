"""Recorded output and exit code of every command: tests/golden/commands and tests/golden/help.

The questions to a cluster (top, explain, whatif, audit, policies) have recorded outputs next to their tests,
and so have `up` and `bench`; the last test sees to it that no command is without.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import click
import pytest

from plimsoll.cli.commands import ROWS, load
from plimsoll.cli.main import main
from plimsoll.up.local_cluster import LocalCluster
from tests.outputs import GOLDEN_DIR, check_output
from tests.unit.cli.inputs import DRIVER, FILES
from tests.unit.tools.doctor.node_dir import temporary_node_dir
from tests.unit.tools.podresources.kubelets import ALLOCATABLE, LISTED, TRAIN, always, kubelet

Ask: TypeAlias = Callable[..., str]
#: Where else the outputs of a command are kept.
ELSEWHERE = {"top", "explain", "whatif", "audit", "policies", "up", "bench"}
#: Commands that print nothing but a log with times, or a report about this machine.
LOGS = {"node", "driver fake", "driver cpu", "driver cpu gatherinfo"}


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Runs a command in a directory with all inputs; what was printed, with its exit code."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "PLIMSOLL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def run(command: str, *more: str, hide: tuple[str, str] = ("", "")) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(command), *more])
        out, err = capsys.readouterr()
        said = f"$ plimsoll {command}\n{out}" + (f"-- standard error\n{err}" if err else "")
        said += f"-- exit code {ended.value.code}\n"
        said = said.replace(str(tmp_path), "DIR")
        pattern, shown = hide
        return re.sub(pattern, shown, said) if pattern else said

    return run


def every_command(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for part, below in command.commands.items():
            yield from every_command(below, f"{name} {part}")


COMMANDS = {name: command for row in ROWS.values() for name, command in every_command(load(row), row.name)}


_HELP = """
import contextlib, io, json, sys
from plimsoll.cli.main import main
said = {}
for name in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*name.split(), "--help"])
    said[name] = out.getvalue()
json.dump(said, sys.stdout)
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """In a process of its own: commands remember the first way they were called, by whatever test."""
    done = subprocess.run(
        [sys.executable, "-c", _HELP, json.dumps(list(COMMANDS))],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said: dict[str, str] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("name", COMMANDS)
def test_help(helps: dict[str, str], name: str) -> None:
    check_output(f"help/{name.replace(' ', '-')}.txt", helps[name])


# -- files


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("check/fine", "check -f cluster.yaml"),
        ("check/refused", "check -f cluster.yaml -f wrong.yaml"),
        ("check/wide", "check -f cluster.yaml -f wrong.yaml -o wide"),
        ("check/json", "check -f wrong.yaml -o json"),
        ("check/kinds", "check slices,classes -f cluster.yaml -f wrong.yaml -o wide"),
        ("check/namespace", "check -f wrong.yaml -n elsewhere"),
        ("check/no-kind", "check cluster.yaml"),
        ("check/no-cluster", "check"),
        ("check/gates", "check -f wrong.yaml --feature-gates DRAPrioritizedList=maybe"),
        ("select/select", "select 'device.driver == \"gpu.example.com\"' -f cluster.yaml"),
        ("select/wide", "select 'device.attributes[\"gpu.example.com\"].big' -f cluster.yaml -o wide"),
        ("select/json", "select 'device.attributes[\"gpu.example.com\"].big' -f cluster.yaml -o json"),
        ("select/yaml", "select false -f cluster.yaml -o yaml"),
        ("select/none", "select true -f claims.yaml"),
        ("select/old-version", "select 'device.attributes[\"gpu.example.com\"].big' -f beta.yaml"),
        ("select/no-selector", "select 'device.driver =' -f cluster.yaml"),
        ("select/type", "select 'device.driver' -f cluster.yaml"),
        ("allocate/allocate", "allocate -f cluster.yaml -f claims.yaml"),
        ("allocate/wide", "allocate -f cluster.yaml -f claims.yaml --claim team-a/one -o wide"),
        ("allocate/together", "allocate -f cluster.yaml -f claims.yaml --together"),
        ("allocate/json", "allocate -f cluster.yaml -f claims.yaml -o json"),
        ("allocate/namespace", "allocate -f cluster.yaml -f claims.yaml -n team-b"),
        ("allocate/no-claim", "allocate -f cluster.yaml -f claims.yaml -n team-a --claim two"),
        ("allocate/no-node", "allocate -f cluster.yaml -f claims.yaml --node node-9"),
        ("allocate/wrong", "allocate -f cluster.yaml -f wrong.yaml"),
        ("allocate/none", "allocate -f cluster.yaml"),
        ("convert/convert", "convert --form 1.36 -f cluster.yaml"),
        ("convert/yaml", "convert --form 1.37 -o yaml -f cluster.yaml"),
        ("convert/no-form", "convert --form 1.35 -f cluster.yaml"),
        ("cgroups/cgroups", "cgroups -f pods.yaml -f cluster.yaml"),
        ("cgroups/json", "cgroups -f pods.yaml --memory 16Gi -o json"),
        ("cgroups/namespace", "cgroups -f pods.yaml --memory 16Gi -n shop"),
        ("cgroups/older", "cgroups -f pods.yaml --memory 16Gi -n shop --form 1.36 --cgroup-version 1"),
        ("cgroups/node", "cgroups -f pods.yaml -f cluster.yaml --node node-9"),
        ("cgroups/none", "cgroups -f cluster.yaml"),
        ("gates/gates", "gates --feature-gates DRAPrioritizedList=false"),
        ("gates/json", "gates -o json"),
        ("gates/no-gate", "gates --feature-gates Nonsense=true"),
        ("driver/cpu-plan", "driver cpu plan --count 3 --count 2 --count 99 --topology machine.yaml"),
        ("driver/cpu-plan-json", "driver cpu plan --count 3 --topology machine.yaml -o json"),
        ("driver/cpu-metrics", "driver cpu introspect metrics"),
        ("driver/fake-no-file", "driver fake nothing"),
        ("driver/cpu-no-setting", "driver cpu --group-by rack"),
        ("node/no-cluster", "node --name n"),
        ("scheduler/no-cluster", "scheduler --dry-run"),
        ("dashboard/no-cluster", "dashboard"),
        ("server/no-directory", "server"),
        ("server/no-address", "server --memory --listen nowhere"),
        ("kubeconfig/no-directory", "kubeconfig admin --data nowhere --server https://h:1 --out k"),
        ("kubeconfig/unknown", "kubeconfig king --data nowhere --server https://h:1 --out k"),
        ("store/backup-none", "store backup --data nowhere --out copy"),
        ("store/restore-none", "store restore --data nowhere --from copy"),
        ("store/recover-none", "store recover --data nowhere"),
    ],
)
def test_output(ask: Ask, name: str, command: str) -> None:
    check_output(f"commands/{name}.txt", ask(command))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(ask: Ask, shell: str) -> None:
    lines = ask(f"completion {shell}").split("\n")
    assert lines[-2] == "-- exit code 0"
    check_output(f"commands/completion/{shell}.txt", "\n".join(lines[:4]) + "\n")


# -- what runs elsewhere


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("list", "podresources list"),
        ("list-wide", "podresources list -o wide -n ml"),
        ("list-yaml", "podresources list -o yaml -n ml"),
        ("get", "podresources get train -n ml"),
        ("get-json", "podresources get train -n ml -o json"),
        ("allocatable", "podresources allocatable"),
        ("allocatable-json", "podresources allocatable -o json"),
    ],
)
def test_podresources(ask: Ask, name: str, command: str) -> None:
    from plimsoll.protocols.messages import podresources_v1 as v1  # noqa: PLC0415

    answers = {
        "List": always(LISTED),
        "Get": always(v1.GetPodResourcesResponse(pod_resources=TRAIN)),
        "GetAllocatableResources": always(ALLOCATABLE),
    }
    with kubelet(**answers) as socket:
        check_output(f"commands/podresources/{name}.txt", ask(command, "--socket", str(socket)))


def test_podresources_without_a_kubelet(ask: Ask) -> None:
    check_output(
        "commands/podresources/no-kubelet.txt", ask("podresources list --socket /nowhere/kubelet.sock")
    )
    check_output("commands/podresources/export-no-address.txt", ask("podresources export --listen nowhere"))


@pytest.fixture
def driver() -> Iterator[str]:
    """The pages of a CPU driver."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = DRIVER if self.path == "/debug/driver" else b"[+]registered ok\n[-]nri failed: not there\n"
            self.send_response(200 if self.path == "/debug/driver" else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Discard the log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("status", "driver cpu status"),
        ("explain", "driver cpu explain --all"),
        ("explain-json", "driver cpu explain 11111111-2222-4333-8444-555555555555 -o json"),
        ("explain-none", "driver cpu explain nothing"),
    ],
)
def test_a_driver_that_is_asked(ask: Ask, driver: str, name: str, command: str) -> None:
    check_output(f"commands/driver/cpu-{name}.txt", ask(command, "--address", driver))


#: Areas of the doctor that are about this machine.
_MACHINE = ("privileges", "machine", "cgroups")


@pytest.mark.parametrize("repair", [False, True])
def test_doctor(ask: Ask, repair: bool) -> None:
    with temporary_node_dir() as node_dir:
        node_dir.furnish()
        node_dir.layout.root.chmod(0o777)
        words = ["--root", str(node_dir.layout.root), "--name", "node-a", "--runtime", "none"]
        words += ["--cdi", str(node_dir.cdi), "--cgroup-root", "nothing"]
        said = ask("doctor --repair" if repair else "doctor", *words)
        said = said.replace(str(node_dir.directory), "DIR").replace(
            f"owner {node_dir.layout.root.owner()}", "owner ME"
        )
    check_output(f"commands/doctor/{'repair' if repair else 'doctor'}.txt", _of_the_directory(said))


def _of_the_directory(said: str) -> str:
    """Only what a directory decides; columns are as wide as the longest path, which differs."""
    kept: list[str] = []
    area = ""
    for line in said.splitlines():
        area = line.split()[0] if line[:1].strip() else area
        output = re.sub(" {3,}", "   ", line)
        if area in _MACHINE or re.search(" (space|path) | checks: |^-- exit code", output):
            output = "..."
        if output != "..." or kept[-1:] != ["..."]:
            kept.append(output)
    return "\n".join(kept) + "\n"


# -- a cluster


PORT = (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        for name in ("team-a", "team-b", "shop"):
            running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("cluster.yaml", "claims.yaml", "running.yaml"):
            running.apply(FILES[name])
        yield running


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("check", "check"),
        ("check-wide", "check -n team-a -o wide"),
        ("check-kinds", "check claims -n team-b -o wide"),
        ("select", "select 'device.attributes[\"gpu.example.com\"].big'"),
        ("allocate", "allocate"),
        ("allocate-namespace", "allocate -n team-b"),
        ("cgroups", "cgroups --node node-1 --memory-qos"),
        ("cgroups-none", "cgroups -n team-a"),
        ("cgroups-no-node", "cgroups --node node-9"),
        ("scheduler", "scheduler --dry-run --scheduler-name default-scheduler"),
    ],
)
def test_a_cluster_that_is_asked(ask: Ask, cluster: LocalCluster, name: str, command: str) -> None:
    said = ask(command, "--kubeconfig", str(cluster.kubeconfig), hide=PORT)
    check_output(f"commands/cluster/{name}.txt", re.sub(r"pod[0-9a-f]{8}-[-0-9a-f]{27}", "podUID", said))


def test_a_cluster_that_is_converted(ask: Ask, cluster: LocalCluster) -> None:
    said = ask("convert --form 1.36 -o yaml -n shop", "--kubeconfig", str(cluster.kubeconfig))
    said = re.sub(r"(\w*[tT]imestamp|uid|resourceVersion|time): .*", r"\1: ...", said)
    check_output("commands/cluster/convert.txt", said)


def test_a_server_that_is_looked_after(ask: Ask, tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path / "data") as running:
        running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
        check_output("commands/store/backup.txt", ask("store backup --data data --out copy.db"))
    output = ask("kubeconfig node:worker-1 --data data --server https://127.0.0.1:6443 --out worker-1.conf")
    check_output("commands/kubeconfig/wrote.txt", output)
    output = ask("store restore --data new --from copy.db", hide=(r"revision \d+", "revision N"))
    check_output("commands/store/restore.txt", output)
    check_output("commands/store/restore-over.txt", ask("store restore --data data --from copy.db"))
    check_output("commands/store/recover.txt", ask("store recover --data data"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("server", ["server", "--memory", "--listen", "127.0.0.1:0"]),
        ("dashboard", ["dashboard", "-f", "cluster.yaml", "--listen", "127.0.0.1:0"]),
    ],
)
def test_what_serves_says_where(ask: Ask, name: str, words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "plimsoll.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.terminate()
        more, _ = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    said = f"$ plimsoll {shlex.join(words)}\n{said}{more}-- exit code {process.returncode}\n"
    check_output(f"commands/{name}/serves.txt", re.sub(*PORT, said))


def test_every_command_has_an_output() -> None:
    output = [path.read_text() for path in (GOLDEN_DIR / "commands").rglob("*.txt")]
    for name, command in COMMANDS.items():
        runs = not isinstance(command, click.Group) or command.invoke_without_command
        if runs and name not in ELSEWHERE | LOGS:
            assert any(f"$ plimsoll {name}" in text for text in output), f"no output of {name} is kept"
    assert all((GOLDEN_DIR / name).is_dir() for name in ELSEWHERE)


# -- the page about all of them

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
HEAD = "| command | `-f` | `--kubeconfig` | `-n` | `-o` |\n|---|---|---|---|---|\n"


def row_of(name: str, command: click.Command) -> str:
    options = {word: each for each in command.params for word in each.opts}
    output = options.get("--output")
    forms = ", ".join(output.type.choices) if output and isinstance(output.type, click.Choice) else ""
    cells = ["yes" if word in options else "" for word in ("-f", "--kubeconfig", "-n")]
    assert ("--kubeconfig" in options) == ("--context" in options), f"{name}: give both or none"
    return "| " + " | ".join([f"`{name}`", *cells, forms]) + " |\n"


def test_the_page_says_what_commands_accept() -> None:
    table = HEAD + "".join(
        row_of(name, command)
        for name, command in COMMANDS.items()
        if not isinstance(command, click.Group) or command.invoke_without_command
    )
    text = PAGE.read_text()
    start = text.index(HEAD)
    end = text.index("\n\n", start) + 1
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        PAGE.write_text(text[:start] + table + text[end:])
    else:
        assert text[start:end] == table
