"""NRI server: the runtime's half of NRI (docs/spec/node-protocols.md, "NRI").

Start at `server.py`, which manages plugins and passes them events in order; `events.py` dispatches single
events. `session` is one connection, `merge` combines the adjustments of plugins (pure), `checks` and
`messages` validate and convert messages (pure).
"""

from plimsoll.node.nri.server import ConnectedPlugin, EvictionRequest, NriServer

__all__ = ["ConnectedPlugin", "EvictionRequest", "NriServer"]
