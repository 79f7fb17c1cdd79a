"""NRI between a container runtime and its plugins (docs/spec/node-protocols.md, "NRI").

`events` has the events to subscribe to, `names` the rules for plugin names and runtime versions, `edits`
builds responses of a plugin, `plugin` is the plugin's side of the protocol.
"""

from plimsoll.protocols.nri.events import ALL_EVENTS, NriEvent, mask_of
from plimsoll.protocols.nri.plugin import NriPlugin

__all__ = ["ALL_EVENTS", "NriEvent", "NriPlugin", "mask_of"]
