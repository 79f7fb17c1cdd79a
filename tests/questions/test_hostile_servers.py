"""Clusters that cannot be queried: a one-line error with the fix, exit code 2, nothing on stdout."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.apiserver.auth.certificates import CertificateAuthority, create_ssl_context
from plimsoll.client import kubeconfig as kubeconfigs
from plimsoll.client.config import ClientConfig
from plimsoll.client.http import HttpTransport
from plimsoll.client.transport import Reply, Request
from tests.dumps import big_cluster
from tests.questions.asking import COMMANDS, FEW, CommandResult, ask
from tests.questions.servers import Server, refusal, write_kubeconfig

ASKED = {name: COMMANDS[name] for name in FEW} | {"dashboard": ("dashboard", "--listen", "127.0.0.1:0")}
HTML = Reply(200, {"content-type": "text/html"}, b"<!DOCTYPE html><html><body>Please sign in</body></html>")


@pytest.fixture(autouse=True)
def _one_attempt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use no kubeconfig but that of the test, and no retries."""
    find: Callable[..., ClientConfig] = kubeconfigs.find_config

    def found(*given: Any, **named: Any) -> ClientConfig:
        return replace(find(*given, **named), attempts=1)

    monkeypatch.setattr(kubeconfigs, "find_config", found)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that sets a short timeout for the paths that end with a text, which never answer."""
    send = HttpTransport.send

    def set_timeout(suffix: str) -> None:
        async def send_in_time(transport: HttpTransport, request: Request) -> Reply:
            if request.path.endswith(suffix):
                request = request._replace(timeout=0.5, idle_timeout=0.0)
            return await send(transport, request)

        monkeypatch.setattr(HttpTransport, "send", send_in_time)

    return set_timeout


def refused(answer: CommandResult, *wanted: str) -> None:
    answer.check()
    assert answer.code == 2, answer
    assert "secret-token" not in answer.err
    for text in wanted:
        assert text in answer.err, answer.err


@pytest.mark.parametrize("command", ASKED)
def test_no_listener(command: str, tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    refused(ask(*ASKED[command], "--kubeconfig", config), "127.0.0.1:1", "refused")


@pytest.mark.parametrize("command", ASKED)
def test_an_unknown_name(command: str, tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", "https://no-such-host.invalid:6443")
    refused(ask(*ASKED[command], "--kubeconfig", config), "no-such-host.invalid")


@pytest.mark.parametrize("command", ASKED)
def test_a_server_that_does_not_answer(
    command: str, tmp_path: Path, give_up_soon: Callable[[str], None]
) -> None:
    give_up_soon("")
    with Server([], lambda path: server.hang()) as server:
        config = server.kubeconfig(tmp_path / "config")
        refused(ask(*ASKED[command], "--kubeconfig", config), f"127.0.0.1:{server.port}", "0.5 s")


@pytest.mark.parametrize("command", ASKED)
def test_a_server_that_stops_in_mid_response(
    command: str, tmp_path: Path, give_up_soon: Callable[[str], None]
) -> None:
    give_up_soon("/pods")

    def rule(path: str) -> Reply | None:
        return server.hang() if path.endswith("/pods") else None

    with Server(big_cluster(1), rule) as server:
        config = server.kubeconfig(tmp_path / "config")
        refused(ask(*ASKED[command], "--kubeconfig", config), "0.5 s")


@pytest.mark.parametrize("command", ASKED)
def test_html_instead_of_an_api(command: str, tmp_path: Path) -> None:
    with Server([], lambda path: HTML) as server:
        config = server.kubeconfig(tmp_path / "config")
        refused(
            ask(*ASKED[command], "--kubeconfig", config),
            "not a response of a Kubernetes API",
            "check the server's address",
        )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'{"kind": "PodList", "items": {}}',
        b'{"kind": "PodList", "items": [7, null]}',
        b'{"kind": "PodList", "items": [{"metadata": {"name": 7}}]}',
        b'{"kind": "PodList", "items": [{}]}',
        b'{"kind": "Pod',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
@pytest.mark.parametrize("command", FEW)
def test_responses_that_are_not_json(command: str, body: bytes, tmp_path: Path) -> None:
    """Invalid objects are skipped with a note; an invalid response is an error."""
    with Server(
        big_cluster(1), lambda path: Reply(200, {}, body) if path.endswith("/nodes") else None
    ) as server:
        answer = ask(*ASKED[command], "--kubeconfig", server.kubeconfig(tmp_path / "config")).check()
    if answer.code != 2:
        assert "note: nodes: " in answer.err
    with Server(big_cluster(1), lambda path: Reply(200, {}, body)) as server:
        answer = ask(*ASKED[command], "--kubeconfig", server.kubeconfig(tmp_path / "config")).check()
    assert answer.code == 2 or "note: nodes, pods: 1 cannot be decoded; the first: " in answer.err


@pytest.mark.parametrize("command", ASKED)
def test_internal_server_errors(command: str, tmp_path: Path) -> None:
    error = refusal(500, "InternalError", "etcd is\x1b[2J not well\nat all")
    with Server(big_cluster(1), lambda path: error) as server:
        config = server.kubeconfig(tmp_path / "config")
        refused(ask(*ASKED[command], "--kubeconfig", config), "etcd is?[2J not well at all")
    with Server(big_cluster(1), lambda path: Reply(502, {}, b"<html>Bad Gateway</html>" * 100)) as server:
        refused(ask(*ASKED[command], "--kubeconfig", server.kubeconfig(tmp_path / "config")), "502")


@pytest.mark.parametrize("command", ASKED)
def test_invalid_credentials(command: str, tmp_path: Path) -> None:
    with Server([], lambda path: refusal(401, "Unauthorized", "Unauthorized")) as server:
        config = server.kubeconfig(tmp_path / "config")
        refused(ask(*ASKED[command], "--kubeconfig", config), "check the credentials in the kubeconfig")


@pytest.mark.parametrize("plural", ["nodes", "pods"])
@pytest.mark.parametrize("command", ASKED)
def test_forbidden_required_kinds_are_an_error(command: str, plural: str, tmp_path: Path) -> None:
    message = f'{plural} is forbidden: User "me" cannot list resource "{plural}" at the cluster scope'

    def rule(path: str) -> Reply | None:
        return refusal(403, "Forbidden", message) if path.endswith(f"/{plural}") else None

    with Server(big_cluster(1), rule) as server:
        config = server.kubeconfig(tmp_path / "config")
        answer = ask(*ASKED[command], "--kubeconfig", config)
    refused(answer, f"{plural} cannot be read", message, "; use a user who can list them")


@pytest.mark.parametrize("command", FEW)
def test_forbidden_optional_kinds_are_reported_as_gaps(command: str, tmp_path: Path) -> None:
    """Optional kinds are skipped, with a one-line note."""

    def rule(path: str) -> Reply | None:
        kept = path in ("/api", "/apis") or path.endswith(("/nodes", "/pods"))
        return None if kept else refusal(403, "Forbidden", f"no {path}")

    with Server(big_cluster(1), rule) as server:
        answer = ask(*ASKED[command], "--kubeconfig", server.kubeconfig(tmp_path / "config")).check()
    assert answer.code in (0, 1)
    assert answer.out
    assert not answer.errors
    assert any(re.search("resourceslices.*forbidden for this user", line) for line in answer.err.splitlines())


@pytest.mark.parametrize("command", FEW)
def test_a_cluster_without_dynamic_resources(command: str, tmp_path: Path) -> None:
    """A cluster without resource.k8s.io has requests and nodes like any other; no notes."""
    plain = [tree for tree in big_cluster(2) if tree["kind"] in ("Node", "Pod")]
    plain = [tree for tree in plain if "resourceClaims" not in tree["spec"]]
    with Server(plain) as server:
        server.api_server.unserved = {
            "resourceslices",
            "resourceclaims",
            "resourceclaimtemplates",
            "deviceclasses",
            "devicetaintrules",
        }
        answer = ask(*ASKED[command], "--kubeconfig", server.kubeconfig(tmp_path / "config")).check()
    assert answer.code in (0, 1)
    assert answer.out
    assert not answer.err


@pytest.mark.parametrize("command", ASKED)
def test_an_untrusted_certificate(command: str, tmp_path: Path) -> None:
    ours, theirs = (CertificateAuthority.load_or_create(tmp_path / name) for name in ("ours", "theirs"))
    pair = ours.issue_server(["127.0.0.1"])
    (tmp_path / "s.crt").write_bytes(pair.certificate)
    (tmp_path / "s.key").write_bytes(pair.key)
    data = base64.b64encode(theirs.certificate).decode()
    with Server(big_cluster(1), tls=create_ssl_context(tmp_path / "s.crt", tmp_path / "s.key")) as server:
        config = server.kubeconfig(tmp_path / "config", **{"certificate-authority-data": data})
        refused(ask(*ASKED[command], "--kubeconfig", config), "certificate")
        good = server.kubeconfig(
            tmp_path / "config",
            **{"certificate-authority-data": base64.b64encode(ours.certificate).decode()},
        )
        if command != "dashboard":
            assert ask(*ASKED[command], "--kubeconfig", good).check().code in (0, 1)


@pytest.mark.parametrize("command", ASKED)
def test_plain_http_on_an_https_address(command: str, tmp_path: Path) -> None:
    with Server(big_cluster(1)) as server:
        config = write_kubeconfig(tmp_path / "config", f"https://127.0.0.1:{server.port}")
        refused(ask(*ASKED[command], "--kubeconfig", config), f"127.0.0.1:{server.port}")


KUBECONFIGS = {
    "empty": ("", ""),
    "no yaml": ("clusters: [", "not YAML"),
    "binary": ("\x00\x01\x02", ""),
    "a list": ("- a\n", ""),
    "another kind": ("apiVersion: v1\nkind: Pod\n", ""),
    "no context": ("apiVersion: v1\nkind: Config\nclusters: []\n", "context"),
    "wrong types": ("apiVersion: v1\nkind: Config\ncurrent-context: 7\ncontexts: {a: b}\n", ""),
    "unknown cluster": (
        "current-context: a\ncontexts: [{name: a, context: {cluster: gone, user: me}}]\n",
        "there is no cluster 'gone'",
    ),
    "no server": (
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {}}]\nusers: [{name: u, user: {}}]\n",
        "server",
    ),
    "a server that is none": (
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'ftp://x\x1b[2J'}}]\nusers: [{name: u, user: {}}]\n",
        "",
    ),
    "a token file that is gone": (
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {tokenFile: /no/such/file}}]\n",
        "/no/such/file",
    ),
    "a plugin that is gone": (
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, "
        "command: no-such-plugin, interactiveMode: Never}}}]\n",
        "no-such-plugin",
    ),
}


@pytest.mark.parametrize("name", KUBECONFIGS)
@pytest.mark.parametrize("command", ASKED)
def test_invalid_kubeconfigs(command: str, name: str, tmp_path: Path) -> None:
    text, wanted = KUBECONFIGS[name]
    (tmp_path / "config").write_text(text)
    refused(ask(*ASKED[command], "--kubeconfig", tmp_path / "config"), wanted)


@pytest.mark.parametrize("command", ASKED)
def test_no_cluster_configured(command: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    refused(ask(*ASKED[command], "--kubeconfig", gone), str(gone))
    refused(ask(*ASKED[command]), "no cluster configured", "or read a dump with -f")
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    refused(ask(*ASKED[command], "--kubeconfig", config, "--context", "there"), "'there'", "here")
    refused(
        ask(*ASKED[command], "-f", "x.yaml", "--kubeconfig", config),
        "cannot be combined: use files or a cluster",
    )
