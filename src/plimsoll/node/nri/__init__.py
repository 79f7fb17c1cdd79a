"""The runtime's half of NRI: plugins that have a say in containers (section 7 of the node protocols).

Start at `server.py`: plugins come and go, events go to them in order. `session` is one connection, `merge`
puts their wishes together (pure), `checks` and `messages` stand between messages and our values (pure).
"""

from plimsoll.node.nri.server import Eviction, NriServer, PluginInfo

__all__ = ["Eviction", "NriServer", "PluginInfo"]
