"""Settings of the memory driver. Values only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from plimsoll.api.forms import Form
from plimsoll.api.quantity import Quantity
from plimsoll.drivers.plugin import CDI_DIR, KUBELET_ROOT
from plimsoll.errors import ConfigError, InputError

DRIVER_NAME = "dra.memory"
MEMORY = "memory"
_HUGE = re.compile(r"hugepages-[0-9]+(Ki|Mi|Gi)")
_FORMAT = "0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=1Gi"


class MemoryEnforcement(StrEnum):
    """Mechanism that binds containers to memory nodes; NONE leaves them to the kernel."""

    NRI = "nri"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Settings of a memory driver on one node.

    `reserved` are bytes that are not published, by NUMA node and resource. `form` is the wire form of node
    resources; None: the newest that the API server supports. `kubelet_root` is the root directory of the
    kubelet or node agent, `host_root` the directory that contains the host's sys.
    """

    node: str
    reserved: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    form: Form | None = None
    enforcement: MemoryEnforcement = MemoryEnforcement.NRI
    host_root: Path = Path("/")
    kubelet_root: Path = KUBELET_ROOT
    cdi: Path = CDI_DIR
    nri: Path = Path("/var/run/nri/nri.sock")
    bind_address: str = "127.0.0.1:8082"
    cert_dir: Path | None = None


def parse_reserved(text: str) -> dict[int, dict[str, int]]:
    """Parse reserved memory in the format of the kubelet's --reserved-memory; raises ConfigError."""
    found: dict[int, dict[str, int]] = {}
    for part in filter(None, text.split(";")):
        number, colon, amounts = part.partition(":")
        if not colon or not number.isascii() or not number.isdigit() or int(number) in found:
            raise ConfigError(f"reserved memory {part!r}: write NODE:RESOURCE=AMOUNT,...; such as {_FORMAT}")
        node = found[int(number)] = {}
        for amount in amounts.split(","):
            name, _, value = amount.partition("=")
            if name != MEMORY and not _HUGE.fullmatch(name):
                raise ConfigError(f"reserved memory {part!r}: {name!r} is neither memory nor hugepages-SIZE")
            try:
                node[name] = Quantity.parse(value).value()
            except InputError as error:
                raise ConfigError(f"reserved memory {part!r}: {error}") from None
            if node[name] < 0:
                raise ConfigError(f"reserved memory {part!r}: must not be negative")
    return found
