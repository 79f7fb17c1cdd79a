"""Common behavior of the query commands: target cluster, output formats, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from plimsoll.cli.options import (
    OutputFormat,
    Progress,
    Where,
    cluster_options,
    is_colored,
    output_options,
    write_report,
)
from plimsoll.errors import ConfigError, PlimsollError
from plimsoll.tools.colors import Paint
from tests.dumps import big_cluster, write_dump

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: SERVER, user: u, namespace: team}}
- {name: two, context: {cluster: other, user: u}}
clusters:
- {name: SERVER, cluster: {server: "https://SERVER.example.com"}}
- {name: other, cluster: {server: "https://other.example.com"}}
users:
- {name: u, user: {token: t}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home and working directory without a cluster."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, server: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(KUBECONFIG.replace("SERVER", server))
    return path


# -- target cluster


def test_the_cluster_is_found_as_kubectl_finds_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no cluster configured: .*, or read a dump with -f$"):
        Where().source()
    write(home / "plimsoll-data" / "kubeconfig", "own")
    assert Where().source().origin == "https://own.example.com"
    write(home / ".kube" / "config", "usual")
    assert Where().source().origin == "https://usual.example.com"
    monkeypatch.setenv("KUBECONFIG", str(write(home / "named", "named")))
    assert Where().source().origin == "https://named.example.com"
    given = write(home / "given", "given")
    assert Where(kubeconfig=given).source().origin == "https://given.example.com"
    assert Where(kubeconfig=given, context="two").source().origin == "https://other.example.com"
    with pytest.raises(ConfigError, match="there is no context 'three'"):
        Where(context="three").source()
    with pytest.raises(ConfigError, match="no such file"):
        Where(kubeconfig=home / "nowhere").source()


def test_the_local_kubeconfig_never_replaces_a_named_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "plimsoll-data" / "kubeconfig", "own")
    monkeypatch.setenv("KUBECONFIG", str(home / "nowhere"))
    with pytest.raises(ConfigError, match="nowhere: no such file"):
        Where().source()


def test_no_home_directory_is_needed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    write(home / "plimsoll-data" / "kubeconfig", "own")
    assert Where().source().origin == "https://own.example.com"


def test_files_and_a_cluster_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="-f and --kubeconfig cannot be combined: use files or a cluster"):
        Where(files=("x",), kubeconfig=Path("y")).source()
    with pytest.raises(ConfigError, match="-f and --context"):
        Where(files=("x",), context="y").source()


class Answer:
    """Report of the options a command received."""

    def __init__(self, output: Any) -> None:
        self.output = output

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield paint.red(str(self.output)) + (" wide" if wide else "")

    def as_json(self) -> Any:
        return {"output": self.output}


@click.command()
@cluster_options
@output_options
def ask(where: Where, form: OutputFormat) -> None:
    cluster_state = where.cluster_state()
    output = f"{len(cluster_state.nodes)} nodes, namespace {where.namespace or 'all'}"
    write_report(Answer(output), form)


def test_options_reach_the_command(tmp_path: Path) -> None:
    dump = str(write_dump(big_cluster(3), tmp_path / "dump.json", "json"))
    run = CliRunner().invoke
    assert run(ask, ["-f", dump]).stdout == "3 nodes, namespace all\n"
    assert run(ask, ["-f", dump, "-A", "-o", "wide"]).stdout == "3 nodes, namespace all wide\n"
    assert run(ask, ["-f", dump, "-n", "x"]).stdout == "3 nodes, namespace x\n"
    assert json.loads(run(ask, ["-f", dump, "-o", "json"]).stdout) == {"output": "3 nodes, namespace all"}
    assert yaml.safe_load(run(ask, ["-f", dump, "-o", "yaml"]).stdout) == {"output": "3 nodes, namespace all"}
    assert run(ask, ["-f", dump, "--color", "always"]).stdout == "\x1b[31m3 nodes, namespace all\x1b[0m\n"
    assert run(ask, ["-f", "-"], input=Path(dump).read_bytes()).stdout == "3 nodes, namespace all\n"
    assert run(ask, ["-f", dump, "-A", "-n", "x"]).exit_code == 2


def test_missing_kinds_are_reported_with_the_answer(tmp_path: Path) -> None:
    trees = [tree for tree in big_cluster(1) if tree["kind"] != "ResourceSlice"]
    done = CliRunner().invoke(ask, ["-f", str(write_dump(trees, tmp_path / "dump.yaml"))])
    assert done.stdout == "1 nodes, namespace all\n"
    assert done.stderr.startswith("note: resourceslices: none in ")


@pytest.mark.parametrize("content", [b"", b"\0", b"kind: ConfigMap\napiVersion: v1\n", b"{"])
def test_an_invalid_dump_is_an_input_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(content)
    assert isinstance(CliRunner().invoke(ask, ["-f", str(path)]).exception, PlimsollError)


# -- colours and progress


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not is_colored("auto")  # pytest has no terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert is_colored("auto")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_colored("auto")
    assert is_colored("always")
    monkeypatch.setenv("NO_COLOR", "")  # an empty one does not count, says no-color.org
    assert is_colored("auto")
    assert not is_colored("never")
    monkeypatch.setenv("TERM", "dumb")
    assert not is_colored("auto")


def test_progress_is_for_terminals_and_for_long_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setenv("COLUMNS", "20")
    with Progress(lambda: now[0]) as progress:
        now[0] = 5
        progress.tick("reading", 1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(lambda: now[0]) as progress:
        progress.tick("reading", 1, 2)
        assert capsys.readouterr().err == ""
        now[0] += 1
        progress.tick("reading", 1000, 2000)
        progress.tick("reading", 1001, 2000)  # too soon after the last
        assert capsys.readouterr().err == "\r\x1b[Kreading 1,000/2,000"
        now[0] += 1
        progress.tick("reading something long", 3, 0)
        assert capsys.readouterr().err == "\r\x1b[Kreading something l"
    assert capsys.readouterr().err == "\r\x1b[K"
