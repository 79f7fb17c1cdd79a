"""Dumps: complete, in order, and read back as they were."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import Source, read_cluster_state
from plimsoll.tools.dump import collect_objects, format_of, trees_of, write_file, write_objects
from tests.dumps import big_cluster, write_dump


@pytest.fixture
def source(tmp_path: Path) -> Source:
    trees = big_cluster(2)
    extra = {
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"},
    }
    trees[0]["metadata"] |= extra
    trees.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "work"}})
    return Source((str(write_dump(reversed(trees), tmp_path / "given.yaml")),))


@pytest.mark.parametrize("name", ["dump.json", "dump.yaml", "dump.json.gz", "dump.yml.gz"])
def test_a_dump_is_read_back_as_it_was(source: Source, tmp_path: Path, name: str) -> None:
    trees, gaps = collect_objects(source)
    assert gaps == []
    path = tmp_path / name
    summary = write_file(trees, path, format_of(path))
    assert str(summary).startswith("26 objects (nodes 2, namespaces 1, deviceclasses 2, resourceslices 4,")
    before, after = read_cluster_state(source), read_cluster_state(Source((str(path),)))
    for thing in before.objects:
        same = after.objects.find(type(thing), *thing.metadata.key)
        if thing.metadata.annotations:  # that of kubectl apply is left out
            assert same is not None
            assert same.metadata.annotations == {"kept": "yes"}
        else:
            assert same == thing
    assert len(after.objects) == len(before.objects)


def test_objects_are_complete_ordered_and_one_per_line(source: Source) -> None:
    trees, _ = collect_objects(source)
    out = io.BytesIO()
    write_objects(trees, out, "json")
    first, *items, last = out.getvalue().decode().splitlines()
    assert json.loads(first + "".join(items) + last)["items"] == trees
    keys = [(tree["kind"], tree["metadata"].get("namespace"), tree["metadata"]["name"]) for tree in trees]
    nodes = [name for kind, _, name in keys if kind == "Node"]
    assert nodes == sorted(nodes)
    assert {kind for kind, _, _ in keys}.isdisjoint({"Secret"})
    assert all("managedFields" not in tree["metadata"] for tree in trees)
    images = [each["spec"]["containers"][0]["image"] for each in trees if each["kind"] == "Pod"]
    assert set(images) == {"pause:3.10"}  # no tool reads them


def test_equal_clusters_have_equal_dumps(source: Source, tmp_path: Path) -> None:
    paths = [tmp_path / "one.json.gz", tmp_path / "two.json.gz"]
    for path in paths:
        write_file(collect_objects(source)[0], path, "json")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert gzip.decompress(paths[0].read_bytes()).startswith(b'{"apiVersion":"v1","kind":"List"')


def test_typed_objects_are_written_with_their_kind(source: Source) -> None:
    state = read_cluster_state(source)
    assert [tree["kind"] for tree in trees_of(state.objects)][:2] == ["Node", "Node"]


def test_a_namespace_limits_the_dump(source: Source) -> None:
    trees, _ = collect_objects(Source(source.files, namespace="elsewhere"))
    assert {tree["kind"] for tree in trees} == {"Node", "Namespace", "DeviceClass", "ResourceSlice"}


def test_errors_name_the_file(source: Source, tmp_path: Path) -> None:
    trees, _ = collect_objects(source)
    with pytest.raises(InputError, match=r"missing/dump\.json: No such file or directory"):
        write_file(trees, tmp_path / "missing" / "dump.json", "json")
    (tmp_path / "other.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
    with pytest.raises(InputError, match="no objects found in"):
        collect_objects(Source((str(tmp_path / "other.yaml"),)))
