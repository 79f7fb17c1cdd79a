"""Container Device Interface: files that describe how a device is made visible to a container.

See docs/spec/node-protocols.md, "CDI". START HERE: `cache.py`, the runtime's side. Drivers use
`writing.py`.
"""

from plimsoll.protocols.cdi.cache import CdiCache
from plimsoll.protocols.cdi.names import QualifiedName, parse_name
from plimsoll.protocols.cdi.reading import CdiFault, read_spec
from plimsoll.protocols.cdi.spec import (
    CdiSpec,
    CdiSpecDevice,
    DeviceNode,
    Edits,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    check_spec,
    needed_version,
)
from plimsoll.protocols.cdi.writing import remove_spec, spec_name, write_spec

__all__ = [
    "CdiCache",
    "CdiFault",
    "CdiSpec",
    "CdiSpecDevice",
    "DeviceNode",
    "Edits",
    "Hook",
    "IntelRdt",
    "Mount",
    "NetDevice",
    "QualifiedName",
    "check_spec",
    "needed_version",
    "parse_name",
    "read_spec",
    "remove_spec",
    "spec_name",
    "write_spec",
]
