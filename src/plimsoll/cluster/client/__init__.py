"""How every part talks to a cluster, be it a kube-apiserver or Plimsoll's own server.

`Client` makes the calls, `endpoints` names the kinds, `ClientConfig` says where and who. Reading order:
`client.py`, then `answers.py` and `retries.py`; `http.py` and `within.py` are the two ways to the server.
"""

from plimsoll.cluster.client.answers import Listing, Page, WatchEvent
from plimsoll.cluster.client.client import Client
from plimsoll.cluster.client.config import ClientConfig, ExecPlugin, Impersonation, Material
from plimsoll.cluster.client.endpoints import Endpoint

__all__ = [
    "Client",
    "ClientConfig",
    "Endpoint",
    "ExecPlugin",
    "Impersonation",
    "Listing",
    "Material",
    "Page",
    "WatchEvent",
]
