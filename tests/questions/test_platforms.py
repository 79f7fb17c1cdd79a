"""Query commands on Windows and macOS: the same answers as on Linux, from a dump and from a cluster.

The platforms are Linux without what the others lack (`platform_process.py`).
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.apiserver.auth.certificates import CertificateAuthority, create_ssl_context
from plimsoll.cli.commands import TABLE
from tests.questions.clusters import rich_cluster
from tests.questions.servers import Server

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="its standard library imports modules by sys.platform while it runs"
)
ROOT = Path(__file__).parents[2]
PROCESS = Path(__file__).with_name("platform_process.py")
#: Lines of commands; those that ask a cluster or a dump get the options of one or the other.
COMMANDS = (
    "top",
    "explain work/picky",
    "whatif",
    "whatif --drain node-0000 -o yaml",
    "defrag work/picky",
    "audit",
    "audit -o sarif",
    "policies",
    "dump -o yaml",
    "dump --anonymize --key-file key",
    "dashboard --listen 127.0.0.1:0",
    "check",
    "select device.driver.endsWith('example.com')",
    "allocate",
    "convert --form 1.37",
)
FIXED = ("gates", "completion bash", "--help")
EXEC_PLUGIN = """
import os, pathlib
pathlib.Path("plugin-ran").write_text(os.environ["KUBERNETES_EXEC_INFO"])
print('{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}')
"""
Results = dict[str, tuple[int, str, str]]


def run(platform: str, lines: list[str], directory: Path, **environment: str) -> Results:
    """Run commands in one process; return exit code, output and errors by command line."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "COLUMNS", "LINES") if name in os.environ}
    done = subprocess.run(
        # A text without a named encoding is one of another encoding on Windows.
        [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", PROCESS, platform],
        input=json.dumps([line.split() for line in lines]),
        cwd=directory,
        env={**kept, "PYTHONPATH": str(ROOT / "src"), "TZ": "America/Caracas", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[tuple[int, str, str]] = json.loads(done.stdout)
    return {line: (code, out, err) for line, (code, out, err) in zip(lines, answers, strict=True)}


def check_equal(found: Results, expected: Results) -> None:
    for line, (code, out, err) in expected.items():
        assert found[line][:2] == (code, out), (line, found[line])
        assert found[line][2] == err or "WARNING plimsoll.informer" in err, line  # the server has no watches
        assert code in (0, 1), (line, err)
        assert out or code, line


def test_every_query_command_is_run() -> None:
    queries = {row.name for row in TABLE["Query a cluster or a dump"]}
    assert queries - {line.split()[0] for line in COMMANDS} == {"diff"}  # which has a test of its own


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("query")
    (made / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": rich_cluster()}))
    (made / "key").write_text("0123456789abcdef")
    return made


@pytest.fixture(scope="module")
def lines_of_files() -> list[str]:
    return [*(f"{line} -f dump.json" for line in COMMANDS), "diff dump.json dump.json", *FIXED]


@pytest.fixture(scope="module")
def answers_of_files(directory: Path, lines_of_files: list[str]) -> Results:
    return run("native", lines_of_files, directory)


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_answers_from_a_dump(
    platform: str, directory: Path, lines_of_files: list[str], answers_of_files: Results
) -> None:
    check_equal(run(platform, lines_of_files, directory), answers_of_files)
    assert answers_of_files["dashboard --listen 127.0.0.1:0 -f dump.json"][:2] == (
        0,
        " 200 True\napi/nodes 200 True\nmetrics 200 True",
    )


@pytest.fixture(scope="module")
def home(directory: Path) -> Iterator[Path]:
    """Home directory with a kubeconfig of a cluster, whose credentials are those of a plugin."""
    authority = CertificateAuthority.load_or_create(directory)
    tls: ssl.SSLContext = create_ssl_context(*authority.ensure_server_pair())
    home = directory / "home"
    (home / ".kube").mkdir(parents=True)
    with Server(rich_cluster(), tls=tls) as server:
        path = server.kubeconfig(home / ".kube" / "config", **{"certificate-authority": "../../ca.crt"})
        tree: dict[str, Any] = yaml.safe_load(path.read_text())
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", EXEC_PLUGIN],
            "interactiveMode": "Never",
        }
        tree["users"] = [{"name": "me", "user": {"exec": plugin}}]
        path.write_text(yaml.safe_dump(tree))
        yield home


LINES_OF_CLUSTERS = [*COMMANDS, "diff dump.json"]


@pytest.fixture(scope="module")
def answers_of_a_cluster(directory: Path, home: Path) -> Results:
    return run("native", LINES_OF_CLUSTERS, directory, HOME=str(home))


def test_answers_from_a_cluster(directory: Path, home: Path, answers_of_a_cluster: Results) -> None:
    marker = directory / "plugin-ran"
    marker.unlink()
    check_equal(run("win32", LINES_OF_CLUSTERS, directory, USERPROFILE=str(home)), answers_of_a_cluster)
    assert "ExecCredential" in marker.read_text()


def test_the_kubeconfig_list_is_that_of_the_platform(directory: Path, home: Path) -> None:
    """KUBECONFIG is separated by semicolons on Windows; a path there has a colon."""
    listed = f"C:/missing/config;{home / '.kube' / 'config'}"
    found = run("win32", ["top"], directory, KUBECONFIG=listed, USERPROFILE=str(directory))
    assert found["top"][0] == 0, found
