"""Network of pods on one machine: a bridge, and a CNI plugin that connects pods of all nodes to it."""

from __future__ import annotations

import random
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PLUGIN = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}}';;
DEL) ip link del "v$(echo "$CNI_CONTAINERID" | cut -c1-10)" 2>/dev/null || true;;
ADD)
  set -e
  exec 9>>{counter}
  flock 9
  n=$(wc -c < {counter})
  echo >&9
  address={prefix}.$((n / 250)).$((n % 250 + 2))
  outer=v$(echo "$CNI_CONTAINERID" | cut -c1-10)
  ip link add "$outer" type veth peer name "p$outer" >&2
  ip link set "p$outer" netns "$CNI_NETNS" >&2
  nsenter --net="$CNI_NETNS" sh -ec "ip link set p$outer name eth0; ip addr add $address/16 dev eth0
    ip link set eth0 up; ip link set lo up; ip route add default via {prefix}.255.254" >&2
  ip link set "$outer" master {bridge} up >&2
  echo '{{"cniVersion":"1.0.0","interfaces":[{{"name":"eth0","sandbox":"'$CNI_NETNS'"}}],
    "ips":[{{"interface":0,"address":"'$address'/16"}}]}}';;
esac
"""


@dataclass(frozen=True)
class PodNetwork:
    """Bridge of this machine to which pods are connected."""

    bridge: str
    prefix: str  #: first two numbers of all addresses
    counter: Path  #: file that grows by a byte with each address

    @property
    def plugin(self) -> str:
        """The CNI plugin, as a shell script."""
        return _PLUGIN.format(bridge=self.bridge, prefix=self.prefix, counter=self.counter)


@contextmanager
def pod_network(directory: Path) -> Iterator[PodNetwork | None]:
    """Create a bridge for pods, as long as it is used; None if this machine cannot."""
    name = f"plm{uuid.uuid4().hex[:8]}"
    tools = all(map(shutil.which, ("ip", "nsenter", "flock")))
    if not tools or not _ip("link", "add", name, "type", "bridge"):
        yield None
        return
    prefix = _find_free_prefix()
    try:
        assert _ip("addr", "add", f"{prefix}.255.254/16", "dev", name)
        assert _ip("link", "set", name, "up")
        yield PodNetwork(name, prefix, directory / "addresses")
    finally:
        _ip("link", "del", name)


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True).returncode == 0


def _find_free_prefix() -> str:
    """Return the first two numbers of addresses that no other interface of this machine has."""
    used = subprocess.run(["ip", "-4", "addr"], check=True, capture_output=True, text=True).stdout
    return random.choice([f"10.{each}" for each in range(100, 251) if f" 10.{each}." not in used])
