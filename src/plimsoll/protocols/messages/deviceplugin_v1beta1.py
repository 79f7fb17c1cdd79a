"""The messages of `proto/deviceplugin_v1beta1.proto`."""

from plimsoll.protocols.messages import load

globals().update(load("deviceplugin_v1beta1"))
