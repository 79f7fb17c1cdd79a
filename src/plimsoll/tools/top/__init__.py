"""What is free and who holds it: nodes, pods, claims, devices, pools and namespaces.

START HERE: `books.py` (the numbers of nodes). `devices.py`, `pools.py`, `claims.py`, `pods.py` and
`namespaces.py` have those of everything else, as rows; `top.py` makes reports of them.
"""

from plimsoll.tools.top.nodes import BookRow, Holder, NodeBook, holders, node_books, text_of
from plimsoll.tools.top.claims import ClaimRow, claim_rows
from plimsoll.tools.top.devices import DeviceRow, device_rows
from plimsoll.tools.top.namespaces import NamespaceRow, namespace_rows
from plimsoll.tools.top.pods import PodRow, pod_rows
from plimsoll.tools.top.pools import PoolRow, pool_rows

__all__ = [
    "BookRow",
    "ClaimRow",
    "DeviceRow",
    "Holder",
    "NamespaceRow",
    "NodeBook",
    "PodRow",
    "PoolRow",
    "claim_rows",
    "device_rows",
    "holders",
    "namespace_rows",
    "node_books",
    "pod_rows",
    "pool_rows",
    "text_of",
]
