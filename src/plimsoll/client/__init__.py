"""Client of the Kubernetes API, for a kube-apiserver or the embedded server.

START HERE: `client.py`; then `responses.py` and `retries.py`. `endpoints` has the kinds, `config` and
`kubeconfig` the configuration, `informer` the cache, `leader_election` the lease. `http.py` is the HTTP
transport, `apiserver/in_process.py` the transport within a process.
"""

from plimsoll.client.client import Client
from plimsoll.client.config import ClientConfig, ExecPlugin, Impersonation, Material
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.responses import ObjectList, ObjectListPage, WatchEvent

__all__ = [
    "Client",
    "ClientConfig",
    "Endpoint",
    "ExecPlugin",
    "Impersonation",
    "Material",
    "ObjectList",
    "ObjectListPage",
    "WatchEvent",
]
