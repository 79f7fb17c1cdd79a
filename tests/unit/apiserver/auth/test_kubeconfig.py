"""Issued kubeconfig files."""

from __future__ import annotations

import base64
import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from plimsoll.apiserver.auth.certificates import CertificateAuthority
from plimsoll.apiserver.auth.kubeconfig import write_kubeconfig
from plimsoll.apiserver.auth.users import ADMIN
from plimsoll.errors import ConfigError

KUBECTL = shutil.which("kubectl")


def test_a_kubeconfig_is_complete(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    client = authority.issue_client(ADMIN)
    path = tmp_path / "deep" / "config"
    write_kubeconfig(
        path,
        "https://127.0.0.1:6443",
        authority=authority.certificate,
        token="secret",
        client=client,
        namespace="x",
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    tree = yaml.safe_load(path.read_text())
    (cluster,), (user,), (context,) = tree["clusters"], tree["users"], tree["contexts"]
    assert cluster["cluster"]["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == authority.certificate
    assert user["user"]["token"] == "secret"
    assert base64.b64decode(user["user"]["client-key-data"]) == client.key
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"], "namespace": "x"}
    assert tree["current-context"] == context["name"]


def test_a_kubeconfig_replaces_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, "http://localhost:1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "old" not in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["config"]


def test_an_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_kubeconfig(tmp_path / "file" / "config", "http://localhost:1")


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kubectl_reads_it(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    path = tmp_path / "config"
    write_kubeconfig(
        path, "https://127.0.0.1:1", authority=authority.certificate, client=authority.issue_client(ADMIN)
    )
    command = [str(KUBECTL), "--kubeconfig", str(path), "config", "view", "-o", "json", "--minify"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    shown = json.loads(done.stdout)
    assert shown["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert shown["current-context"] == "plimsoll"
