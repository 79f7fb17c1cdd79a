"""`plimsoll kubectl`: the cluster of a data directory, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from plimsoll.cli.kubectl import run_kubectl
from plimsoll.errors import ConfigError


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[list[str], str]]:
    """Collect the commands that replace the process, each with its KUBECONFIG."""
    found: list[tuple[list[str], str]] = []

    def execute(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        assert program == str(tmp_path / "bin" / "kubectl")
        found.append((arguments, environment["KUBECONFIG"]))

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    monkeypatch.setattr(os, "execve", execute)
    monkeypatch.chdir(tmp_path)
    return found


def call(*arguments: str) -> Any:
    return CliRunner().invoke(run_kubectl, arguments, catch_exceptions=False, standalone_mode=False)


def test_arguments_are_passed_on_and_the_kubeconfig_is_the_clusters(calls: Any, tmp_path: Path) -> None:
    for name in ("plimsoll-data", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kubeconfig").touch()
    call("-n", "demo", "get", "pods", "--data-dir", "x", "--help")
    call("--data-dir", "copy", "exec", "-it", "p", "--", "ls", "-l")
    assert calls == [
        (
            ["kubectl", "-n", "demo", "get", "pods", "--data-dir", "x", "--help"],
            f"{tmp_path}/plimsoll-data/kubeconfig",
        ),
        (["kubectl", "exec", "-it", "p", "--", "ls", "-l"], f"{tmp_path}/copy/kubeconfig"),
    ]


def test_a_missing_cluster_and_a_missing_kubectl(calls: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="start a cluster with `plimsoll up`"):
        call("get", "pods")
    (tmp_path / "plimsoll-data").mkdir()
    (tmp_path / "plimsoll-data" / "kubeconfig").touch()
    (tmp_path / "bin" / "kubectl").unlink()
    with pytest.raises(ConfigError, match="not found in PATH"):
        call("get", "pods")
    assert calls == []
