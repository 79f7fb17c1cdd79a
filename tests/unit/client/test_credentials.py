"""Tokens, certificates and exec plugins: use, renewal, and errors."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.apiserver.auth.certificates import CertificateAuthority
from plimsoll.apiserver.auth.users import User
from plimsoll.client import Client, ClientConfig, ExecPlugin, Impersonation, Material
from plimsoll.client.credentials import ClientCredentials
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.client.exec_plugin import ExecSource
from plimsoll.errors import ApiError, ConfigError
from tests.unit.client.wire import ReceivedRequest, http_response, serving

V1 = "client.authentication.k8s.io/v1"
SERVER = "https://one:6443"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 2.0  # further than files are trusted unseen
        return self.now


def authorization(credentials: ClientCredentials) -> str:
    return dict(asyncio.run(credentials.headers()))["Authorization"]


# -- tokens


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = ClientCredentials(ClientConfig(SERVER, token=Material(file=file)), Clock())
    assert authorization(credentials) == "Bearer one"
    other = tmp_path / "other"
    other.write_text("two")
    other.rename(file)
    assert authorization(credentials) == "Bearer two"
    file.unlink()
    assert authorization(credentials) == "Bearer two"
    file.write_text("")
    assert authorization(credentials) == "Bearer two"


def test_a_rejected_token_is_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    credentials = ClientCredentials(ClientConfig(SERVER, token=Material(file=file)), lambda: 0.0)
    assert authorization(credentials) == "Bearer one"
    assert not asyncio.run(credentials.renew())
    file.write_text("second")
    assert authorization(credentials) == "Bearer one"
    assert asyncio.run(credentials.renew())
    assert authorization(credentials) == "Bearer second"


def test_a_token_and_a_token_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    config = ClientConfig(SERVER, token=Material(b"given", file))
    assert authorization(ClientCredentials(config)) == "Bearer given"
    file.write_text("read")
    assert authorization(ClientCredentials(config)) == "Bearer read"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "x: the token is empty"), (b"a b", "one word"), ("ö".encode(), "one word"), (b"a\nb", "one word")],
)
def test_invalid_tokens(content: bytes, message: str) -> None:
    credentials = ClientCredentials(ClientConfig(SERVER, token=Material(content, origin="x")))
    with pytest.raises(ConfigError, match=message):
        authorization(credentials)


def test_a_missing_token_file(tmp_path: Path) -> None:
    config = ClientConfig(SERVER, token=Material(file=tmp_path / "gone", origin="user 'u'"))
    with pytest.raises(ConfigError, match=r"user 'u': .*gone: No such file"):
        authorization(ClientCredentials(config))


def test_a_password() -> None:
    assert authorization(ClientCredentials(ClientConfig(SERVER, basic=("me", "p:w")))) == "Basic bWU6cDp3"


def test_user_names_that_are_invalid_in_a_header() -> None:
    for who in (Impersonation("a\r\nX: y"), Impersonation("a", groups=("b\n",))):
        with pytest.raises(ConfigError, match="is not a valid name"):
            ClientCredentials(ClientConfig(SERVER, impersonation=who, origin="o"))


# -- certificates


def context_of(config: ClientConfig) -> ssl.SSLContext:
    return asyncio.run(ClientCredentials(config).tls())


def test_invalid_certificates(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    pair, other = authority.issue_client(User("a")), authority.issue_client(User("b"))
    with pytest.raises(ConfigError, match="ca: contains no certificate in PEM form"):
        context_of(ClientConfig(SERVER, authority=Material(b"nonsense", origin="ca")))
    with pytest.raises(ConfigError, match="ca: contains no certificate in PEM form"):
        context_of(ClientConfig(SERVER, authority=Material(b"\xff", origin="ca")))
    for certificate, key in ((pair.certificate, other.key), (b"x", b"y"), (pair.certificate, b"")):
        config = ClientConfig(SERVER, certificate=Material(certificate, origin="cert"), key=Material(key))
        with pytest.raises(ConfigError, match="cert: the client certificate and its key do not load"):
            context_of(config)


def test_an_encrypted_key_is_refused_without_asking(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    pair = CertificateAuthority.load_or_create(tmp_path).issue_client(User("a"))
    locked = serialization.load_pem_private_key(pair.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    config = ClientConfig(SERVER, certificate=Material(pair.certificate, origin="c"), key=Material(locked))
    with pytest.raises(ConfigError, match="the key must not be encrypted"):
        context_of(config)


async def test_renewed_certificates_are_used(tmp_path: Path) -> None:
    """Another context means new connections; a half-written renewal changes nothing."""
    authority = CertificateAuthority.load_or_create(tmp_path)
    pair = authority.issue_client(User("a"))
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    config = ClientConfig(
        SERVER,
        authority=Material(authority.certificate),
        certificate=Material(file=certificate),
        key=Material(file=key),
    )
    credentials = ClientCredentials(config, Clock())
    first = await credentials.tls()
    assert await credentials.tls() is first
    fresh = authority.issue_client(User("a"))
    certificate.write_bytes(fresh.certificate)
    assert await credentials.tls() is first
    key.write_bytes(fresh.key)
    second = await credentials.tls()
    assert second is not first
    assert await credentials.tls() is second


# -- exec plugins


def script(directory: Path, source: str) -> str:
    """Return a plugin written in Python that writes its input to a file."""
    file = directory / "plugin"
    file.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, pathlib\n"
        f"here = pathlib.Path({str(directory)!r})\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "calls = here / 'calls'\n"
        "count = len(calls.read_text().splitlines()) + 1 if calls.exists() else 1\n"
        "call = {'info': info, 'args': sys.argv[1:], 'A': os.environ.get('A')}\n"
        "calls.open('a').write(json.dumps(call) + '\\n')\n"
        "def give(version=info['apiVersion'], **status):\n"
        "    print(json.dumps({'kind': 'ExecCredential', 'apiVersion': version, 'status': status}))\n"
        + source
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def calls(directory: Path) -> list[dict[str, Any]]:
    file = directory / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def source_of(plugin: ExecPlugin, **options: Any) -> ExecSource:
    return ExecSource(plugin, ClientConfig(SERVER, tls_server_name="name"), **options)


def plugin(command: str, **options: Any) -> ExecPlugin:
    return ExecPlugin(command, V1, interactive_mode="Never", origin="user 'u': exec", **options)


def test_a_plugin_runs_once_until_its_credential_expires(tmp_path: Path) -> None:
    command = script(tmp_path, "give(token=f't{count}', expirationTimestamp='2026-01-01T00:00:00Z')")
    now = datetime(2025, 12, 31, tzinfo=UTC)

    async def scenario() -> None:
        nonlocal now
        source = source_of(plugin(command, args=("x",), env=(("A", "1"),)), wall=lambda: now)
        found = await asyncio.gather(*(source.get() for _ in range(5)))
        assert {each.token for each in found} == {"t1"}
        assert (await source.get()).token == "t1"
        now += timedelta(days=2)
        assert (await source.get()).token == "t2"

    asyncio.run(scenario())
    assert len(calls(tmp_path)) == 2
    first = calls(tmp_path)[0]
    assert (first["args"], first["A"]) == (["x"], "1")
    spec = {"interactive": False}
    assert first["info"] == {"kind": "ExecCredential", "apiVersion": V1, "spec": spec}


def test_a_plugin_receives_the_cluster_on_request(tmp_path: Path) -> None:
    command = script(tmp_path, "give(token='t')")
    wanted = plugin(command, provide_cluster_info=True, cluster_extension={"audience": "x"})
    asyncio.run(source_of(wanted, authority=lambda: b"pem").get())
    assert calls(tmp_path)[0]["info"]["spec"]["cluster"] == {
        "server": SERVER,
        "tls-server-name": "name",
        "certificate-authority-data": "cGVt",
        "config": {"audience": "x"},
    }


async def test_rejected_credentials_are_requested_again(tmp_path: Path) -> None:
    """One new run for all refused calls; the same credential is not tried again."""
    command = script(tmp_path, "give(token=f't{min(count, 2)}')")

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        good = seen.header("authorization") == "Bearer t2"
        writer.write(
            http_response(b'{"kind":"ConfigMap"}') if good else http_response(b"", "401 Unauthorized")
        )

    async with serving(answer) as wire:
        config = ClientConfig(wire.url, exec_plugin=plugin(command))
        async with Client.connect(config) as client:
            await asyncio.gather(*(client.get(CONFIG_MAPS, f"c{n}") for n in range(5)))
            assert len(calls(tmp_path)) == 2


async def test_credentials_rejected_twice_are_an_error(tmp_path: Path) -> None:
    command = script(tmp_path, "give(token='t')")

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(b"", "401 Unauthorized"))

    async with serving(answer) as wire:
        config = ClientConfig(wire.url, exec_plugin=plugin(command))
        async with Client.connect(config) as client:
            with pytest.raises(ApiError, match="401"):
                await client.get(CONFIG_MAPS, "c")
            assert len(wire.requests) == 1


def test_a_certificate_from_a_plugin(tmp_path: Path) -> None:
    pair = CertificateAuthority.load_or_create(tmp_path).issue_client(User("jane"))
    (tmp_path / "pair.json").write_text(json.dumps([pair.certificate.decode(), pair.key.decode()]))
    command = script(
        tmp_path,
        "c, k = json.loads((here / 'pair.json').read_text())\ngive(clientCertificateData=c, clientKeyData=k)",
    )

    async def scenario() -> None:
        credentials = ClientCredentials(ClientConfig(SERVER, exec_plugin=plugin(command)))
        first = await credentials.tls()
        assert await credentials.tls() is first
        assert await credentials.headers() == []

    asyncio.run(scenario())
    assert len(calls(tmp_path)) == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("print('hello')", "did not print an ExecCredential: not JSON"),
        ("print('[]')", "did not print an ExecCredential"),
        ("print('{}')", "did not print an ExecCredential"),
        (
            "give('client.authentication.k8s.io/v1beta1', token='t')",
            "printed .*v1beta1, but .*v1 is configured",
        ),
        ("give()", "neither a token nor a certificate"),
        ("give(clientKeyData='x')", "a certificate or a key, but not both"),
        ("give(token=1)", "are not all strings"),
        ("give(token='t', expirationTimestamp='soon')", "invalid expirationTimestamp: 'soon'"),
        (
            "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': info['apiVersion']}))",
            "printed no status",
        ),
        (
            "sys.stderr.write('log in first\\n'); sys.exit(3)",
            "failed with status 3: log in first\nget it at example",
        ),
    ],
)
def test_plugins_that_fail(tmp_path: Path, source: str, message: str) -> None:
    command = script(tmp_path, source)
    with pytest.raises(ConfigError, match=message) as caught:
        asyncio.run(source_of(plugin(command, install_hint="get it at example.org")).get())
    assert str(caught.value).startswith(f"user 'u': exec: {command} ")


def test_a_missing_plugin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope: no such program\nget it at example\.org"):
        asyncio.run(source_of(plugin("/nope", install_hint="get it at example.org")).get())
    (tmp_path / "data").write_text("x")
    with pytest.raises(ConfigError, match="Permission denied"):
        asyncio.run(source_of(plugin(str(tmp_path / "data"))).get())


def test_a_plugin_that_requires_a_terminal() -> None:
    wanted = ExecPlugin("true", V1, interactive_mode="Always", origin="user 'u': exec")
    with pytest.raises(ConfigError, match="standard input is not a terminal"):
        asyncio.run(source_of(wanted, is_terminal=lambda: False).get())


@pytest.mark.parametrize(("mode", "interactive"), [("Always", True), ("IfAvailable", True), ("Never", False)])
def test_a_plugin_may_prompt_on_a_terminal(tmp_path: Path, mode: str, interactive: bool) -> None:
    wanted = ExecPlugin(script(tmp_path, "give(token='t')"), V1, interactive_mode=mode)
    asyncio.run(source_of(wanted, is_terminal=lambda: True).get())
    assert calls(tmp_path)[0]["info"]["spec"]["interactive"] == interactive


def test_a_hanging_plugin_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.client.exec_plugin.TIMEOUT_SECONDS", 1.0)
    command = script(tmp_path, "(here / 'pid').write_text(str(os.getpid())); import time; time.sleep(60)")
    with pytest.raises(ConfigError, match=r"timed out after 1 s"):
        asyncio.run(source_of(plugin(command)).get())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_no_temporary_files_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = CertificateAuthority.load_or_create(tmp_path).issue_client(User("jane"))
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    seen: list[int] = []
    load: Callable[..., None] = ssl.SSLContext.load_cert_chain

    def look(self: ssl.SSLContext, file: str, **options: Any) -> None:
        seen.append(Path(file).stat().st_mode & 0o777)
        load(self, file, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", look)
    context_of(ClientConfig(SERVER, certificate=Material(pair.certificate), key=Material(pair.key)))
    assert seen == [0o600]
    assert list(directory.iterdir()) == []
