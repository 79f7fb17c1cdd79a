"""The HTTP transport over real sockets: connections, timeouts, proxies, TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.apiserver.auth.certificates import CertificateAuthority, create_ssl_context
from plimsoll.apiserver.auth.users import User
from plimsoll.client import Client, ClientConfig, Impersonation, Material
from plimsoll.client.connection_pool import Connection, StreamingConnection
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.client.http import HttpTransport, is_loopback
from plimsoll.client.transport import Request
from plimsoll.errors import ConfigError, UnreachableError
from tests.streams import serving_streams
from tests.unit.client.wire import Answer, ReceivedRequest, RecordingServer, chunked, http_response, serving
from tests.waiting import until

Scenario = Callable[[RecordingServer, Client], Any]
OBJECT = b'{"kind":"ConfigMap","metadata":{"name":"a"}}'
GET = Request("GET", "/a")


def run_scenario(answer: Answer, scenario: Scenario, **settings: Any) -> None:
    async def run() -> None:
        async with serving(answer) as wire:
            config = ClientConfig(settings.pop("server", wire.url), **settings)
            async with Client.connect(config) as client:
                await scenario(wire, client)

    asyncio.run(run())


async def say_object(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(http_response(OBJECT))


def test_connections_are_kept_and_many_calls_are_in_flight() -> None:
    waiting: list[asyncio.StreamWriter] = []

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        """Respond once ten requests have arrived."""
        waiting.append(writer)
        if len(waiting) >= 10:
            for each in waiting:
                each.write(http_response(OBJECT))
            waiting.clear()

    async def scenario(wire: RecordingServer, client: Client) -> None:
        for _ in range(3):
            await asyncio.gather(*(client.get(CONFIG_MAPS, f"c{n}") for n in range(10)))
        assert wire.connections == 10
        assert len(wire.requests) == 30

    run_scenario(answer, scenario)


def test_calls_in_flight_are_bounded_but_watches_do_not_count() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if "watch=true" in seen.target:
            frame = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}\n'
            writer.write(chunked(frame, end=False))
        elif seen.target.endswith("held"):
            return
        else:
            writer.write(http_response(OBJECT))

    async def scenario(wire: RecordingServer, client: Client) -> None:
        watches = [client.watch(CONFIG_MAPS, since="1") for _ in range(5)]
        assert [(await anext(watch)).revision for watch in watches] == ["7"] * 5
        held = [asyncio.create_task(client.get(CONFIG_MAPS, "held")) for _ in range(2)]
        await until(lambda: len(wire.requests) >= 7)
        third = asyncio.create_task(client.get(CONFIG_MAPS, "c"))
        await asyncio.sleep(0.02)
        assert len(wire.requests) == 7
        held[0].cancel()
        assert (await third)["kind"] == "ConfigMap"
        held[1].cancel()
        await asyncio.gather(*held, return_exceptions=True)
        for watch in watches:
            await watch.aclose()

    run_scenario(answer, scenario, in_flight=2)


def test_request_headers() -> None:
    async def scenario(wire: RecordingServer, client: Client) -> None:
        await client.create(CONFIG_MAPS, {"metadata": {"name": "å"}}, "n s", field_manager="me & you")
        seen = wire.requests[0]
        assert seen.method == "POST"
        assert seen.target == "/prefix/api/v1/namespaces/n%20s/configmaps?fieldManager=me+%26+you"
        assert seen.body == '{"metadata":{"name":"å"}}'.encode()
        assert seen.header("content-type") == "application/json"
        assert seen.header("accept") == "application/json"
        assert seen.header("accept-encoding") == "identity"
        assert seen.header("user-agent") == "tester/1"
        assert seen.header("authorization") == "Bearer secret"
        assert seen.header("impersonate-user") == "jane"
        assert seen.header("impersonate-uid") == "u-1"
        assert seen.header("impersonate-group") == "g1, g2"
        assert seen.header("impersonate-extra-acme.com%2fproject") == "one, two"

    async def run() -> None:
        async with serving(say_object) as wire:
            config = ClientConfig(
                wire.url + "/prefix/",
                token=Material(b" secret\n"),
                user_agent="tester/1",
                impersonation=Impersonation(
                    "jane", ("g1", "g2"), "u-1", {"acme.com/project": ("one", "two")}
                ),
            )
            async with Client.connect(config) as client:
                await scenario(wire, client)

    asyncio.run(run())


@pytest.mark.parametrize(("compression", "wanted"), [(None, "identity"), (True, "gzip"), (False, "identity")])
def test_compression_is_requested_for_remote_servers(compression: bool | None, wanted: str) -> None:
    """Not on this machine, and never for a watch."""

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(chunked() if "watch" in seen.target else http_response(OBJECT))

    async def scenario(wire: RecordingServer, client: Client) -> None:
        await client.get(CONFIG_MAPS, "a")
        assert [event async for event in client.watch(CONFIG_MAPS)] == []
        assert [seen.header("accept-encoding") for seen in wire.requests] == [wanted, "identity"]

    run_scenario(answer, scenario, compression=compression)


def test_loopback_hosts() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    assert not any(map(is_loopback, ("example.com", "10.0.0.1", "::2", "")))


# -- failures


def failing(answer: Answer, request: Request = GET, **settings: Any) -> UnreachableError:
    """Return the error of a single request."""

    async def run() -> UnreachableError:
        async with serving(answer) as wire:
            transport = HttpTransport(ClientConfig(wire.url, **settings))
            try:
                with pytest.raises(UnreachableError) as caught:
                    await transport.send(request)
                return caught.value
            finally:
                await transport.close()

    return asyncio.run(run())


async def test_no_listener() -> None:
    async with serving(say_object) as wire:
        pass
    transport = HttpTransport(ClientConfig(wire.url))
    with pytest.raises(UnreachableError, match=r"GET http://127\.0\.0\.1:.*/a: Connection refused") as caught:
        await transport.send(GET)
    assert not caught.value.sent
    assert caught.value.code == 0
    await transport.close()


def test_a_connection_closed_before_the_response() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.close()

    error = failing(answer, Request("POST", "/a", body=b"{}"))
    assert error.sent
    assert "the connection broke" in str(error)


def test_a_truncated_response() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(OBJECT)[:-5])
        await writer.drain()
        writer.close()

    assert failing(answer).sent


def test_a_response_that_is_not_http() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    assert failing(answer).sent


def test_a_response_after_the_timeout() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        return

    error = failing(answer, Request("GET", "/a", timeout=2.0))
    assert error.sent
    assert error.reason == "Timeout"
    assert "no response within 2 s" in str(error)


def test_silent_and_broken_watches() -> None:
    frame = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}\n'

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(chunked(frame, frame[:20], end=False))
        if "break" in seen.target:
            await writer.drain()
            writer.close()

    async def scenario(wire: RecordingServer, client: Client) -> None:
        for labels in ("silent", "break"):
            watch = client.watch(CONFIG_MAPS, labels=labels, idle=0.05)
            assert (await anext(watch)).revision == "7"
            with pytest.raises(UnreachableError) as caught:
                await anext(watch)
            assert (caught.value.reason == "Timeout") == (labels == "silent")

    run_scenario(answer, scenario)


def test_an_abandoned_watch_is_closed() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        frame = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}\n'
        writer.write(chunked(frame, end=False))

    async def scenario(wire: RecordingServer, client: Client) -> None:
        watch = client.watch(CONFIG_MAPS)
        await anext(watch)
        assert wire.ended == 0
        await watch.aclose()
        await until(lambda: wire.ended)

    run_scenario(answer, scenario)


def test_a_redirect_is_not_followed() -> None:
    """Credentials are sent to the configured server only."""

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(b"", "302 Found", Location="http://127.0.0.1:1/elsewhere"))

    async def scenario(wire: RecordingServer, client: Client) -> None:
        with pytest.raises(Exception, match="the server returned 302"):
            await client.get(CONFIG_MAPS, "a")
        assert len(wire.requests) == 1

    run_scenario(answer, scenario)


def test_cookies_are_not_kept() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(OBJECT, Set_Cookie="session=1"))

    async def scenario(wire: RecordingServer, client: Client) -> None:
        for _ in range(2):
            await client.get(CONFIG_MAPS, "a")
        assert wire.requests[1].header("cookie") == ""

    run_scenario(answer, scenario)


# -- proxies


async def test_a_plain_server_through_a_proxy() -> None:
    """The proxy gets the full address; its credentials come from its URL."""
    async with serving(say_object) as proxy:
        config = ClientConfig("http://cluster.example:8001", proxy=f"http://me:pw@127.0.0.1:{proxy.port}")
        async with Client.connect(config) as client:
            assert (await client.get(CONFIG_MAPS, "a"))["kind"] == "ConfigMap"
    seen = proxy.requests[0]
    assert seen.target == "http://cluster.example:8001/api/v1/namespaces/default/configmaps/a"
    assert seen.header("proxy-authorization").startswith("Basic ")


def test_a_proxy_that_refuses() -> None:
    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        assert seen.method == "CONNECT"
        writer.write(http_response(b"", "403 Forbidden"))

    async def run() -> None:
        async with serving(answer) as proxy:
            transport = HttpTransport(ClientConfig("https://cluster.example:6443", proxy=proxy.url))
            with pytest.raises(UnreachableError, match="the proxy returned 403") as caught:
                await transport.send(GET)
            assert not caught.value.sent
            await transport.close()

    asyncio.run(run())


# -- TLS


def server_tls(
    directory: Path, names: tuple[str, ...] = ("127.0.0.1",)
) -> tuple[CertificateAuthority, ssl.SSLContext]:
    directory.mkdir(exist_ok=True)
    authority = CertificateAuthority.load_or_create(directory)
    pair = authority.issue_server(names)
    (directory / "s.crt").write_bytes(pair.certificate)
    (directory / "s.key").write_bytes(pair.key)
    context = create_ssl_context(
        directory / "s.crt", directory / "s.key", client_authorities=[authority.certificate]
    )
    return authority, context


def fetch(config: Callable[[RecordingServer], ClientConfig], tls: ssl.SSLContext) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            peer = writer.get_extra_info("peercert") or {}
            name = [value for part in peer.get("subject", ()) for key, value in part if key == "commonName"]
            writer.write(
                http_response(json.dumps({"peer": name, "auth": seen.header("authorization")}).encode())
            )

        async with serving(answer, tls) as wire, Client.connect(config(wire)) as client:
            return await client.get(CONFIG_MAPS, "a")

    return asyncio.run(run())


def test_a_trusted_authority_and_a_client_certificate(tmp_path: Path) -> None:
    authority, tls = server_tls(tmp_path)
    pair = authority.issue_client(User("jane", groups=("devs",)))

    def config(wire: RecordingServer) -> ClientConfig:
        return ClientConfig(
            wire.url,
            authority=Material(authority.certificate),
            certificate=Material(pair.certificate, origin="jane"),
            key=Material(pair.key),
        )

    assert fetch(config, tls)["peer"] == ["jane"]


def test_an_untrusted_server_is_not_retried(tmp_path: Path) -> None:
    _, tls = server_tls(tmp_path / "one")
    (tmp_path / "two").mkdir()
    other = CertificateAuthority.load_or_create(tmp_path / "two")
    for authority in (Material(other.certificate), None):
        with pytest.raises(ConfigError, match="certificate is not trusted"):
            fetch(lambda wire, ca=authority: ClientConfig(wire.url, authority=ca, origin="kubeconfig x"), tls)  # type: ignore[misc]
    assert fetch(lambda wire: ClientConfig(wire.url, insecure=True), tls)["peer"] == []


def test_the_certificate_must_match_the_host_name(tmp_path: Path) -> None:
    authority, tls = server_tls(tmp_path, ("cluster.example",))
    ca = Material(authority.certificate)

    def named(wire: RecordingServer) -> ClientConfig:
        return ClientConfig(wire.url, authority=ca, tls_server_name="cluster.example")

    def misnamed(wire: RecordingServer) -> ClientConfig:
        return ClientConfig(wire.url, authority=ca, tls_server_name="other.example")

    assert fetch(named, tls)["peer"] == []
    with pytest.raises(ConfigError, match="set tls-server-name"):
        fetch(misnamed, tls)


async def test_plain_http_on_an_https_address() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(b"", "400 Bad Request"))
        writer.close()

    async with serving_streams(plain) as server:
        transport = HttpTransport(ClientConfig(f"https://127.0.0.1:{server.port}", insecure=True))
        with pytest.raises(UnreachableError, match="no TLS connection") as caught:
            await transport.send(GET)
        assert not caught.value.sent
        await transport.close()


@pytest.mark.parametrize(
    "server",
    ["", "cluster", "ftp://a", "https://", "https://[::1", "https://a:99999", "https://a b", "http://:80"],
)
def test_an_invalid_address(server: str) -> None:
    with pytest.raises(ConfigError, match="write https://HOST:PORT"):
        HttpTransport(ClientConfig(server))


def test_a_write_on_a_connection_the_server_has_closed_is_sent_once() -> None:
    """The result of the write is unknown; a read is simply sent again."""

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if seen.target.endswith("/last"):
            writer.close()
        else:
            writer.write(http_response(OBJECT))

    async def scenario(wire: RecordingServer, client: Client) -> None:
        for call in (client.delete, client.get):
            await client.get(CONFIG_MAPS, "first")
            sent = len(wire.requests)
            with pytest.raises(UnreachableError):
                await call(CONFIG_MAPS, "last")
            assert len(wire.requests) - sent == (1 if call == client.delete else 2)

    run_scenario(answer, scenario, attempts=2)


@pytest.mark.parametrize("name", ["127.0.0.1", "cluster.example"])
async def test_a_secure_server_through_a_proxy(tmp_path: Path, name: str) -> None:
    """The proxy sees only the address; certificates are checked as without it."""
    authority, tls = server_tls(tmp_path, (name,))
    pair = authority.issue_client(User("jane"))
    asked: list[str] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.decode().split("\r\n")[0])
        host, _, port = head.split(b" ")[1].partition(b":")
        far_reader, far_writer = await asyncio.open_connection(host.decode(), int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def answer(seen: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peercert") or {}
        writer.write(
            http_response(json.dumps({"peer": repr(peer.get("subject")), "target": seen.target}).encode())
        )

    async with serving_streams(proxy) as server, serving(answer, tls) as wire:
        config = ClientConfig(
            wire.url,
            authority=Material(authority.certificate),
            certificate=Material(pair.certificate),
            key=Material(pair.key),
            proxy=server.url,
            tls_server_name="" if name == "127.0.0.1" else name,
        )
        async with Client.connect(config) as client:
            found = await client.get(CONFIG_MAPS, "a")
        assert "jane" in found["peer"]
        assert found["target"] == "/api/v1/namespaces/default/configmaps/a"
        assert asked == [f"CONNECT 127.0.0.1:{wire.port} HTTP/1.1"]


class SilentTlsServer(threading.Thread):
    """Server that finishes the TLS handshake and then waits for the connection to be closed."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.disconnected = threading.Event()

    def run(self) -> None:
        with self._listener:
            accepted, _ = self._listener.accept()
        # From here on without TLS, so that a close_notify is not answered.
        raw = self._tls.wrap_socket(accepted, server_side=True).detach()
        with socket.socket(fileno=raw) as connection:
            try:
                while connection.recv(1024):
                    pass
            except ConnectionError:
                pass
        self.disconnected.set()


@pytest.mark.parametrize("kind", [Connection, StreamingConnection])
def test_a_call_cancelled_right_after_the_handshake_leaves_no_connection(
    kind: type[asyncio.Protocol], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake is complete, but the task that waits for it has not resumed."""
    authority, tls = server_tls(tmp_path)
    server = SilentTlsServer(tls)
    server.start()
    original = kind.connection_made

    async def run() -> None:
        transport = HttpTransport(ClientConfig(server.url, authority=Material(authority.certificate)))

        async def stream() -> None:
            async with transport.stream(GET):
                pass

        call = transport.send(GET) if kind is Connection else stream()
        task = asyncio.ensure_future(call)

        def cancel(self: Any, connection: asyncio.BaseTransport) -> None:
            original(self, connection)
            asyncio.get_running_loop().call_soon(task.cancel)

        monkeypatch.setattr(kind, "connection_made", cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.close()
        assert await asyncio.to_thread(server.disconnected.wait, 5)

    asyncio.run(run())
