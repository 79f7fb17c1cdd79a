"""NRI server: the runtime's side of NRI (docs/spec/node-protocols.md, "NRI").

Start at `server.py`, which manages plugins and passes them events in order. `session` is one connection,
`creation` calls plugins for a new container, `merge` combines their adjustments (pure), `checks` and
`messages` validate and convert messages (pure).
"""

from plimsoll.node.nri.server import EvictionRequest, NriServer

__all__ = ["EvictionRequest", "NriServer"]
