"""PodResources API for monitoring agents: the resources assigned to the pods of this node (KEP-3695).

Start at `server.py`, which counts and limits calls. `source.py` is its interface to the node and
`provider.py` implements it; `pod_view.py` converts to messages; `response_cache.py` keeps the bytes of every
pod so that List and Get return the same bytes; then `metrics.py`.
"""

from plimsoll.node.podresources.server import PodResourcesServer, RateLimit
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, PluginDevices, PodResourcesSource

__all__ = [
    "Allocatable",
    "MemoryBlock",
    "PluginDevices",
    "PodResourcesServer",
    "PodResourcesSource",
    "RateLimit",
]
