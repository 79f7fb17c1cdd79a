"""Recorded output and exit code of every command (tests/golden/commands), and help of all commands.

The outputs of top, explain, whatif, audit, policies and up are recorded by their own tests.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias

import click
import pytest
import yaml

from plimsoll.cli.commands import ROWS, load
from plimsoll.cli.main import main
from plimsoll.up.local_cluster import LocalCluster
from tests.fork_server import start_forked
from tests.outputs import GOLDEN_DIR, check_json_fields, check_output
from tests.unit.cli.inputs import DRIVER, FILES
from tests.unit.tools.doctor.node_dir import temporary_node_dir
from tests.unit.tools.podresources.kubelets import ALLOCATABLE, LISTED, TRAIN, always, kubelet
from tests.waiting import DEADLINE

Ask: TypeAlias = Callable[..., str]
#: Commands whose outputs other tests record.
ELSEWHERE = {"top", "explain", "whatif", "audit", "policies", "up"}
#: Commands that print nothing but a log with times, a report about this machine, or another program's output.
LOGS = {"charge", "node", "driver fake", "driver memory", "driver cpu", "driver cpu gatherinfo", "kubectl"}


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Return a function that runs a command in a directory with all inputs and returns its output."""
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
        output = f"$ plimsoll {command}\n{out}" + (f"-- standard error\n{err}" if err else "")
        output += f"-- exit code {ended.value.code}\n"
        output = output.replace(str(tmp_path), "DIR")
        pattern, shown = hide
        return re.sub(pattern, shown, output) if pattern else output

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
output = {}
for name in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*name.split(), "--help"])
    output[name] = out.getvalue()
json.dump(output, sys.stdout)
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """Help of all commands from a separate process: click keeps state of earlier calls."""
    done = subprocess.run(
        [sys.executable, "-c", _HELP, json.dumps(list(COMMANDS))],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    output: dict[str, str] = json.loads(done.stdout)
    return output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_has_help(helps: dict[str, str], name: str) -> None:
    command = COMMANDS[name]
    assert command.help, "no description"
    undescribed = [each.opts for each in command.params if isinstance(each, click.Option) and not each.help]
    assert not undescribed
    text = helps[name]
    assert text.startswith(f"Usage: plimsoll {name} ")
    for each in command.params:
        if isinstance(each, click.Option) and not each.hidden:
            assert all(word in text for word in each.opts), each.opts
    if isinstance(command, click.Group):
        assert all(f"\n  {part} " in text for part in command.commands)


# -- files


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("check/fine", "check -f cluster.yaml"),
        ("check/refused", "check -f cluster.yaml -f wrong.yaml"),
        ("check/wide", "check -f cluster.yaml -f wrong.yaml -o wide"),
        ("check/kinds", "check slices,classes -f cluster.yaml -f wrong.yaml -o wide"),
        ("check/namespace", "check -f wrong.yaml -n elsewhere"),
        ("check/limit-ranges", "check -f limits.yaml"),
        ("check/no-kind", "check cluster.yaml"),
        ("check/no-cluster", "check"),
        ("check/gates", "check -f wrong.yaml --feature-gates DRAPrioritizedList=maybe"),
        ("select/select", "select 'device.driver == \"gpu.example.com\"' -f cluster.yaml"),
        ("select/wide", "select 'device.attributes[\"gpu.example.com\"].big' -f cluster.yaml -o wide"),
        ("select/none", "select true -f claims.yaml"),
        ("select/old-version", "select 'device.attributes[\"gpu.example.com\"].big' -f beta.yaml"),
        ("select/no-selector", "select 'device.driver =' -f cluster.yaml"),
        ("select/type", "select 'device.driver' -f cluster.yaml"),
        ("allocate/allocate", "allocate -f cluster.yaml -f claims.yaml"),
        ("allocate/wide", "allocate -f cluster.yaml -f claims.yaml --claim team-a/one -o wide"),
        ("allocate/together", "allocate -f cluster.yaml -f claims.yaml --together"),
        ("allocate/namespace", "allocate -f cluster.yaml -f claims.yaml -n team-b"),
        ("allocate/no-claim", "allocate -f cluster.yaml -f claims.yaml -n team-a --claim two"),
        ("allocate/no-node", "allocate -f cluster.yaml -f claims.yaml --node node-9"),
        ("allocate/wrong", "allocate -f cluster.yaml -f wrong.yaml"),
        ("allocate/none", "allocate -f cluster.yaml"),
        ("convert/convert", "convert --form 1.36 -f cluster.yaml"),
        ("convert/yaml", "convert --form 1.37 -o yaml -f cluster.yaml"),
        ("convert/no-form", "convert --form 1.35 -f cluster.yaml"),
        ("cgroups/cgroups", "cgroups -f pods.yaml -f cluster.yaml"),
        ("cgroups/namespace", "cgroups -f pods.yaml --memory 16Gi -n shop"),
        ("cgroups/older", "cgroups -f pods.yaml --memory 16Gi -n shop --form 1.36 --cgroup-version 1"),
        ("cgroups/node", "cgroups -f pods.yaml -f cluster.yaml --node node-9"),
        ("cgroups/none", "cgroups -f cluster.yaml"),
        ("defrag/class", "defrag -f defrag.yaml --class gpu --count 2"),
        ("defrag/fits", "defrag -f defrag.yaml --class gpu"),
        ("defrag/never", "defrag -f defrag.yaml --class gpu --count 3"),
        ("defrag/pod", "defrag -f cluster.yaml -f running.yaml shop/big --force"),
        ("defrag/none", "defrag -f cluster.yaml"),
        ("defrag/count", "defrag -f cluster.yaml shop/big --count 2"),
        ("diff/same", "diff before.yaml before.yaml"),
        ("diff/diff", "diff before.yaml after.yaml"),
        ("diff/wide", "diff before.yaml -f after.yaml -n shop -o wide"),
        ("diff/both", "diff before.yaml after.yaml -f after.yaml"),
        ("diff/no-file", "diff nothing.yaml after.yaml"),
        ("dump/json", "dump -f cluster.yaml"),
        ("dump/yaml", "dump -f cluster.yaml -f claims.yaml -n team-a -o yaml"),
        ("dump/file", "dump -f cluster.yaml -f claims.yaml --out new.yaml"),
        ("dump/anonymized", "dump -f claims.yaml -f before.yaml --anonymize --key-file key -o yaml"),
        ("dump/short-key", "dump -f cluster.yaml --anonymize --key-file short-key"),
        ("dump/key-alone", "dump -f cluster.yaml --key-file key"),
        ("dump/no-cluster", "dump"),
        ("gates/gates", "gates --feature-gates DRAPrioritizedList=false"),
        ("gates/no-gate", "gates --feature-gates Nonsense=true"),
        ("driver/cpu-plan", "driver cpu plan --count 3 --count 2 --count 99 --topology machine.yaml"),
        ("driver/cpu-forget", "driver cpu forget default/gone --kubelet-root-dir ."),
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


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("check", "check -f wrong.yaml"),
        ("select", "select 'device.attributes[\"gpu.example.com\"].big' -f cluster.yaml"),
        ("allocate", "allocate -f cluster.yaml -f claims.yaml"),
        ("cgroups", "cgroups -f pods.yaml --memory 16Gi"),
        ("defrag", "defrag -f defrag.yaml --class gpu --count 2"),
        ("diff", "diff before.yaml after.yaml"),
        ("gates", "gates"),
        ("driver", "driver cpu plan --count 3 --topology machine.yaml"),
    ],
)
def test_json_and_yaml_have_the_same_fields(ask: Ask, name: str, command: str) -> None:
    check_json_fields(f"commands/{name}/json-fields.txt", json_of(ask, command))


def json_of(ask: Ask, command: str, *more: str) -> Any:
    """Return the JSON that a command prints, after comparing it with its YAML."""
    output = {form: ask(f"{command} -o {form}", *more) for form in ("json", "yaml")}
    bodies = {form: text.partition("\n")[2].rpartition("-- exit code")[0] for form, text in output.items()}
    tree = json.loads(bodies["json"])
    assert yaml.safe_load(bodies["yaml"]) == tree
    return tree


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(ask: Ask, shell: str) -> None:
    lines = ask(f"completion {shell}").split("\n")
    assert lines[-2] == "-- exit code 0"
    check_output(f"commands/completion/{shell}.txt", "\n".join(lines[:4]) + "\n")


# -- node endpoints


@pytest.fixture
def kubelet_socket() -> Iterator[str]:
    from plimsoll.protocols.messages import podresources_v1 as v1  # noqa: PLC0415

    answers = {
        "List": always(LISTED),
        "Get": always(v1.GetPodResourcesResponse(pod_resources=TRAIN)),
        "GetAllocatableResources": always(ALLOCATABLE),
    }
    with kubelet(**answers) as socket:
        yield str(socket)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("list", "podresources list"),
        ("list-wide", "podresources list -o wide -n ml"),
        ("get", "podresources get train -n ml"),
        ("allocatable", "podresources allocatable"),
    ],
)
def test_podresources(ask: Ask, kubelet_socket: str, name: str, command: str) -> None:
    check_output(f"commands/podresources/{name}.txt", ask(command, "--socket", kubelet_socket))


def test_podresources_as_json(ask: Ask, kubelet_socket: str) -> None:
    trees = [
        json_of(ask, command, "--socket", kubelet_socket)
        for command in ("podresources list", "podresources get train -n ml", "podresources allocatable")
    ]
    check_json_fields("commands/podresources/json-fields.txt", *trees)


def test_podresources_without_a_kubelet(ask: Ask) -> None:
    check_output(
        "commands/podresources/no-kubelet.txt", ask("podresources list --socket /nowhere/kubelet.sock")
    )
    check_output("commands/podresources/export-no-address.txt", ask("podresources export --listen nowhere"))


@pytest.fixture
def driver() -> Iterator[str]:
    """Debug pages of a CPU driver."""

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
        ("explain-none", "driver cpu explain nothing"),
    ],
)
def test_cpu_driver_queries(ask: Ask, driver: str, name: str, command: str) -> None:
    check_output(f"commands/driver/cpu-{name}.txt", ask(command, "--address", driver))


def test_cpu_driver_explanations_as_json(ask: Ask, driver: str) -> None:
    command = "driver cpu explain 11111111-2222-4333-8444-555555555555"
    check_json_fields("commands/driver/explain-json-fields.txt", json_of(ask, command, "--address", driver))


#: Areas of the doctor that are about this machine.
_MACHINE = ("privileges", "machine", "cgroups")


def test_doctor(ask: Ask) -> None:
    with temporary_node_dir() as node_dir:
        node_dir.furnish()
        node_dir.layout.root.chmod(0o777)
        words = ["--root", str(node_dir.layout.root), "--name", "node-a", "--runtime", "none"]
        words += ["--cdi", str(node_dir.cdi), "--cgroup-root", "nothing"]
        output = ask("doctor", *words)
        output = output.replace(str(node_dir.directory), "DIR").replace(
            f"owner {node_dir.layout.root.owner()}", "owner ME"
        )
    check_output("commands/doctor/doctor.txt", _keep_directory_checks(output))


def _keep_directory_checks(output: str) -> str:
    """Drop checks of this machine, and column widths that depend on the length of a path."""
    kept: list[str] = []
    area = ""
    for line in output.splitlines():
        area = line.split()[0] if line[:1].strip() else area
        output = re.sub(" {3,}", "   ", line)
        if area in _MACHINE or re.search(" (space|path) | checks: |^-- exit code", output):
            output = "..."
        if output != "..." or kept[-1:] != ["..."]:
            kept.append(output)
    return "\n".join(kept) + "\n"


# -- clusters


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
def test_cluster_queries(ask: Ask, cluster: LocalCluster, name: str, command: str) -> None:
    output = ask(command, "--kubeconfig", str(cluster.kubeconfig), hide=PORT)
    check_output(f"commands/cluster/{name}.txt", re.sub(r"pod[0-9a-f]{8}-[-0-9a-f]{27}", "podUID", output))


def test_convert_reads_the_objects_of_a_cluster(ask: Ask, cluster: LocalCluster) -> None:
    output = ask("convert --form 1.36 -o yaml -n shop", "--kubeconfig", str(cluster.kubeconfig))
    body, _, errors = output.partition("\n")[2].partition("-- standard error\n")
    assert "lost: gpu-0: cpu: overhead of 10" in errors
    trees = {(tree["kind"], tree["metadata"]["name"]): tree for tree in yaml.safe_load_all(body)}
    assert {kind for kind, _ in trees} == {"ResourceSlice", "DeviceClass", "Pod"}
    assert all(tree["metadata"]["uid"] for tree in trees.values())
    (gpu, _) = trees["ResourceSlice", "node-1-gpu"]["spec"]["devices"]
    assert gpu["nodeAllocatableResourceMappings"] == {"cpu": {"allocationMultiplier": "2"}}


def test_store_and_kubeconfig_commands(ask: Ask, tmp_path: Path) -> None:
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
def test_servers_print_their_address(ask: Ask, name: str, words: list[str]) -> None:
    process = start_forked(words)
    assert process.stdout is not None
    with process.stdout:
        try:
            printed = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            code = process.wait(DEADLINE)
            printed += process.stdout.read()
        finally:
            process.kill()
    output = f"$ plimsoll {shlex.join(words)}\n{printed.decode()}-- exit code {code}\n"
    check_output(f"commands/{name}/serves.txt", re.sub(*PORT, output))


def test_every_command_has_an_output() -> None:
    output = [path.read_text() for path in (GOLDEN_DIR / "commands").rglob("*.txt")]
    for name, command in COMMANDS.items():
        runs = not isinstance(command, click.Group) or command.invoke_without_command
        if runs and name not in ELSEWHERE | LOGS:
            assert any(f"$ plimsoll {name}" in text for text in output), f"no output of {name} is kept"
    assert all((GOLDEN_DIR / name).is_dir() for name in ELSEWHERE)


# -- documentation

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
HEAD = "| command | `-f` | `--kubeconfig` | `-n` | `-o` |\n|---|---|---|---|---|\n"


def row_of(name: str, command: click.Command) -> str:
    options = {word: each for each in command.params for word in each.opts}
    output = options.get("--output")
    forms = ", ".join(output.type.choices) if output and isinstance(output.type, click.Choice) else ""
    cells = ["yes" if word in options else "" for word in ("-f", "--kubeconfig", "-n")]
    assert ("--kubeconfig" in options) == ("--context" in options), f"{name}: give both or none"
    return "| " + " | ".join([f"`{name}`", *cells, forms]) + " |\n"


def test_the_page_lists_the_options_of_every_command() -> None:
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
