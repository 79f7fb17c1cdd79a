"""Cluster state from files: formats of dumps, and one-line errors."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.errors import DecodeError, InputError
from plimsoll.tools.cluster_state import ClusterObjects, Source, read_cluster_state
from plimsoll.tools.cluster_state.files import read_files
from tests.dumps import USECASES, big_cluster, usecase_dump, write_dump
from tests.unit.tools.cluster_state.beta_versions import to_beta

Tree = dict[str, Any]


def read(*paths: Path | str) -> ClusterObjects:
    return read_cluster_state(Source(tuple(map(str, paths)))).objects


def bodies(objects: ClusterObjects) -> list[str]:
    return sorted(map(repr, objects))


def as_documents(trees: list[Tree], path: Path) -> Path:
    path.write_text(yaml.safe_dump_all(trees))
    return path


def as_directory(trees: list[Tree], path: Path) -> Path:
    path.mkdir()
    for number, tree in enumerate(trees):
        (path / f"{number}.json").write_text(json.dumps(tree))
    (path / "README.md").write_text("junk: [")
    (path / "image.png").write_bytes(b"\x89PNG\0\0")
    return path


def as_raw_lists(trees: list[Tree], path: Path) -> Path:
    """Return lists as `kubectl get --raw /api/v1/nodes` does: one for each kind, items without kinds."""
    kinds: dict[tuple[str, str], list[Tree]] = {}
    for tree in trees:
        bare = {key: value for key, value in tree.items() if key not in ("kind", "apiVersion")}
        kinds.setdefault((tree["apiVersion"], tree["kind"]), []).append(bare)
    lists = [
        {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": items}
        for (version, kind), items in kinds.items()
    ]
    path.write_text("\n".join(json.dumps(each) for each in lists))
    return path


def as_packed(trees: list[Tree], path: Path) -> Path:
    plain = write_dump(trees, path.with_suffix(".plain"), "json")
    path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


def as_utf16(trees: list[Tree], path: Path) -> Path:
    path.write_bytes(write_dump(trees, path).read_text().encode("utf-16"))
    return path


def as_marked(trees: list[Tree], path: Path) -> Path:
    path.write_bytes(b"\xef\xbb\xbf" + write_dump(trees, path, "json").read_bytes())
    return path


def as_windows(trees: list[Tree], path: Path) -> Path:
    path.write_bytes(write_dump(trees, path).read_bytes().replace(b"\n", b"\r\n"))
    return path


@pytest.mark.parametrize(
    "form", [as_documents, as_directory, as_raw_lists, as_packed, as_utf16, as_marked, as_windows]
)
def test_all_file_formats_agree(form: Callable[[list[Tree], Path], Path], tmp_path: Path) -> None:
    trees = big_cluster(2)
    wanted = bodies(read(write_dump(trees, tmp_path / "plain.json", "json")))
    assert bodies(read(write_dump(trees, tmp_path / "plain.yaml"))) == wanted
    assert bodies(read(form(trees, tmp_path / "form"))) == wanted
    assert len(wanted) == len(trees)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dump(big_cluster(1), tmp_path / "dump.yaml")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    cluster_state = read_cluster_state(Source(("-",)))
    assert cluster_state.origin == "standard input"
    assert len(cluster_state.nodes) == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match=r"^standard input: file is empty$"):
        read("-")


@pytest.mark.parametrize("name", USECASES)
def test_observed_use_cases_are_read_completely(name: str) -> None:
    path = usecase_dump(name)
    wanted = [item for item in yaml.safe_load(path.read_text())["items"] if item["kind"] != "Event"]
    assert len(read(path)) == len(wanted)


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1alpha3"])
def test_older_versions(version: str, form: str, tmp_path: Path) -> None:
    trees = big_cluster(2)
    new = read(write_dump(trees, tmp_path / "new", form))
    old = read(write_dump([to_beta(tree, version) for tree in trees], tmp_path / "old", form))
    kinds: tuple[type[Any], ...] = (ResourceSlice, ResourceClaim)
    for kind in kinds:
        assert [each.spec for each in old.all(kind)] == [each.spec for each in new.all(kind)]
    assert old.gaps == []


def test_unconvertible_fields_are_dropped_and_reported(tmp_path: Path) -> None:
    trees = big_cluster(1)
    trees[-1]["apiVersion"] = "v1"
    for tree in trees:
        if tree["kind"] == "ResourceSlice":
            tree["apiVersion"] = "resource.k8s.io/v1alpha2"
    for form in ("json", "yaml"):
        found = read(write_dump(trees, tmp_path / form, form))
        assert not found.all(ResourceSlice)
        assert any(
            str(gap).startswith("resourceslices: 2 skipped: unsupported version v1alpha2 of resource.k8s.io")
            for gap in found.gaps
        )


def test_manifests_by_hand_get_defaults_and_a_namespace(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n")
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": "NoSchedule"}},
    }
    (tmp_path / "rule.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [rule]}))
    found = read(tmp_path)
    (pod,) = found.all(Pod)
    assert pod.metadata.namespace == "default"
    assert pod.spec.scheduler_name == "default-scheduler"
    assert len(found.all(DeviceTaintRule)) == 1


def test_identical_repeats_are_silent_and_different_ones_reported(tmp_path: Path) -> None:
    trees = big_cluster(1)
    first = write_dump(trees, tmp_path / "a.json", "json")
    assert read(first, first).gaps == []
    node = next(tree for tree in trees if tree["kind"] == "Node")
    node["status"]["allocatable"]["cpu"] = "7"
    found = read(first, write_dump(trees, tmp_path / "b.yaml"))
    assert [str(gap) for gap in found.gaps] == [
        "nodes: node-0000 is given more than once with differences; the last one is used"
    ]
    assert str(found.all(Node)[0].status.allocatable["cpu"]) == "7"


# -- incomplete dumps


@pytest.mark.parametrize(
    ("kind", "gap"),
    [
        ("Node", "nodes: none in .*; collect them with: plimsoll dump"),
        ("ResourceClaim", "resourceclaims: none in .*, but 2 scheduled pods use claims"),
        ("ResourceSlice", "resourceslices: none in .*, but 2 claims are allocated"),
        ("DeviceClass", "deviceclasses: none in .*, but 3 claims reference classes"),
    ],
)
def test_a_dump_without_a_kind_is_reported(kind: str, gap: str, tmp_path: Path) -> None:
    trees = [tree for tree in big_cluster(1) if tree["kind"] != kind]
    (found,) = read(write_dump(trees, tmp_path / "dump.json", "json")).gaps
    assert re.match(gap, str(found))


# -- errors


def spoil(trees: list[Tree]) -> list[Tree]:
    pod = next(tree for tree in trees if tree["kind"] == "Pod")
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    return trees


def test_an_unreadable_object_is_named_with_its_position(tmp_path: Path) -> None:
    trees = spoil(big_cluster(2))
    number = next(place for place, tree in enumerate(trees) if tree["kind"] == "Pod")
    for form in ("json", "yaml"):
        path = write_dump(trees, tmp_path / f"dump.{form}", form)
        lines = path.read_text().splitlines()
        item = [place for place, line in enumerate(lines, 1) if line in ("        {", "- apiVersion: v1")]
        item += [place for place, line in enumerate(lines, 1) if line.startswith("- apiVersion: resource")]
        line = sorted(item)[number]
        with pytest.raises(InputError) as caught:
            read(path)
        where = f"{path}, document 1, line {line}, items[{number}]: Pod plain-0000-0"
        field = "spec.containers[0].resources.requests[cpu]"
        assert str(caught.value).startswith(f"{where}: {field}: 'many' ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"\0\x01\x02binary", "is not a text file; YAML and JSON are read"),
        (b"\x7fELF\x02\x01\0\0", "is not a text file"),
        (b"# nothing\n", "no objects found in"),
        (b"---\n---\n", "no objects found in"),
        (b"hello", "an object must be a mapping"),
        (b"[1, 2]", "an object must be a mapping"),
        (b'{"kind": "List", "items": [{"kind": "Pod"', "not JSON"),
        (b"kind: Pod\nspec: [", "line 2.*: not YAML"),
        (b"kind: List\nitems:\n- kind: Pod\n  spec: {\n- kind: Pod\n", "not YAML"),
        (b"apiVersion: v1\nitems:\n- kind: Pod\n", "kind is missing; the list may be truncated"),
        (b"\xff\xfe\x41", "invalid UTF-16: use UTF-8"),
        (b"kind: \xff\xfa\n", "not"),
        (
            b'{"apiVersion": "v1", "kind": "List", "items": "x"}',
            "none of the 1 objects in .* is a Node, Pod or another kind",
        ),
        (b"\x1f\x8b\x08broken", "cannot be unpacked"),
        (b"kind: Pod\napiVersion: v1\nmetadata: 7\n", "metadata: must be an object"),
        (b'{"kind":"List","items":[{"kind":7}]}', "kind is missing"),
    ],
)
def test_invalid_dumps_are_one_line_errors(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_kinds_only(tmp_path: Path) -> None:
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{n}"}} for n in range(3)]
    maps.append({"apiVersion": "metrics.k8s.io/v1", "kind": "Pod", "metadata": {"name": "p"}})
    for form in ("json", "yaml"):
        path = write_dump(maps, tmp_path / form, form)
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value) == (
            f"none of the 4 objects in {path} is a Node, Pod or another kind that is read"
        )


def test_empty_directories(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no .yaml, .yml, .json file in this directory"):
        read(tmp_path)
    with pytest.raises(InputError, match="no such file or directory"):
        read(tmp_path / "nope")


@pytest.mark.parametrize("form", ["json", "yaml"])
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_dumps_are_an_error_or_complete_objects(
    form: str, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.getbasetemp()
    path = directory / f"whole.{form}"
    if not path.exists():
        write_dump(big_cluster(1), path, form)
    content = path.read_bytes()
    cut = directory / f"cut.{form}"
    cut.write_bytes(content[: int(len(content) * share)])
    message = ""
    found = ClusterObjects()
    try:
        found = read(cut)
    except InputError as error:
        message = str(error)
    if message:
        assert str(cut) in message
        assert "\n" not in message
    else:
        assert len(found) == len(big_cluster(1))  # only what comes after the items was cut off


def test_progress_is_reported(tmp_path: Path) -> None:
    trees = big_cluster(600, pods_per_node=1)
    ticks: list[tuple[str, int, int]] = []
    read_files([str(write_dump(trees, tmp_path / "d.json", "json"))], lambda *tick: ticks.append(tick))
    assert ticks[0] == ("reading objects", 500, 0)
    ticks.clear()
    path = write_dump(trees[:700], tmp_path / "d.yaml")
    read_files([str(path)], lambda *tick: ticks.append(tick))
    assert ticks[0][1:] == (0, -(-path.stat().st_size // 1_000_000))


def test_list_metadata_is_dropped(tmp_path: Path) -> None:
    """For many small items it would be most of the memory."""
    many = 50_000
    path = tmp_path / "list.json"
    path.write_bytes(b'{"kind":"PodList","apiVersion":"v1","items":[' + b"{}," * (many - 1) + b"{}]}")
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"items\[0\]: Pod: metadata.name: must not be empty"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 150 * many
    finally:
        tracemalloc.stop()
