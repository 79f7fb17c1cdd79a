"""The messages of `proto/dra_v1beta1.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("dra_v1beta1"))
