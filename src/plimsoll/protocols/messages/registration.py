"""The messages of `proto/registration.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("registration"))
