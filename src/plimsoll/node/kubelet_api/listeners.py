"""Listening TCP sockets of processes, from /proc."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress

_LISTEN = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def find_listener(port: int, pids: Iterable[int]) -> str:
    """Return the loopback or own address at which one of these processes listens on a port; "" if none."""
    found = listening_inodes(port)
    if not found:
        return ""
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    match = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}"))
                    if match and match[1] in found:
                        return found[match[1]]
    return ""


def listening_inodes(port: int) -> dict[str, str]:
    """Return the addresses of listening sockets on a port by the inodes of the sockets."""
    found: dict[str, str] = {}
    for name, loopback in (("tcp6", "::1"), ("tcp", "127.0.0.1")):
        with suppress(OSError), open(f"/proc/net/{name}") as file:
            for line in file:
                fields = line.split()
                if len(fields) < 10 or fields[3] != _LISTEN:
                    continue
                address, _, text = fields[1].partition(":")
                if text.isalnum() and int(text, 16) == port:
                    found[fields[9]] = _parse_address(address) or loopback
    return found


def _parse_address(text: str) -> str:
    """Parse an address of /proc/net; "" for one that stands for all addresses."""
    if not int(text, 16):
        return ""
    # In words of the machine's byte order.
    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
