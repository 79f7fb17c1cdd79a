"""The messages of `proto/ttrpc.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("ttrpc"))
