"""Unknown, duplicate and mistyped fields, with the messages of Kubernetes' strict decoder."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import Number
from plimsoll.apiserver.registry.schema import SchemaType, check_fields, check_json, schema_for
from plimsoll.apiserver.registry.schema_check import LIMIT, ObjectPairs, report_fields
from plimsoll.apiserver.registry.schema_match import matches_schema
from tests.unit.apiserver.registry.sample_objects import paths_in, put, trees_of


def schema(kind: str, group: str = "", version: str = "v1") -> SchemaType:
    found = schema_for(group, version, kind)
    assert found is not None
    return found


POD = schema("Pod")
CONTAINER = {"name": "a", "image": "i"}


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_matching_objects_have_an_empty_report() -> None:
    report = check_fields(
        pod(
            containers=[{**CONTAINER, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}],
            nodeSelector={"a": "b"},
            terminationGracePeriodSeconds=None,
            priority=5,
            volumes=[{"name": "v", "configMap": None}],
        ),
        POD,
    )
    assert not report
    assert (report.unknown, report.duplicate, report.type_errors) == ([], [], [])


def test_unknown_fields_and_their_paths() -> None:
    tree = pod(foo=1, containers=[{**CONTAINER, "bar": 2, "ports": [{"containerPort": 1, "z": None}]}])
    report = check_fields({**tree, "x": {"y": 1}}, POD)
    assert report.unknown == ["spec.foo", "spec.containers[0].bar", "spec.containers[0].ports[0].z", "x"]
    assert report.strict_errors[1] == 'unknown field "spec.containers[0].bar"'
    devices = [{"name": "d", "attributes": {"x.y/b": {"int": 1, "foo": 2}}}]
    slices = schema("ResourceSlice", "resource.k8s.io")
    report = check_fields({"spec": {"devices": devices}}, slices)
    assert report.unknown == ["spec.devices[0].attributes.x.y/b.foo"]


def test_duplicate_fields_are_reported_in_text_order() -> None:
    report = check_json(
        b'{"kind":"Pod","metadata":{"name":"a","name":"b","labels":{"a":"b","a":"c"}},'
        b'"spec":{"containers":[{"name":"a","name":"b"}],"x":{"y":1,"y":2},"x":3}}',
        POD,
    )
    assert report.strict_errors == [
        'duplicate field "metadata.name"',
        'duplicate field "metadata.labels.a"',
        'duplicate field "spec.containers[0].name"',
        'unknown field "spec.x"',
    ]


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        (
            {"terminationGracePeriodSeconds": "x"},
            "spec.terminationGracePeriodSeconds",
            "json: cannot unmarshal string into Go struct field "
            "PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            {"terminationGracePeriodSeconds": Number("1.5")},
            "spec.terminationGracePeriodSeconds",
            "json: cannot unmarshal number 1.5 into Go struct field "
            "PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            {"priority": 99999999999},
            "spec.priority",
            "json: cannot unmarshal number 99999999999 into Go struct field "
            "PodSpec.spec.priority of type int32",
        ),
        (
            {"containers": {"name": "a"}},
            "spec.containers",
            "json: cannot unmarshal object into Go struct field "
            "PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"containers": [5]},
            "spec.containers[0]",
            "json: cannot unmarshal number into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            {"containers": [{"name": 5}]},
            "spec.containers[0].name",
            "json: cannot unmarshal number into Go struct field "
            "Container.spec.containers.name of type string",
        ),
        (
            {"hostNetwork": "yes"},
            "spec.hostNetwork",
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            {"nodeSelector": {"a": 1}},
            "spec.nodeSelector.a",
            "json: cannot unmarshal number into Go struct field PodSpec.spec.nodeSelector of type string",
        ),
        (
            {"nodeSelector": ["a"]},
            "spec.nodeSelector",
            "json: cannot unmarshal array into Go struct field "
            "PodSpec.spec.nodeSelector of type map[string]string",
        ),
        (
            {"containers": [{"command": [1]}]},
            "spec.containers[0].command[0]",
            "json: cannot unmarshal number into Go struct field "
            "Container.spec.containers.command of type string",
        ),
        (
            {"overhead": {"cpu": "abc"}},
            "spec.overhead.cpu",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ({"overhead": {"cpu": "1ee"}}, "spec.overhead.cpu", "unable to parse quantity's suffix"),
    ],
)
def test_wrong_types(spec: dict[str, Any], path: str, message: str) -> None:
    assert check_fields(pod(**spec), POD).type_errors == [(path, message)]


def test_a_wrong_type_names_the_plain_type() -> None:
    (wrong,) = check_fields(pod(restartPolicy=1), POD).type_errors
    assert wrong[1].endswith("PodSpec.spec.restartPolicy of type string")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", 'as "2006-01-02T15:04:05Z07:00": cannot parse "nonsense" as "2006"'),
        ("", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        ("2020-01-01T00:00x", 'as "2006-01-02T15:04:05Z07:00": cannot parse "x" as ":"'),
        ("2020-01-01T00:00:00", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"'),
        ("2020-01-01T00:00:00Zx", ': extra text: "x"'),
        ("2020-02-31T00:00:00Z", ": day out of range"),
    ],
)
def test_times(text: str, message: str) -> None:
    (wrong,) = check_fields({"metadata": {"creationTimestamp": text}}, POD).type_errors
    separator = "" if message.startswith(":") else " "
    assert wrong == ("metadata.creationTimestamp", f'parsing time "{text}"{separator}{message}')


def test_times_with_microseconds() -> None:
    lease = schema("Lease", "coordination.k8s.io")
    assert not check_fields({"spec": {"renewTime": "2020-01-01T00:00:00.000001Z"}}, lease)
    (wrong,) = check_fields({"spec": {"renewTime": "2020-01-01T00:00:00Z"}}, lease).type_errors
    assert wrong[1].endswith('cannot parse "Z" as ".000000"')
    (wrong,) = check_fields({"spec": {"renewTime": 5}}, lease).type_errors
    assert wrong[1].endswith("LeaseSpec.spec.renewTime of type string")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("aGVsbG8=", None),
        ("aGVs\nbG8=", None),
        ("", None),
        ("!!!", "illegal base64 data at input byte 0"),
        ("aGVsbG8", "illegal base64 data at input byte 4"),
        (5, "json: cannot unmarshal number into Go struct field Secret.data of type []uint8"),
    ],
)
def test_bytes(value: Any, message: str | None) -> None:
    wrong = check_fields({"data": {"a": value}}, schema("Secret")).type_errors
    assert wrong == ([] if message is None else [("data.a", message)])


@pytest.mark.parametrize(
    ("port", "matches"), [(1, True), ("http", True), (True, False), (Number("1.5"), False)]
)
def test_numbers_or_names(port: Any, matches: bool) -> None:
    probe = {"httpGet": {"port": port}}
    report = check_fields(pod(containers=[{"name": "a", "livenessProbe": probe}]), POD)
    assert bool(report) != matches


def test_any_json_fits_where_anything_is_allowed() -> None:
    claim = schema("ResourceClaim", "resource.k8s.io")
    for parameters in ({"a": [1]}, 5, "x", None):
        config = [{"opaque": {"driver": "d", "parameters": parameters}}]
        assert not check_fields({"spec": {"devices": {"config": config}}}, claim)


def test_reports_are_bounded() -> None:
    report = check_fields({f"x{index}": 1 for index in range(1000)}, POD)
    assert len(report.unknown) == LIMIT
    report = check_fields(pod(containers=[5] * 1000), POD)
    assert len(report.type_errors) == LIMIT


def test_deep_and_broken_texts_end_in_a_report() -> None:
    assert not check_json(b"{", POD)
    assert not check_json(b"\xff", POD)
    assert not check_json(b"[" * 100000, POD)
    schemas = schema("CustomResourceDefinition", "apiextensions.k8s.io")
    inner: dict[str, Any] = {}
    for _ in range(600):
        inner = {"not": inner}
    tree = {"spec": {"versions": [{"schema": {"openAPIV3Schema": inner}}]}}
    assert not check_fields(tree, schemas)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["spec", "metadata", "name", "containers", "labels", "x"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_json_and_tree_checks_agree(tree: Any) -> None:
    text, plain = check_json(json.dumps(tree), POD), check_fields(tree, POD)
    assert (text.unknown, text.type_errors) == (plain.unknown, plain.type_errors)
    assert text.duplicate == []


def naive_unknown(tree: Any, type: SchemaType, path: str = "") -> list[str]:
    """Return every path that is not in the schema, by checking each value individually."""
    found: list[str] = []
    if isinstance(tree, dict) and type.kind in ("object", "map"):
        for name, value in tree.items():
            here = f"{path}.{name}" if path else name
            if type.kind == "map":
                assert type.item is not None
                found += naive_unknown(value, type.item, here)
            elif name in type.fields:
                found += naive_unknown(value, type.fields[name].type, here)
            else:
                found.append(here)
    elif isinstance(tree, list) and type.kind == "list":
        assert type.item is not None
        for index, value in enumerate(tree):
            found += naive_unknown(value, type.item, f"{path}[{index}]")
    return found


@given(JSON)
def test_the_fast_path_agrees_with_the_report(tree: Any) -> None:
    assert matches_schema(tree, POD) == (not report_fields(tree, POD))


@given(trees_of(POD))
def test_trees_of_the_schema_match(tree: Any) -> None:
    assert matches_schema(tree, POD)
    assert not report_fields(tree, POD)


@given(st.data())
def test_one_wrong_value_is_found(data: st.DataObject) -> None:
    tree = data.draw(trees_of(POD))
    path = data.draw(st.sampled_from(list(paths_in(tree))))
    value = data.draw(JSON)
    changed = put(tree, path, value)
    assert matches_schema(changed, POD) == (not report_fields(changed, POD))


@given(JSON)
def test_unknown_fields_are_those_not_in_the_schema(tree: Any) -> None:
    assert check_fields(tree, POD).unknown == naive_unknown(tree, POD)


def test_pairs_are_objects_not_lists() -> None:
    assert check_fields(ObjectPairs([("spec", ObjectPairs())]), POD).type_errors == []
    assert len(check_fields({"spec": {"containers": ObjectPairs()}}, POD).type_errors) == 1
