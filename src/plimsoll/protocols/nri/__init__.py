"""NRI, between a container runtime and its plugins (section 7 of the node protocols).

`events` names what plugins can subscribe to, `names` says who may register and which version a runtime
speaks, `edits` makes the messages a plugin answers with, `plugin` is the half that a plugin is made of.
"""

from plimsoll.protocols.nri.events import ALL_EVENTS, Event, mask_of, parse_events
from plimsoll.protocols.nri.plugin import DEFAULT_SOCKET, NriPlugin

__all__ = ["ALL_EVENTS", "DEFAULT_SOCKET", "Event", "NriPlugin", "mask_of", "parse_events"]
