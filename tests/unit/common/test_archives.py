"""Dumps in archives: concatenated JSON, tarballs, zip files, and invalid ones."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common.archives import TextReader
from plimsoll.common.input_limits import Bounds
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.manifests import parse_objects, read_objects
from tests.unit.common.json_trees import json_trees

# -- JSON one after the other


def found(text: str) -> list[tuple[str, int, int]]:
    return [(each.name, each.document, each.line) for each in parse_objects(text, "f")]


def test_json_documents_one_after_the_other() -> None:
    one = json.dumps({"kind": "Pod", "metadata": {"name": "a"}}, indent=2)
    two = json.dumps({"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "b"}}]})
    assert found(f"{one}\n{two}{one}") == [("a", 1, 1), ("b", 2, 7), ("a", 3, 7)]
    with pytest.raises(InputError, match="f, document 2: line 3, column 1: not JSON"):
        found('{"kind":"Pod"}\n{"kind":\n}')


def test_a_cluster_info_dump_with_logs() -> None:
    logs = "==== START logs for container main of pod ns/p ====\n{not json\n: }\n"
    logs += "==== END logs for container main of pod ns/p ====\n"
    pods = json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "p"}}]}, indent=4
    )
    assert found(f"{pods}\n{logs}{logs}{pods}\n") == [("p", 1, 1), ("p", 2, 20)]
    assert found(logs) == []
    assert found(f"{logs}{pods}\n{logs}") == [("p", 1, 5)]


@given(st.lists(st.tuples(json_trees, st.sampled_from(["", " ", "\n", "\n\n"])), min_size=2, max_size=5))
def test_a_stream_yields_its_documents(parts: list[tuple[Any, str]]) -> None:
    trees = [{"kind": "X", "data": tree} for tree, _ in parts]
    text = "".join(json.dumps(tree) + blank for tree, (_, blank) in zip(trees, parts, strict=True))
    assert [each.tree for each in parse_objects(text, "f")] == trees


def test_broken_items_are_named() -> None:
    with pytest.raises(InputError, match=r"f, document 1, line 1, items\[1\]: an object must be a mapping"):
        list(parse_objects('{"kind":"List","items":[{"kind":"Pod"},3]}', "f"))
    with pytest.raises(InputError, match=r"line 1, items\[0\], items\[0\]: kind is missing"):
        list(parse_objects('{"kind":"List","items":[{"kind":"List","items":[{"kind":""}]}]}', "f"))


def test_empty_lists_hold_nothing() -> None:
    assert found('{"kind":"PodList","items":null}{"kind":"PodList","items":[]}') == []
    assert found('{"kind":"AllowList","metadata":{"name":"a"}}') == [("a", 1, 1)]


# -- archives

POD = b"kind: Pod\nmetadata: {name: p}\n"


def pack_tar(path: Path, mode: str, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.yaml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


MEMBERS = {
    "ns/pods.yaml": POD,
    "ns/p/logs.txt": b"not: [ yaml",
    "ns/._pods.yaml": b"\x00\x05",
    "more/nodes.json.gz": gzip.compress(b'{"kind":"NodeList","items":[{"metadata":{"name":"n"}}]}'),
    "../../odd\nname.yml": b"kind: Odd\n",
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [("d.tar", "w"), ("d.tar.gz", "w:gz"), ("d.tgz", "w:gz"), ("d.tar.xz", "w:xz"), ("dump", "w:bz2")],
)
def test_tarballs(tmp_path: Path, name: str, mode: str) -> None:
    path = pack_tar(tmp_path / name, mode, MEMBERS)
    objects = list(read_objects([path]))
    assert [(each.kind, each.name) for each in objects] == [("Pod", "p"), ("Node", "n"), ("Odd", "")]
    assert [each.source for each in objects] == [
        f"{path}: ns/pods.yaml",
        f"{path}: more/nodes.json.gz",
        f"{path}: '../../odd\\nname.yml'",
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_zip_files(tmp_path: Path) -> None:
    path = tmp_path / "dump.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in MEMBERS.items():
            archive.writestr(name, content)
    assert [each.kind for each in read_objects([path])] == ["Pod", "Node", "Odd"]


def test_compressed_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml.gz").write_bytes(gzip.compress(POD))
    (tmp_path / "b.yaml.xz").write_bytes(lzma.compress(POD))
    (tmp_path / "c.yaml.bz2").write_bytes(bz2.compress(POD))
    (tmp_path / "d.tar.gz").write_bytes(gzip.compress(b"not looked at in a directory"))
    assert [Path(each.source).name for each in read_objects([tmp_path])] == [
        "a.yaml.gz",
        "b.yaml.xz",
        "c.yaml.bz2",
    ]
    packed = pack_tar(tmp_path / "x.tar.gz", "w:gz", MEMBERS).read_bytes()
    for content, source in ((POD, "standard input"), (packed, "standard input: ns/pods.yaml")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert next(iter(read_objects(["-"]))).source == source


def test_broken_documents_in_archives_name_their_position(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "d.tar.gz", "w:gz", {"a.yaml": POD, "b/c.yaml": POD + b"---\n- 1\n"})
    with pytest.raises(
        InputError, match=r"d\.tar\.gz: b/c\.yaml, document 2, line 3: an object must be a mapping"
    ):
        list(read_objects([path]))


def test_broken_archives_are_named(tmp_path: Path) -> None:
    path = pack_tar(tmp_path / "d.tar.gz", "w:gz", {"a.yaml": os.urandom(5000).hex().encode()})
    whole = path.read_bytes()
    zipped = tmp_path / "d.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a.yaml", POD)
    packed = zipped.read_bytes()
    for content in (
        whole[:-2000],
        whole[:-2000] + bytes(2000),
        whole[:12],
        whole[:2] + b"\xff" * 20,
        b"\xfd7zXZ\x00" + bytes(30),
        b"BZh9" + bytes(30),
        packed[:-30],
        packed[:20] + b"\xff" * 20 + packed[40:],
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=str(path)):
            list(read_objects([path]))


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.yaml", POD)
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.yaml: is encrypted"):
        list(read_objects([path]))


# -- limits

MIB = 1 << 20
SMALL = Bounds(text=MIB, ratio_from=16 * MIB, members=10)
NEVER = 1 << 40


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2"])
def test_bombs_are_refused(tmp_path: Path, mode: str) -> None:
    """A small file that unpacks into a large one: in a member that is read, or in one passed over."""
    big = pack_tar(tmp_path / "big", mode, {"a.yaml": b" " * (2 * MIB)})
    with pytest.raises(
        InputError, match=r"a\.yaml: has more than 1 MiB, .*; split it, or raise the limit with"
    ):
        list(read_objects([big], SMALL))
    skipped = pack_tar(tmp_path / "skipped", mode, {"a.bin": bytes(8 * MIB)})
    assert skipped.stat().st_size < 100_000
    with pytest.raises(InputError, match="skipped: unpacks to more than 4 MiB"):
        list(read_objects([skipped], SMALL))
    many = pack_tar(tmp_path / "many", mode, {f"{n}.txt": b"" for n in range(20)})
    with pytest.raises(InputError, match="many: has more than 10 files"):
        list(read_objects([many], SMALL))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "gz in gz": lambda text: gzip.compress(gzip.compress(text)),
}


@cache
def _packed_newlines(name: str) -> bytes:
    return PACKERS[name](b"\n" * (20 * MIB))  # of other texts bz2 takes long to compress


@pytest.mark.parametrize("place", ["alone", "tar", "zip"])
@pytest.mark.parametrize("name", PACKERS)
def test_a_high_compression_ratio_is_refused(tmp_path: Path, name: str, place: str) -> None:
    """The refusal comes long before everything has been unpacked."""
    packed = _packed_newlines(name)
    path = tmp_path / "dump"
    if place == "alone":
        path.write_bytes(packed)
    elif place == "tar":
        pack_tar(path, "w", {"a.yaml": packed})
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.yaml", packed)
    bounds = Bounds(text=NEVER, ratio=100, ratio_from=4 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as refused:
            list(read_objects([path], bounds))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    text = str(refused.value)
    assert text.startswith(str(path))
    if name != "gz in gz":  # of which the second layer is not opened
        assert "expands to more than 100 times its size" in text
        assert "unpack it and give the unpacked file" in text
    assert peak < 32 * MIB


def test_members_of_zip_files_are_held_to_the_same_ratio(tmp_path: Path) -> None:
    path = tmp_path / "d.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.yaml", b"# nothing\n" * MIB)
    with pytest.raises(InputError, match=r"a\.yaml: expands to more than 100 times its size"):
        list(read_objects([path], Bounds(text=NEVER, ratio=100, ratio_from=4 * MIB)))
    with pytest.raises(InputError, match=r"a\.yaml: has more than 1 MiB"):
        list(read_objects([path], SMALL))


def test_zip_files_of_very_many_members_are_refused_unopened(tmp_path: Path) -> None:
    path = tmp_path / "d.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(20):
            archive.writestr(f"{number}.txt", b"")
    with pytest.raises(InputError, match=r"d\.zip: has more than 10 files"):
        list(read_objects([path], SMALL))


def test_the_limit_holds_for_all_files_together(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.yaml").write_bytes(b"kind: Pod\n" + b"#" * (MIB // 2 - 100))
    assert len(list(read_objects([tmp_path / "0.yaml", tmp_path / "1.yaml"], SMALL))) == 2
    with pytest.raises(InputError, match=r"2\.yaml: has more than 1 MiB including the files before it"):
        list(read_objects([tmp_path], SMALL))


def test_binary_files_are_refused_by_their_first_bytes(tmp_path: Path) -> None:
    """Not after half a gigabyte."""
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(32 * MIB)))
    with pytest.raises(InputError, match="is not a text file"):
        list(read_objects([path], SMALL))


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    """Their size is what a header claims: a few bytes can stand for terabytes."""
    info = tarfile.TarInfo("a.yaml")
    info.size = 1 << 50
    headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": f"0,5,{(1 << 50) - 5},5",
        "GNU.sparse.name": "a.yaml", "GNU.sparse.size": str(1 << 50),
    }  # fmt: skip
    info.pax_headers = headers
    info.size = 10
    path = tmp_path / "sparse.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"kind: Pod\n"))
    with pytest.raises(InputError, match=r"a\.yaml: is a sparse file"):
        list(read_objects([path]))


def test_a_false_size_in_a_header(tmp_path: Path) -> None:
    path = tmp_path / "claims.tar"
    info = tarfile.TarInfo("a.yaml")
    info.size = 1 << 50
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"kind: Pod\n" * 100)
    with pytest.raises(InputError, match=str(path)):
        list(read_objects([path]))


def test_zstandard_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x04\x00\x51\x00\x00")
    with pytest.raises(InputError, match="zstd, which is not supported; unpack it with unzstd"):
        list(read_objects([path]))


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", bytes(257) + b"ustar"]),
)
def test_any_bytes_are_read_or_an_input_error(content: bytes, magic: bytes) -> None:
    try:
        for source, text in TextReader().read(io.BytesIO(magic + content), "f"):
            list(parse_objects(text, source))
    except InputError:
        return
