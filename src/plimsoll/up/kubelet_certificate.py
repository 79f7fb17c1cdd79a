"""Kubelet API of a local node: on loopback, with a serving certificate of the cluster's own CA."""

from __future__ import annotations

from pathlib import Path

from plimsoll.apiserver.auth.secret_files import write_private
from plimsoll.apiserver.process import RunningServer
from plimsoll.node.kubelet_api.settings import KubeletApiSettings

_HOST = "127.0.0.1"


def serving_kubelet(server: RunningServer, node: str, directory: Path) -> KubeletApiSettings:
    """Issue the serving certificate of a node; return the settings that use it, on a free port."""
    certificate, key = directory / "kubelet.crt", directory / "kubelet.key"
    pair = server.authority.issue_server((node, _HOST, "localhost"))
    write_private(key, pair.key)
    write_private(certificate, pair.certificate)
    return KubeletApiSettings(
        listen=f"{_HOST}:0",
        client_ca_data=server.authority.certificate,
        certificate=certificate,
        key=key,
    )
