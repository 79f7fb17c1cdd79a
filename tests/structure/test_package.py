"""Wheel and source archive: built, opened and used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from plimsoll.cli.main import SERVER_MODULES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "plimsoll"


def read_lock(name: str) -> dict[str, str]:
    """Return the pinned version and marker of each package in a lock file."""
    pins = re.findall(r"(?m)^([A-Za-z0-9._-]+)==(.*?) *\\?$", (ROOT / name).read_text())
    return dict(pins)


def test_the_runtime_lock_is_a_part_of_the_development_lock() -> None:
    runtime, development = read_lock("requirements.lock"), read_lock("requirements-dev.lock")
    assert runtime.items() < development.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in project["dependencies"] + extras["build"] + extras["server"]:
        assert re.split("[<>=]", requirement)[0].lower() in runtime
    assert not {"pytest", "mypy", "kubernetes", "grpcio-tools"} & runtime.keys()


def test_the_message_about_the_extra_covers_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {re.split("[<>=]", each)[0].lower() for each in project["optional-dependencies"]["server"]}
    modules = packages_distributions()
    found = {name for name, packages in modules.items() if extra & {each.lower() for each in packages}}
    assert {name for name in found if not name.startswith("_")} == SERVER_MODULES


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    (wheel,) = directory.glob("*.whl")
    (sdist,) = directory.glob("*.tar.gz")
    return wheel, sdist


def files_of_the_package() -> set[str]:
    return {
        path.relative_to(SOURCE.parent).as_posix()
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_package_and_the_commands(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        names = set(wheel.namelist())
        assert files_of_the_package() <= names
        points = wheel.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
        meta = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "plimsoll = plimsoll.cli.main:main" in points
    assert "kubectl-plimsoll = " in points
    assert "Requires-Python: >=3.11" in meta
    assert {"Operating System :: MacOS", "Operating System :: Microsoft :: Windows"} <= {
        line.removeprefix("Classifier: ") for line in meta.splitlines()
    }
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


def test_the_source_archive_has_what_builds_and_tests_it(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        "pyproject.toml",
        "requirements.lock",
        "requirements-dev.lock",
        "Makefile",
        "README.md",
        "LICENSE",
    }
    wanted.add("docs/tour.md")
    assert wanted | {f"src/{name}" for name in files_of_the_package()} <= names
    assert "deploy/helm/plimsoll/Chart.yaml" in names
    assert "examples/what-if/cluster.yaml" in names
    assert "tests/structure/test_package.py" in names


def test_the_wheel_works_without_the_sources(archives: tuple[Path, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        wheel.extractall(tmp_path / "site")
    program = (
        "import plimsoll, sys; from importlib.resources import files; from plimsoll.cli.main import main\n"
        "assert plimsoll.__file__.startswith(sys.argv[1]), plimsoll.__file__\n"
        "assert files('plimsoll.tools.dashboard').joinpath('assets/index.html').is_file()\n"
        "main(['top', 'nodes', '-f', sys.argv[2]])\n"
    )
    cluster = ROOT / "examples" / "what-if" / "cluster.yaml"
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-c", program, str(site), str(cluster)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "node-1" in done.stdout
