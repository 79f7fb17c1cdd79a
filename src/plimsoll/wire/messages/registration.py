"""The messages of `proto/registration.proto`."""

from plimsoll.wire.messages import load

globals().update(load("registration"))
