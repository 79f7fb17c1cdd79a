"""The messages of `proto/ttrpc.proto`."""

from plimsoll.wire.messages import load

globals().update(load("ttrpc"))
