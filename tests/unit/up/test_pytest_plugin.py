"""Pytest fixtures, in separate pytest runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Found by its entry point, all modules of the package would be compiled again with rewritten assertions.
PLUGIN = ["--disable-plugin-autoload", "-p", "plimsoll.up.pytest_plugin", "-p", "no:cacheprovider"]


def run(directory: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(source)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGIN, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_fixtures(tmp_path: Path) -> None:
    source = """
import pytest

SEEN = set()

@pytest.mark.parametrize("turn", [1, 2])
def test_each_has_its_own(plimsoll_cluster, turn):
    plimsoll_cluster.apply('''
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: a}
    ''')
    assert plimsoll_cluster.client.get("configmaps", "a", "default")["metadata"]["uid"] not in SEEN
    SEEN.add(plimsoll_cluster.client.get("configmaps", "a", "default")["metadata"]["uid"])
    assert plimsoll_cluster.kubeconfig.is_file()

def test_one_is_shared(plimsoll_session_cluster):
    plimsoll_session_cluster.client.create("namespaces", {"metadata": {"name": "left"}})

def test_and_shared_again(plimsoll_session_cluster):
    assert plimsoll_session_cluster.client.get("namespaces", "left")

@pytest.mark.plimsoll(controllers=False, feature_gates="DRANodeAllocatableResources=false")
def test_set_up_differently(plimsoll_cluster):
    assert not plimsoll_cluster.settings.controllers
    assert not plimsoll_cluster.settings.gates.enabled("DRANodeAllocatableResources")
"""
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_run_without_a_cluster_imports_nothing(tmp_path: Path) -> None:
    source = """
import sys

def test_nothing_is_loaded():
    ours = {name for name in sys.modules if name.split(".")[0] == "plimsoll"}
    assert ours <= {"plimsoll", "plimsoll.up", "plimsoll.up.pytest_plugin"}, ours
    assert not {"aiohttp", "msgspec", "cryptography", "numpy"} & set(sys.modules)
"""
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fixtures_are_documented(tmp_path: Path) -> None:
    done = run(tmp_path, "", "--fixtures", "--markers")
    assert "@pytest.mark.plimsoll(controllers=True" in done.stdout
