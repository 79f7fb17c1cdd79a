"""Kubeconfigs issued by the server.

One cluster, one user, one context, everything inlined, so that the file can be copied elsewhere. It is
readable by its owner only and written atomically.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from plimsoll.apiserver.auth.certificates import CertificatePair
from plimsoll.apiserver.auth.secret_files import write_private


def write_kubeconfig(
    path: Path,
    server: str,
    *,
    authority: bytes = b"",
    token: str = "",
    client: CertificatePair | None = None,
    user: str = "plimsoll:admin",
    cluster: str = "plimsoll",
    namespace: str = "",
) -> None:
    """Write a kubeconfig, replacing an existing file: server URL, CA of its certificate, and credentials.

    Raises ConfigError on failure.
    """
    cluster_entry: dict[str, Any] = {"server": server}
    if authority:
        cluster_entry["certificate-authority-data"] = _data(authority)
    credentials: dict[str, Any] = {}
    if token:
        credentials["token"] = token
    if client is not None:
        credentials["client-certificate-data"] = _data(client.certificate)
        credentials["client-key-data"] = _data(client.key)
    context = {"cluster": cluster, "user": user}
    if namespace:
        context["namespace"] = namespace
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": cluster_entry}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": cluster, "context": context}],
        "current-context": cluster,
    }
    write_private(path, yaml.safe_dump(tree, sort_keys=False).encode())


def _data(content: bytes) -> str:
    return base64.b64encode(content).decode()
