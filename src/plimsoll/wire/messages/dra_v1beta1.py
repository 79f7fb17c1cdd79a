"""The messages of `proto/dra_v1beta1.proto`."""

from plimsoll.wire.messages import load

globals().update(load("dra_v1beta1"))
