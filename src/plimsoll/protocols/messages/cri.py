"""The messages of `proto/cri.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("cri"))
