"""Stages of simulated pods, from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.errors import ConfigError
from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.runtime.simulated import RUN_SECONDS, Script, script_of
from plimsoll.node.runtime.stages import find_stage, parse_stages, read_stages_file

FILE = """
stages:
- {matchLabels: {app: batch}, namespace: jobs, runSeconds: 5, exitCode: 1}
- {container: setup, runSeconds: 500ms}
- {matchLabels: {app: batch}, runSeconds: 1m}
"""
REGULAR, INIT = ContainerRole.REGULAR, ContainerRole.INIT


def test_the_first_stage_that_matches_counts(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(FILE)
    stages = read_stages_file(path)

    def script(namespace: str, app: str, container: str, role: ContainerRole, **given: str) -> Script:
        stage = find_stage(stages, namespace, {"app": app, "x": "y"}, container, role)
        annotations = {f"plimsoll.dev/{name.replace('_', '-')}": value for name, value in given.items()}
        return script_of(annotations, container, role, stage)

    assert script("jobs", "batch", "main", REGULAR) == Script(5.0, 1)
    assert script("other", "batch", "main", REGULAR) == Script(60.0, 0)
    assert script("other", "web", "main", REGULAR) == Script(None, 0)
    assert script("other", "web", "setup", INIT) == Script(0.5, 0)
    assert script("jobs", "batch", "other", INIT) == Script(0.0, 0)
    assert script("jobs", "batch", "main", REGULAR, run_seconds="2") == Script(2.0, 0)
    assert script("jobs", "batch", "main", REGULAR, exit_code="7") == Script(5.0, 7)
    assert RUN_SECONDS == "plimsoll.dev/run-seconds"


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"stages": [{"matchLabels": {}}]}, "runSeconds"),
        ({"stages": [{"runSeconds": "soon"}]}, "must be a time such as"),
        ({"stages": [{"runSeconds": 1, "exitCode": 300}]}, "exitCode"),
        ({"stages": [{"runSeconds": 1, "color": "red"}]}, "color"),
    ],
)
def test_errors_name_the_field(tree: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_stages(tree, "stages.yaml")
