"""How every part talks to a cluster, be it a kube-apiserver or Plimsoll's own server.

`Client` makes the calls, `endpoints` names the kinds, `ClientConfig` says where and who. Reading order:
`client.py`, then `answers.py` and `retries.py`; `http.py` and `within.py` are the two ways to the server.
"""

from plimsoll.client.client import Client
from plimsoll.client.config import ClientConfig, ExecPlugin, Impersonation, Material
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.responses import Listing, Page, WatchEvent

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
