"""The messages of `proto/health_v1alpha1.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("health_v1alpha1"))
