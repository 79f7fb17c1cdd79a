"""The messages of `proto/podresources_v1alpha1.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("podresources_v1alpha1"))
