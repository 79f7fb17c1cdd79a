"""`plimsoll top`: allocatable, used and free resources of nodes, pods, claims, devices, pools and namespaces.

START HERE: `nodes.py` (per-node numbers). `classes.py`, `devices.py`, `pools.py`, `claims.py`, `pods.py` and
`namespaces.py` compute the rows of the other views; `top.py` turns rows into reports.
"""

from plimsoll.tools.amounts import format_amount
from plimsoll.tools.top.claims import ClaimRow, claim_rows
from plimsoll.tools.top.classes import class_rows
from plimsoll.tools.top.devices import DeviceRow, device_rows
from plimsoll.tools.top.namespaces import NamespaceRow, namespace_rows
from plimsoll.tools.top.nodes import NodeRow, ResourceHolder, ResourceRow, holders, node_rows
from plimsoll.tools.top.pods import PodRow, pod_rows
from plimsoll.tools.top.pools import PoolRow, pool_rows

__all__ = [
    "ClaimRow",
    "DeviceRow",
    "NamespaceRow",
    "NodeRow",
    "PodRow",
    "PoolRow",
    "ResourceHolder",
    "ResourceRow",
    "claim_rows",
    "class_rows",
    "device_rows",
    "format_amount",
    "holders",
    "namespace_rows",
    "node_rows",
    "pod_rows",
    "pool_rows",
]
