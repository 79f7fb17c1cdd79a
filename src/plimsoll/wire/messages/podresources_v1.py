"""The messages of `proto/podresources_v1.proto`."""

from plimsoll.wire.messages import load

globals().update(load("podresources_v1"))
