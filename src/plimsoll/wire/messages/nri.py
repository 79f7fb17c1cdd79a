"""The messages of `proto/nri.proto`."""

from plimsoll.wire.messages import load

globals().update(load("nri"))
