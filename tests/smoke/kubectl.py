"""kubectl as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.waiting import DEADLINE


def find_kubectl() -> str:
    """Return the path of kubectl from KUBEBUILDER_ASSETS or PATH; empty if there is none."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (Path(assets) / "kubectl").is_file():
        return str(Path(assets) / "kubectl")
    return shutil.which("kubectl") or ""


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class Kubectl:
    """Runner of commands as one user in one namespace; a call requires success and returns the output."""

    def __init__(self, program: str, kubeconfig: Path, directory: Path, namespace: str = "default") -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self._program = program
        self._directory = directory

    def within(self, namespace: str) -> Kubectl:
        return Kubectl(self._program, self.kubeconfig, self._directory, namespace)

    def using(self, kubeconfig: Path) -> Kubectl:
        return Kubectl(self._program, kubeconfig, self._directory, self.namespace)

    def __call__(self, *arguments: str, given: Any = None) -> str:
        result = self.run(*arguments, given=given)
        assert result.code == 0, f"kubectl {' '.join(arguments)}: {result.code}\n{result.out}{result.err}"
        return result.out

    def refused(self, *arguments: str, given: Any = None) -> str:
        """Return the error output of a command that must fail."""
        result = self.run(*arguments, given=given)
        assert result.code != 0, f"kubectl {' '.join(arguments)} succeeded:\n{result.out}"
        return result.err

    def get(self, *arguments: str) -> Any:
        """Return objects as JSON."""
        return json.loads(self("get", *arguments, "-o", "json"))

    def run(self, *arguments: str, given: Any = None, editor: str = "") -> Result:
        """Run a command; `given` (trees) is its standard input, `editor` is for `kubectl edit`."""
        done = subprocess.run(
            [self._program, "--namespace", self.namespace, *arguments],
            input=manifest(given).encode() if given is not None else None,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            timeout=DEADLINE,
            env={**self._environment(), "KUBE_EDITOR": editor},
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that keeps running, such as `get -w`; the caller stops it."""
        return subprocess.Popen(
            [self._program, "--namespace", self.namespace, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self._directory),
            "KUBECACHEDIR": str(self._directory / "cache"),
        }


def manifest(given: Any) -> str:
    """Write one tree or a list of trees to a file for -f, or a patch."""
    return json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": given} if isinstance(given, list) else given
    )
