"""Certificates of the CA, the server and clients, and TLS with them."""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from plimsoll.apiserver.auth import certificates
from plimsoll.apiserver.auth.authentication import certificate_user
from plimsoll.apiserver.auth.certificates import (
    DEFAULT_NAMES,
    CertificateAuthority,
    CertificatePair,
    check_server_certificate,
    create_ssl_context,
    read_client_ca,
)
from plimsoll.apiserver.auth.users import ADMIN, User, driver_user, node_user
from plimsoll.errors import ConfigError
from tests.unit.apiserver.auth.tls import after, client_context, handshake


def names_in(path: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in found.get_values_for_type(x509.IPAddress)}
    return set(found.get_values_for_type(x509.DNSName)) | addresses


def test_the_ca_is_made_once(tmp_path: Path) -> None:
    first = CertificateAuthority.load_or_create(tmp_path)
    assert CertificateAuthority.load_or_create(tmp_path).certificate == first.certificate
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    left = x509.load_pem_x509_certificate(first.certificate).not_valid_after_utc - datetime.datetime.now(
        datetime.UTC
    )
    assert left.days > 3600


def test_the_server_certificate_is_kept_while_it_is_good(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    certificate, key = authority.ensure_server_pair(["node.example.com", "10.0.0.1"])
    assert names_in(certificate) == {*DEFAULT_NAMES, "node.example.com", "10.0.0.1"}
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = certificate.read_bytes()
    assert authority.ensure_server_pair(["10.0.0.1", "node.example.com"])[0].read_bytes() == before
    authority.ensure_server_pair(["other"])
    assert names_in(certificate) == {*DEFAULT_NAMES, "other"}


def test_the_server_certificate_is_made_again_before_it_ends(tmp_path: Path) -> None:
    certificate, _ = CertificateAuthority.load_or_create(tmp_path).ensure_server_pair()
    before = certificate.read_bytes()
    authority = CertificateAuthority.load_or_create(tmp_path, after(days=certificates.SERVER_DAYS - 29))
    authority.ensure_server_pair()
    assert certificate.read_bytes() != before
    again = certificate.read_bytes()
    authority.ensure_server_pair()
    assert certificate.read_bytes() == again


@pytest.mark.parametrize("damage", ["server.crt", "server.key"])
def test_a_damaged_server_certificate_is_made_again(tmp_path: Path, damage: str) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    authority.ensure_server_pair()
    (tmp_path / damage).write_text("nonsense")
    check_server_certificate(*authority.ensure_server_pair())


def test_a_certificate_of_another_ca_is_made_again(tmp_path: Path) -> None:
    CertificateAuthority.load_or_create(tmp_path).ensure_server_pair()
    (tmp_path / "ca.crt").unlink()
    authority = CertificateAuthority.load_or_create(tmp_path)
    certificate, _ = authority.ensure_server_pair()
    issued = x509.load_pem_x509_certificate(certificate.read_bytes())
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))


def test_an_expired_ca_is_reported(tmp_path: Path) -> None:
    CertificateAuthority.load_or_create(tmp_path)
    with pytest.raises(ConfigError, match="delete it and"):
        CertificateAuthority.load_or_create(tmp_path, after(days=certificates.CA_DAYS))


def test_a_ca_with_another_key_is_reported(tmp_path: Path) -> None:
    CertificateAuthority.load_or_create(tmp_path)
    other = CertificateAuthority.load_or_create(tmp_path / "other")
    (tmp_path / "ca.crt").write_bytes(other.certificate)
    with pytest.raises(ConfigError, match="do not match"):
        CertificateAuthority.load_or_create(tmp_path)
    (tmp_path / "ca.crt").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="contains no PEM certificate"):
        CertificateAuthority.load_or_create(tmp_path)


def test_an_incomplete_ca_is_created_again(tmp_path: Path) -> None:
    """The process may end between writing the key and the certificate."""
    CertificateAuthority.load_or_create(tmp_path)
    (tmp_path / "ca.crt").unlink()
    assert CertificateAuthority.load_or_create(tmp_path).certificate == (tmp_path / "ca.crt").read_bytes()


@pytest.mark.parametrize("name", ["", "a b", "x" * 300, "ümlaut", "host:6443", "-a", "a..b"])
def test_invalid_names_are_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid host name"):
        CertificateAuthority.load_or_create(tmp_path).ensure_server_pair([name])


def test_long_client_certificate_names_are_reported(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    for user in (User("x" * 65), User(""), User("a", groups=("",))):
        with pytest.raises(ConfigError, match="use a token instead"):
            authority.issue_client(user)


@pytest.mark.parametrize("user", [ADMIN, node_user("n1"), driver_user("gpu.example.com"), User("ümlaut, x")])
def test_a_client_certificate_identifies_the_user(tmp_path: Path, user: User) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    server = create_ssl_context(*authority.ensure_server_pair(), client_authorities=[authority.certificate])
    peer, version = handshake(server, client_context(authority, authority.issue_client(user), tmp_path))
    assert version == "TLSv1.3"
    assert certificate_user(peer) == user.as_authenticated()


def test_client_certificates_are_optional(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    server = create_ssl_context(*authority.ensure_server_pair(), client_authorities=[authority.certificate])
    for name in ("localhost", "127.0.0.1", "kubernetes.default.svc"):
        peer, _ = handshake(server, client_context(authority, None, tmp_path), name)
        assert not peer


def test_certificates_of_others_are_refused(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    stranger = CertificateAuthority.load_or_create(tmp_path / "stranger")
    server = create_ssl_context(*authority.ensure_server_pair(), client_authorities=[authority.certificate])
    forged = client_context(authority, stranger.issue_client(ADMIN), tmp_path)
    forged.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 the client learns of it only later
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server, forged)
    believed = create_ssl_context(
        *authority.ensure_server_pair(), client_authorities=[authority.certificate, stranger.certificate]
    )
    peer, _ = handshake(believed, client_context(authority, stranger.issue_client(ADMIN), tmp_path))
    assert certificate_user(peer) == ADMIN


def test_a_server_certificate_is_refused_as_a_client_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    server = create_ssl_context(*authority.ensure_server_pair(), client_authorities=[authority.certificate])
    context = client_context(authority, authority.issue_server(["localhost"]), tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server, context)


def test_an_expired_client_certificate_is_refused(tmp_path: Path) -> None:
    CertificateAuthority.load_or_create(tmp_path, after(days=-9))
    authority = CertificateAuthority.load_or_create(tmp_path, after(days=-2))
    server = create_ssl_context(*authority.ensure_server_pair(), client_authorities=[authority.certificate])
    context = client_context(authority, authority.issue_client(ADMIN, days=1), tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server, context)


def test_old_tls_is_refused(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    context = create_ssl_context(*authority.ensure_server_pair())
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE


def test_provided_certificates_are_validated(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    certificate, key = tmp_path / "given.crt", tmp_path / "given.key"

    def give(pair: CertificatePair) -> None:
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)

    give(authority.issue_server(["a"]))
    check_server_certificate(certificate, key)
    with pytest.raises(ConfigError, match="cannot be read"):
        check_server_certificate(tmp_path / "none", key)
    with pytest.raises(ConfigError, match="contains no PEM certificate"):
        check_server_certificate(key, key)
    with pytest.raises(ConfigError, match="contains no unencrypted PEM private key"):
        check_server_certificate(certificate, certificate)
    key.write_bytes(authority.issue_server(["a"]).key)
    with pytest.raises(ConfigError, match="is not the key of"):
        check_server_certificate(certificate, key)
    give(authority.issue_client(ADMIN))
    with pytest.raises(ConfigError, match="is not a serving certificate"):
        check_server_certificate(certificate, key)
    give(authority.issue_server(["a"], days=1))
    with pytest.raises(ConfigError, match="expired on"):
        create_ssl_context(certificate, key, now=after(days=2))


def test_a_client_ca_is_validated(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    assert read_client_ca(tmp_path / "ca.crt") == authority.certificate
    leaf = tmp_path / "leaf.crt"
    leaf.write_bytes(authority.issue_client(ADMIN).certificate)
    with pytest.raises(ConfigError, match="is not a CA certificate"):
        read_client_ca(leaf)
    with pytest.raises(ConfigError, match="cannot be used for TLS"):
        create_ssl_context(*authority.ensure_server_pair(), client_authorities=[b"nonsense"])


def test_key_usages_of_certificates(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    root = x509.load_pem_x509_certificate(authority.certificate)
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    for pair, usage in (
        (authority.issue_server(["a"]), ExtendedKeyUsageOID.SERVER_AUTH),
        (authority.issue_client(ADMIN), ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        issued = x509.load_pem_x509_certificate(pair.certificate)
        assert list(issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
        assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert issued.not_valid_after_utc <= root.not_valid_after_utc
