"""Compiled protocol files match their sources."""

from __future__ import annotations

import importlib

from google.protobuf import descriptor_pb2

from tests.structure import protos


def test_descriptors_and_stubs_are_those_of_the_sources() -> None:
    descriptors, stubs = protos.compile_all()
    for name, data in descriptors.items():
        now = descriptor_pb2.FileDescriptorProto.FromString((protos.PROTOS / f"{name}.binpb").read_bytes())
        assert now == descriptor_pb2.FileDescriptorProto.FromString(data), (
            "run python -m tests.structure.protos"
        )
    for name, text in stubs.items():
        assert (protos.STUBS / f"{name}.pyi").read_text() == text, "run python -m tests.structure.protos"


def test_every_source_has_a_module_of_messages() -> None:
    for source in protos.PROTOS.glob("*.proto"):
        module = importlib.import_module(f"plimsoll.protocols.messages.{source.stem}")
        assert module.DESCRIPTOR.name == source.name
