"""SPDY/3.1 as kubectl, kube-apiserver and the kubelet use it for exec, attach and port-forward."""

from plimsoll.protocols.spdy.session import ByteChannel, SpdySession, SpdyStream

__all__ = ["ByteChannel", "SpdySession", "SpdyStream"]
