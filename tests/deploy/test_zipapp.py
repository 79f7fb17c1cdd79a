"""Zipapp and krew plugin: one file that runs without any installed package."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from release.bootstrap import unpack
from release.krew import manifest, write_archive
from release.payload import dependencies, dependency_files, package_files
from release.zipapp import write_zipapp

ROOT = Path(__file__).parents[2]
MAIN = """
def main():
    import sys, os
    print(__file__, *sys.argv[1:], os.environ["PYTHONPATH"].split(":")[0])
def run_as_plugin():
    print("as a plugin")
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A zipapp with a package of the same shape."""
    source = tmp_path / "main.py"
    source.write_text(MAIN)
    empty = tmp_path / "empty"
    empty.touch()
    names = {"plimsoll/__init__.py": empty, "plimsoll/cli/__init__.py": empty, "plimsoll/cli/main.py": source}
    write_zipapp(tmp_path / "small.pyz", names)
    return tmp_path / "small.pyz"


def run(program: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with Python alone: no packages, no variables but these."""
    command = [sys.executable, "-I", "-S", str(program), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_it_unpacks_itself_once(small: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = run(small, "top", "-f", "x", PLIMSOLL_CACHE=str(cache))
    assert first.returncode == 0, first.stderr
    (directory,) = cache.iterdir()
    module = directory / "plimsoll" / "cli" / "main.py"
    assert first.stdout.split() == [str(module), "top", "-f", "x", str(directory)]
    made = module.stat().st_mtime_ns
    assert run(small, "again", PLIMSOLL_CACHE=str(cache)).returncode == 0
    assert module.stat().st_mtime_ns == made
    assert cache.stat().st_mode & 0o077 == 0


def test_another_content_gets_another_directory(small: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    before = unpack(small, tmp_path / "cache")
    (tmp_path / "main.py").write_text(MAIN + "\n")
    write_zipapp(small, {"plimsoll/cli/main.py": tmp_path / "main.py"})
    assert unpack(small, tmp_path / "cache") != before


def test_the_home_directory_is_the_usual_cache(small: Path, tmp_path: Path) -> None:
    assert str(tmp_path / ".cache" / "plimsoll") in run(small, HOME=str(tmp_path)).stdout
    assert str(tmp_path / "xdg" / "plimsoll") in run(small, XDG_CACHE_HOME=str(tmp_path / "xdg")).stdout


def test_a_cache_that_others_can_write_is_refused(small: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    done = run(small, PLIMSOLL_CACHE=str(shared))
    assert done.returncode == 1
    assert "others can write there" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_part_that_was_left_behind_is_no_obstacle(small: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / ".part-left").mkdir(parents=True)
    cache.chmod(0o700)
    assert run(small, PLIMSOLL_CACHE=str(cache)).returncode == 0


def test_kubectl_starts_it_as_a_plugin(small: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "kubectl-plimsoll"
    plugin.symlink_to(small)
    assert run(plugin, PLIMSOLL_CACHE=str(tmp_path / "cache")).stdout == "as a plugin\n"


def test_the_same_files_give_the_same_bytes(small: Path, tmp_path: Path) -> None:
    before = small.read_bytes()
    os.utime(tmp_path / "main.py", (1, 1))
    files = {"cli/main.py": "main.py", "cli/__init__.py": "empty", "__init__.py": "empty"}
    write_zipapp(small, {f"plimsoll/{name}": tmp_path / file for name, file in files.items()})
    assert small.read_bytes() == before


def test_the_payload_has_every_dependency_and_no_path_of_this_machine() -> None:
    names = dependencies()
    assert {"aiohttp", "grpcio", "numpy", "google-re2"} <= set(names)
    assert not {"pytest", "mypy", "hatchling", "plimsoll"} & set(names)
    payload = {**dependency_files(), **package_files()}
    assert "numpy/__init__.py" in payload
    assert "plimsoll/cli/main.py" in payload
    assert not [name for name in payload if name.endswith("direct_url.json") or name.startswith(("/", ".."))]
    metadata = [name for name in payload if name.startswith("plimsoll-") and name.endswith("/METADATA")]
    assert len(metadata) == 1


@pytest.mark.slow
def test_the_program_runs_without_installed_packages(tmp_path: Path) -> None:
    program = tmp_path / "plimsoll.pyz"
    write_zipapp(program, {**dependency_files(), **package_files()})
    dump = str(ROOT / "examples" / "what-if" / "cluster.yaml")
    for words in (["--version"], ["top", "nodes", "-f", dump]):
        done = run(program, *words, PLIMSOLL_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
    assert "node-1" in done.stdout


def test_the_krew_manifest_matches_its_archive(small: Path, tmp_path: Path) -> None:
    archive = tmp_path / "plimsoll.tar.gz"
    write_archive(archive, small)
    tree = manifest(archive, "https://example.com/v1/plimsoll.tar.gz")
    (entry,) = tree["spec"]["platforms"]
    assert entry["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert entry["uri"] == "https://example.com/v1/plimsoll.tar.gz"
    assert tree["metadata"]["name"] == "plimsoll"
    assert len(tree["spec"]["shortDescription"]) <= 50
    with tarfile.open(archive) as opened:
        assert {each["from"] for each in entry["files"]} == set(opened.getnames())
        assert opened.getmember(entry["bin"]).mode == 0o755
    before = archive.read_bytes()
    write_archive(archive, small)
    assert archive.read_bytes() == before
    assert yaml.safe_load(yaml.safe_dump(tree)) == tree
