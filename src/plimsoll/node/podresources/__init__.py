"""What the pods of this node hold, for monitoring agents: the PodResources API (document 004).

Start at `server.py`: calls are counted and limited there. `source.py` is what it needs to know of the node,
`views.py` turns that into messages, `answers.py` keeps the bytes of every pod so that List and Get are the
same bytes, `limits.py` and `metrics.py` are what their names say.
"""

from plimsoll.node.podresources.rate_limit import Limit
from plimsoll.node.podresources.server import PodResourcesServer
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, PluginDevices, Source

__all__ = ["Allocatable", "Limit", "MemoryBlock", "PluginDevices", "PodResourcesServer", "Source"]
