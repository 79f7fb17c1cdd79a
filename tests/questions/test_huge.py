"""Dumps of 100 megabytes, read in a separate process with bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.dumps import Tree, big_cluster

pytestmark = pytest.mark.slow

SIZE = 100_000_000
#: So many bytes of memory for each byte of the dump, at most; and so many beside that.
TIMES, BESIDE = 7, 200_000_000
#: Runs a command and writes its peak memory (KiB) to a file: the peak of a new process begins with the size
#: of the one that starts it, which is small here.
_MEASURE = """
import pathlib, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
pathlib.Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


def _write(path: Path, form: str) -> int:
    """Write a cluster of this size as kubectl does, and return its number of nodes."""
    standing: list[Tree] = []
    one: list[Tree] = []
    for tree in big_cluster(1, pods_per_node=10, pending=3):
        mine = "0000" in tree["metadata"]["name"] and not tree["metadata"]["name"].startswith("waiting")
        (one if mine else standing).append(tree)
    made = {"json": _json, "yaml": _yaml}[form]
    text = made(one)
    number = 0
    with path.open("w") as file:
        file.write('{"apiVersion": "v1", "items": [\n' if form == "json" else "apiVersion: v1\nitems:\n")
        while number * len(text) < SIZE:
            file.write(text.replace("0000", f"{number:04d}"))
            file.write(",\n" if form == "json" else "")
            number += 1
        file.write(made(standing))
        file.write(
            '\n], "kind": "List"}\n' if form == "json" else "kind: List\nmetadata: {resourceVersion: ''}\n"
        )
    return number


def _json(trees: Sequence[object]) -> str:
    return ",\n".join(json.dumps(tree, indent=4) for tree in trees)


def _yaml(trees: Sequence[object]) -> str:
    return yaml.dump(trees, Dumper=yaml.CSafeDumper)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_dump_of_100_megabytes(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"dump.{form}"
    nodes = _write(path, form)
    size = path.stat().st_size
    for words, code in ((("top", "--limit", "3"), 0), (("explain",), 1)):
        command = [sys.executable, "-m", "plimsoll.cli.main", *words, "-f", str(path)]
        asked = subprocess.run(
            [sys.executable, "-c", _MEASURE, str(tmp_path / "peak"), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output, peak = asked.stdout, int((tmp_path / "peak").read_text())
        assert asked.returncode == code, output
        assert peak * 1024 < TIMES * size + BESIDE, peak
        assert f"{nodes:,} nodes" in output or "3 pods pending" in output, output


def test_a_truncated_dump_of_100_megabytes(tmp_path: Path) -> None:
    """An error at the very end is reported like any other."""
    for form in ("json", "yaml"):
        path = tmp_path / f"dump.{form}"
        _write(path, form)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 2000)
        asked = subprocess.run(
            [sys.executable, "-m", "plimsoll.cli.main", "top", "-f", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (asked.returncode, asked.stdout) == (2, "")
        assert len(asked.stderr.splitlines()) == 1
        assert str(path) in asked.stderr
        path.unlink()
