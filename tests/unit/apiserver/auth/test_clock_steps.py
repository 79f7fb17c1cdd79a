"""Server starts with a clock behind its certificates: a warning, never a refusal."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from plimsoll.apiserver.auth.certificates import SERVER_DAYS, CertificateAuthority, create_ssl_context
from plimsoll.apiserver.auth.users import ADMIN
from plimsoll.apiserver.process import ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES
from plimsoll.client.kubeconfig import find_config
from tests.unit.apiserver.auth.tls import after, client_context, handshake

EPOCH = datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)


def parse(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def key_of(certificate: x509.Certificate) -> object:
    return certificate.public_key().public_numbers()  # type: ignore[union-attr]


def test_certificates_begin_before_they_are_made(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    hour_ago = after(minutes=-55)()
    for pem in (
        authority.certificate,
        authority.issue_server(["a"]).certificate,
        authority.issue_client(ADMIN).certificate,
    ):
        assert parse(pem).not_valid_before_utc < hour_ago


def test_a_small_step_back_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    before = authority.ensure_server_pair()[0].read_bytes()
    again = CertificateAuthority.load_or_create(tmp_path, after(minutes=-50))
    assert again.certificate == authority.certificate
    assert again.ensure_server_pair()[0].read_bytes() == before
    assert not caplog.records


@pytest.mark.parametrize("clock", [after(days=-30), lambda: EPOCH], ids=["30 days", "1970"])
def test_certificates_are_made_again_when_the_clock_is_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: object
) -> None:
    assert callable(clock)
    old = CertificateAuthority.load_or_create(tmp_path)
    client = client_context(old, old.issue_client(ADMIN), tmp_path)
    old.ensure_server_pair()
    behind = CertificateAuthority.load_or_create(tmp_path, clock)
    assert "has the clock stepped back?" in caplog.text
    first, second = parse(old.certificate), parse(behind.certificate)
    assert second.not_valid_before_utc < clock() < first.not_valid_before_utc
    assert (second.subject, second.not_valid_after_utc) == (first.subject, first.not_valid_after_utc)
    assert key_of(second) == key_of(first)
    pair = behind.ensure_server_pair()
    leaf = parse(pair[0].read_bytes())
    assert leaf.not_valid_before_utc < clock()
    # Once the clock is right again, what was issued meanwhile is good, for clients of either CA certificate.
    assert leaf.not_valid_after_utc > after(days=SERVER_DAYS - 1)()
    server = create_ssl_context(*pair, client_authorities=[behind.certificate], now=clock)
    peer, _ = handshake(server, client)
    assert peer
    assert handshake(server, client_context(behind, behind.issue_client(ADMIN), tmp_path))[0]
    caplog.clear()
    right = CertificateAuthority.load_or_create(tmp_path)
    assert right.certificate == behind.certificate
    assert right.ensure_server_pair()[0].read_bytes() == pair[0].read_bytes()
    assert not caplog.records


def test_a_given_certificate_that_is_not_valid_yet_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = CertificateAuthority.load_or_create(tmp_path).ensure_server_pair()
    assert isinstance(create_ssl_context(*pair, now=after(days=-2)), ssl.SSLContext)
    assert "clients refuse it until then; check the clock" in caplog.text


def test_the_server_starts_although_its_certificates_are_of_the_future(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock was two days ahead when the data directory was created, and was corrected since."""
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        data, kubeconfig = tmp_path / "data", tmp_path / "kubeconfig"
        first = await start_server(ServerSettings(data=data, controllers=False, now=after(days=2)))
        await first.stop()
        second = await start_server(ServerSettings(data=data, controllers=False))
        try:
            second.write_kubeconfig(kubeconfig)
            async with Client.connect(find_config(kubeconfig, environ={})) as client:
                assert (await client.get(NAMESPACES, "default"))["metadata"]["name"] == "default"
        finally:
            await second.stop()

    asyncio.run(scenario())
    assert "has the clock stepped back?" in caplog.text
