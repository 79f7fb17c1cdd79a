"""Settings of the kubelet API of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Port of a kubelet.
PORT = 10250
#: Listen on the node's own address: on the kubelet's port, or if that is taken on a free one.
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletApiSettings:
    """Address and certificates of the kubelet API.

    Clients authenticate with certificates of `client_ca` or bearer tokens of the cluster. Without a
    certificate of its own the agent serves with a self-signed one, as a kubelet does.
    """

    listen: str = ""  #: HOST:PORT; AUTO; "": the API is not served
    client_ca: Path | None = None  #: None: the CA of the API server, as the kubeconfig has it
    client_ca_data: bytes = b""  #: PEM, in place of a file
    certificate: Path | None = None
    key: Path | None = None
