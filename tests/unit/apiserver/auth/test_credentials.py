"""Issuing of credentials."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from plimsoll.apiserver.auth.certificates import CertificateAuthority
from plimsoll.apiserver.auth.credentials import issue_kubeconfig, parse_component_user
from plimsoll.apiserver.auth.users import ADMIN, SCHEDULER, User, driver_name_of, node_name_of
from plimsoll.errors import ConfigError


def test_short_names() -> None:
    assert parse_component_user("admin") == ADMIN
    assert parse_component_user("scheduler") == SCHEDULER
    assert node_name_of(parse_component_user("node:worker-1")) == "worker-1"
    assert driver_name_of(parse_component_user("driver:gpu.example.com")) == "gpu.example.com"
    assert parse_component_user("viewer:vera").groups == ("plimsoll:viewers", "system:authenticated")


@pytest.mark.parametrize(
    "text",
    ["", "root", "node", "node:", "node:A", "node:a b", "driver:", "viewer:", "viewer:system:x"],
)
def test_other_names_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_component_user(text)


def test_a_kubeconfig_is_issued(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    issue_kubeconfig(
        tmp_path, parse_component_user("node:n1"), tmp_path / "n1", "https://127.0.0.1:6443", days=7
    )
    tree = yaml.safe_load((tmp_path / "n1").read_text())
    (user,) = tree["users"]
    assert user["name"] == "system:node:n1"
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["user"]["client-certificate-data"]))
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [group.value for group in groups] == ["system:nodes"]
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 7


def test_credentials_require_a_server_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a data directory of a server"):
        issue_kubeconfig(tmp_path, User("a"), tmp_path / "k", "https://x")
    assert not list(tmp_path.iterdir())
