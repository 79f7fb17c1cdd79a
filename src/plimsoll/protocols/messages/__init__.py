"""Message types built from the descriptors of `proto/*.proto`, which are committed in compiled form.

No compiler is needed to install or run, and any protobuf release reads the descriptors. Each file has its own
descriptor pool: two protocols name their package `v1`, and a process may use both. The `.pyi` files in this
directory type the messages. After a change of a `.proto` file run `python -m tests.structure.protos`, which
generates both again.
"""

from __future__ import annotations

from pkgutil import get_data
from typing import Any

from google.protobuf import descriptor_pool, message_factory


def load(name: str) -> dict[str, Any]:
    """Load the messages, enum values and the file descriptor of `NAME.proto`, by their names in Python."""
    pool = descriptor_pool.DescriptorPool()
    # Serialized: `descriptor_pb2` and parsed descriptors would take a megabyte of every process on a node.
    data = get_data("plimsoll.protocols.proto", f"{name}.binpb")
    assert data is not None, "the loader of the package reads no data"
    pool.AddSerializedFile(data)
    file = pool.FindFileByName(f"{name}.proto")
    found: dict[str, Any] = {"DESCRIPTOR": file}
    for message, descriptor in file.message_types_by_name.items():
        found[message] = message_factory.GetMessageClass(descriptor)
    for enum in file.enum_types_by_name.values():
        found |= {value.name: value.number for value in enum.values}
    return found
