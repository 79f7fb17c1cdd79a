"""Command line: help, errors, completion, the kubectl plugin, and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from plimsoll.cli import main as cli
from plimsoll.cli.commands import ROWS, TABLE, load
from plimsoll.cli.completion import complete_for_kubectl
from plimsoll.cli.main import main, plimsoll
from plimsoll.errors import ConfigError
from tests.outputs import check_output
from tests.smoke.kubectl import find_kubectl


def end(*words: str, prog: str = "plimsoll") -> int:
    with pytest.raises(SystemExit) as exit:
        main(list(words), prog)
    assert isinstance(exit.value.code, int)
    return exit.value.code


def test_help_shows_the_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert end("--help") == 0
    text = capsys.readouterr().out
    check_output("help/plimsoll.txt", text)
    for title, rows in TABLE.items():
        assert f"\n{title}:\n" in text
        assert all(f"\n  {row.name} " in text for row in rows)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_a_command_with_help_and_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = load(ROWS[name])
    assert command.name == name
    assert end(name, "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: plimsoll {name} ")
    if not isinstance(command, click.Group):
        assert f"\n  plimsoll {name}" in text or f"plimsoll {name}" in text.partition("\n")[2]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom plimsoll.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'msgspec', 'aiohttp', 'yaml', 'grpc', 'cryptography', 'plimsoll.api.core'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tpo"], "plimsoll: unknown command 'tpo'; did you mean top?"),
        (["qqqqqq"], "plimsoll: unknown command 'qqqqqq'; see plimsoll --help"),
        (["check", "--wrong"], "plimsoll check: no such option"),
        (["convert"], "plimsoll convert: missing option '--form'. Choose from: 1.36"),
        (["top", "-A", "-n", "x"], "plimsoll top: -A and -n cannot be combined; see plimsoll top --help"),
        (["gates", "--feature-gates", "Wrong=true"], "plimsoll: unknown feature gate 'Wrong'"),
    ],
)
def test_usage_errors_are_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert end(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(line)
    assert err.count("\n") == 1


# -- exit codes and errors


def ending(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(plimsoll, "invoke", fail)
    return end("gates")


def test_our_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(ConfigError("x: no such file"), monkeypatch) == 2
    assert capsys.readouterr().err == "plimsoll: x: no such file\n"
    group = BaseExceptionGroup("g", [ValueError("other"), ExceptionGroup("h", [ConfigError("ours")])])
    assert ending(group, monkeypatch) == 2
    assert capsys.readouterr().err == "plimsoll: ours\n"


def test_unexpected_errors_are_one_line_and_ask_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLIMSOLL_DEBUG", raising=False)
    assert ending(KeyError("some\nthing"), monkeypatch) == 2
    err = capsys.readouterr().err
    assert err.startswith("plimsoll: internal error: KeyError: ")
    assert "(test_commands.py:" in err
    assert "PLIMSOLL_DEBUG=1" in err
    assert err.count("\n") == 1
    assert ending(MemoryError(), monkeypatch) == 2
    assert capsys.readouterr().err == "plimsoll: not enough memory\n"
    assert ending(PermissionError(13, "Permission denied", "/x"), monkeypatch) == 2
    assert capsys.readouterr().err == "plimsoll: /x: Permission denied\n"
    monkeypatch.setenv("PLIMSOLL_DEBUG", "1")
    assert ending(KeyError("thing"), monkeypatch) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    ["server --memory", "node --name n", "driver cpu", "podresources list", "up --once"],
)
def test_a_command_without_its_extra_names_it(line: str, tmp_path: Path) -> None:
    """Servers, node agents and drivers end with one line if `pip install plimsoll` is all there is."""
    script = (
        "import sys; from plimsoll.cli.main import SERVER_MODULES, main\n"
        "sys.modules.update(dict.fromkeys(SERVER_MODULES))\n"
        "main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *line.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done
    assert done.stderr.endswith("run pip install 'plimsoll[server]'\n"), done
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", [row.name for row in ROWS.values() if not row.windows])
def test_commands_that_need_linux_say_so_on_windows(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert end(name) == 2
    assert capsys.readouterr().err.startswith(f"plimsoll: {name} does not run on Windows")


def test_verbose_shows_tracebacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLIMSOLL_DEBUG", "")
    assert end("-v", "check", "-f", "/nowhere") == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("plimsoll: /nowhere: no such file or directory\n")


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(KeyboardInterrupt(), monkeypatch) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_closed_pipe_ends_the_command() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "plimsoll.cli.main", "gates"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_names_outside_the_terminal_encoding(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text('kind: Pod\napiVersion: v1\nmetadata: {name: "\\u2603"}\nspec: {}\n')
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll.cli.main", "check", "-f", str(path)],
        capture_output=True,
        env=environ,
        timeout=60,
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


# -- completion and kubectl


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert end("completion", shell) == 0
    text = capsys.readouterr().out
    assert f"_PLIMSOLL_COMPLETE={shell}_complete" in text
    assert end("completion", "tcsh") == 2


def test_completion_completes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_PLIMSOLL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "plimsoll po")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert end() == 0
    assert capsys.readouterr().out.split() == ["plain,policies", "plain,podresources"]


def complete(*words: str) -> None:
    with pytest.raises(SystemExit) as exit:
        complete_for_kubectl(list(words))
    assert exit.value.code == 0


def test_completion_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    complete("exp")
    assert capsys.readouterr().out == f"explain\t{ROWS['explain'].text}\n:4\n"
    complete("top", "--kub")
    assert capsys.readouterr().out.startswith("--kubeconfig\t")
    complete("top", "--kubeconfig", "")
    assert capsys.readouterr().out == ":0\n"
    complete("explain", "--output", "")
    assert capsys.readouterr().out == "table\nwide\njson\nyaml\n:4\n"
    complete()
    assert len(capsys.readouterr().out.splitlines()) == len(ROWS) + 1


def test_messages_of_the_plugin_begin_with_kubectl_plimsoll(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.run_as_plugin(["check", "-f", "/nowhere"])
    assert capsys.readouterr().err == "kubectl plimsoll: /nowhere: no such file or directory\n"
    with pytest.raises(SystemExit):
        cli.run_as_plugin(["top", "--help"])
    assert capsys.readouterr().out.startswith("Usage: kubectl plimsoll top ")


def script(directory: Path, name: str, place: str) -> None:
    """Write the script that an installer generates for an entry point."""
    module, _, function = place.partition(":")
    path = directory / name
    path.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
    path.chmod(0o755)


def test_a_real_kubectl_finds_the_plugin(tmp_path: Path) -> None:
    kubectl = find_kubectl()
    if not kubectl:
        pytest.skip("no kubectl: set KUBEBUILDER_ASSETS to a directory with one, or install it in the PATH")
    script(tmp_path, "kubectl-plimsoll", "plimsoll.cli.main:run_as_plugin")
    script(tmp_path, "kubectl_complete-plimsoll", "plimsoll.cli.completion:complete_for_kubectl")
    environ = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([kubectl, *words], capture_output=True, text=True, env=environ, timeout=60)

    assert ask("plimsoll", "gates").stdout.startswith("GATE")
    wrong = ask("plimsoll", "check", "-f", "/nowhere")
    assert (wrong.returncode, wrong.stderr) == (2, "kubectl plimsoll: /nowhere: no such file or directory\n")
    assert "explain\tExplain why" in ask("__complete", "plimsoll", "exp").stdout
