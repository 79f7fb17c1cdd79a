"""Compile `protocols/proto/*.proto` into descriptors and type stubs: `python -m tests.structure.protos`.

Owns what is checked in beside the sources; `test_protos` compiles again and compares.
"""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

import plimsoll.protocols

WIRE = Path(plimsoll.protocols.__file__).parent
PROTOS = WIRE / "proto"
STUBS = WIRE / "messages"


def compile_all() -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the serialized descriptors and the stubs by module."""
    descriptors, stubs = {}, {}
    with tempfile.TemporaryDirectory() as directory:
        for source in sorted(PROTOS.glob("*.proto")):
            out = Path(directory) / "set"
            arguments = [
                "protoc",
                f"-I{PROTOS}",
                f"-I{files('grpc_tools').joinpath('_proto')}",
                f"--descriptor_set_out={out}",
                f"--pyi_out={directory}",
                str(source),
            ]
            if protoc.main(arguments) != 0:
                raise SystemExit(f"{source.name}: protoc does not take it")
            (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
            descriptors[source.stem] = file.SerializeToString(deterministic=True)
            stubs[source.stem] = (Path(directory) / f"{source.stem}_pb2.pyi").read_text()
    return descriptors, stubs


def main() -> None:
    descriptors, stubs = compile_all()
    for name, data in descriptors.items():
        (PROTOS / f"{name}.binpb").write_bytes(data)
    for name, text in stubs.items():
        (STUBS / f"{name}.pyi").write_text(text)


if __name__ == "__main__":
    main()
