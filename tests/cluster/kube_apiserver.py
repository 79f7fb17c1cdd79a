"""A real kube-apiserver with its etcd, started and stopped by the tests."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from plimsoll.client import ClientConfig, Material
from tests.real.programs import minor_version
from tests.waiting import wait_until

TOKEN = "admin-of-the-tests"
_GATES = "DRANodeAllocatableResources=true,DRAListTypeAttributes=true,DRADeviceTaintRules=true"
_EARLIER_GATES = "DRAConsumableCapacity=true,ResourceHealthStatus=true"


class ApiServer:
    """kube-apiserver that can be killed and started again on the same etcd, also with other gates."""

    def __init__(self, command: list[object], port: int, directory: Path) -> None:
        self._command = command
        self._log = directory / "apiserver.log"
        self._process: subprocess.Popen[bytes] | None = None
        url = f"https://127.0.0.1:{port}"
        self.config = ClientConfig(url, insecure=True, token=Material(TOKEN.encode()))

    def start(self, gates: str = "") -> None:
        """Start and wait until it is ready; AssertionError with its log if it never is."""
        command = [*self._command, *([f"--feature-gates={gates}"] if gates else [])]
        with self._log.open("ab") as file:
            self._process = subprocess.Popen([str(part) for part in command], stdout=file, stderr=file)
        _await_ready(self.config.server, self._process, self._log)

    def stop(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            _stop(process, kill=kill)


@contextmanager
def run_apiserver(
    assets: Path,
    directory: Path,
    gates: str | None = None,
    options: Sequence[str] = (),
    authorization: str = "Node,RBAC",
) -> Iterator[ClientConfig]:
    """Yield the configuration of a server that is ready; AssertionError with its log if it never is."""
    with run_etcd_and_apiserver(assets, directory, gates, options, authorization) as server:
        yield server.config


@contextmanager
def run_etcd_and_apiserver(
    assets: Path,
    directory: Path,
    gates: str | None = None,
    options: Sequence[str] = (),
    authorization: str = "Node,RBAC",
) -> Iterator[ApiServer]:
    """Yield a server that is ready, and that can be restarted; its files are removed afterwards.

    By default it has the gates of claims and devices that it knows.
    """
    if gates is None:
        gates = _GATES if minor_version() >= 36 else _EARLIER_GATES
    client, peer, secure = free_ports(3)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (directory / "sa.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (directory / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\nviewer-token,viewer,2\n')
    etcd = [
        assets / "etcd",
        f"-data-dir={directory / 'etcd'}",
        f"-listen-client-urls=http://127.0.0.1:{client}",
        f"-advertise-client-urls=http://127.0.0.1:{client}",
        f"-listen-peer-urls=http://127.0.0.1:{peer}",
        "-unsafe-no-fsync",
    ]
    command: list[object] = [
        assets / "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{client}",
        f"--secure-port={secure}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={directory / 'certs'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={directory / 'sa.key'}",
        f"--service-account-key-file={directory / 'sa.key'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        f"--authorization-mode={authorization}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        "--runtime-config=resource.k8s.io/v1beta2=true",
        *options,
    ]
    with ExitStack() as stack:
        stack.enter_context(_process(etcd, directory / "etcd.log"))
        _age(f"http://127.0.0.1:{client}")
        server = ApiServer(command, secure, directory)
        stack.callback(server.stop)
        server.start(gates)
        yield server
    shutil.rmtree(directory, ignore_errors=True)


def write_kubeconfig(path: Path, config: ClientConfig, address: str) -> None:
    """Write a kubeconfig for a server, with the credentials of `config` if it is reached over TLS."""
    cluster: dict[str, object] = {"server": address}
    user: dict[str, str] = {}
    if address.startswith("https:"):
        cluster["insecure-skip-tls-verify"] = True
        user["token"] = token_of(config)
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }
    path.write_text(yaml.safe_dump(tree))
    path.chmod(0o600)


def token_of(config: ClientConfig) -> str:
    assert config.token is not None
    assert config.token.data is not None
    return config.token.data.decode()


@contextmanager
def _process(command: list[object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen([str(part) for part in command], stdout=file, stderr=file)
        try:
            yield process
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes], *, kill: bool = False) -> None:
    (process.kill if kill else process.terminate)()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _age(url: str) -> None:
    """Write a few versions before the server starts, which it will report as too old."""
    put = json.dumps({"key": base64.b64encode(b"/before").decode(), "value": ""}).encode()

    def write() -> bool:
        with urllib.request.urlopen(f"{url}/v3/kv/put", put, timeout=5):
            return True

    for _ in range(10):
        wait_until(write, ignore=(OSError,), context="etcd did not start")


def _await_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})

    def is_ready() -> bool:
        assert process.poll() is None, f"kube-apiserver ended:\n{log.read_text()[-2000:]}"
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return int(answer.status) == 200

    wait_until(is_ready, ignore=(OSError,), context=lambda: log.read_text()[-2000:])


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def kubeconfig_for(server: str, token: str) -> dict[str, object]:
    name = "test"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
