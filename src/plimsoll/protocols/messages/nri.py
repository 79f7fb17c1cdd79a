"""The messages of `proto/nri.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("nri"))
