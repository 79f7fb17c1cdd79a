"""Systemd units and workflow files: valid, with commands that exist."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from plimsoll.cli.main import plimsoll

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def service(path: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser["Service"]


def option_names(command: click.Command) -> set[str]:
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_start_commands_that_exist(path: Path) -> None:
    program, *words = service(path)["ExecStart"].split()
    assert program == "/usr/local/bin/plimsoll"
    command: click.Command = plimsoll
    for word in words:
        if word.startswith("$"):
            example = re.search(rf"{word[1:]}=(.*)", path.read_text())
            assert example, f"{word} is not explained"
            assert {option.split("=")[0] for option in example[1].split()} <= option_names(command)
        else:
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), word)
            assert found is not None, word
            command = found


def test_every_component_of_a_node_has_a_unit() -> None:
    started = {" ".join(service(path)["ExecStart"].split()[1:-1]) for path in UNITS}
    assert started == {"scheduler", "node", "driver cpu", "driver memory"}


def test_the_agents_containers_outlive_it() -> None:
    assert service(ROOT / "deploy" / "systemd" / "plimsoll-node.service")["KillMode"] == "process"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Verify them in a root directory that has the program."""
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    program = tmp_path / "usr" / "local" / "bin" / "plimsoll"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in UNITS:
        text = path.read_text().replace("/usr/local/bin/plimsoll", str(program))
        (units / path.name).write_text(text)
    copies = [str(units / path.name) for path in UNITS]
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *copies]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "plimsoll" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


# -- workflows


def steps(path: Path) -> list[dict[str, Any]]:
    tree = yaml.safe_load(path.read_text())
    return [step for job in tree["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_and_commands_that_exist(path: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    tree = yaml.safe_load(path.read_text())
    assert tree["permissions"] == {"contents": "read"}
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
            assert target in targets, target
        for name in re.findall(r"(\S+\.lock)", str(step.get("with", ""))):
            assert (ROOT / name.strip("'\"},")).is_file()


def test_the_two_commands_of_the_readme_are_run_on_every_version() -> None:
    commands = [step["run"] for path in WORKFLOWS for step in steps(path) if "run" in step]
    assert "make test" in commands
    assert ".venv/bin/plimsoll up --demo --once" in commands
    text = (ROOT / "pyproject.toml").read_text()
    supported = re.findall(r"Programming Language :: Python :: (3\.\d+)", text)
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["up"][
        "strategy"
    ]
    assert set(supported) <= set(matrix["matrix"]["python"])
