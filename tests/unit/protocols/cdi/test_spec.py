"""Validation of CDI files: versions, names, edits."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.protocols.cdi import (
    CdiFault,
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
    parse_name,
)
from plimsoll.protocols.cdi.reading import parse_spec
from plimsoll.protocols.cdi.spec import VERSIONS
from tests.sizes import examples


def a_spec(**changes: Any) -> CdiSpec:
    fields: dict[str, Any] = {
        "version": "1.1.0",
        "kind": "vendor.com/gpu",
        "devices": (CdiSpecDevice(name="gpu0", edits=Edits(env=("GPU=0",))),),
        **changes,
    }
    return CdiSpec(**fields)


def with_edits(edits: Edits, **changes: Any) -> CdiSpec:
    return a_spec(devices=(CdiSpecDevice(name="gpu0", edits=edits),), **changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vendor.com/class=dev", ("vendor.com", "class", "dev")),
        ("v/c=0", ("v", "c", "0")),
        ("v/c.x=a:b", ("v", "c.x", "a:b")),
        ("v/c=a=b", None),
        ("v/c", None),
        ("v/c=", None),
        ("/c=x", None),
        ("v=x", None),
        ("1v/c=x", None),
        ("v-/c=x", None),
        ("v/_c=x", None),
        ("v/c=x-", None),
        ("v/c=:x", None),
        ("v/c/d=x", None),
        ("v/c=\u00e9", None),
        ("v/c=x\n", None),
        ("", None),
    ],
)
def test_qualified_names(text: str, expected: tuple[str, str, str] | None) -> None:
    found = parse_name(text)
    assert found == expected
    if found is not None:
        assert str(found) == text


def naive_name(text: str) -> bool:
    """Check the grammar character by character."""
    if text.count("=") != 1 or text.count("/") != 1 or text.index("/") > text.index("="):
        return False
    kind, device = text.split("=")
    vendor, cls = kind.split("/")

    def fits(name: str, first: str, between: str) -> bool:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
        digits = "0123456789"
        starts = letters if first == "letter" else letters + digits
        inside = all(c in letters + digits + between for c in name)
        return bool(name) and name[0] in starts and name[-1] in letters + digits and inside

    return fits(vendor, "letter", "_-.") and fits(cls, "letter", "_-.") and fits(device, "any", "_-.:")


@given(st.text(alphabet="aB1_-.:/=\n\u00e9", max_size=9))
def test_names_follow_the_grammar(text: str) -> None:
    assert (parse_name(text) is not None) == naive_name(text)


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (a_spec(), "0.3.0"),
        (with_edits(Edits(mounts=(Mount(host_path="/a", container_path="/b"),))), "0.3.0"),
        (with_edits(Edits(mounts=(Mount(host_path="/a", container_path="/b", type="bind"),))), "0.4.0"),
        (with_edits(Edits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),))), "0.5.0"),
        (a_spec(devices=(CdiSpecDevice(name="0", edits=Edits(env=("A=1",))),)), "0.5.0"),
        (a_spec(annotations={"a": "b"}), "0.6.0"),
        (a_spec(kind="vendor.com/gpu.x"), "0.6.0"),
        (
            a_spec(devices=(CdiSpecDevice(name="a", annotations={"a": "b"}, edits=Edits(env=("A=1",))),)),
            "0.6.0",
        ),
        (with_edits(Edits(additional_gids=(7,))), "0.7.0"),
        (a_spec(edits=Edits(intel_rdt=IntelRdt(clos_id="a"))), "0.7.0"),
        (a_spec(edits=Edits(intel_rdt=IntelRdt(schemata=("L3:0=f",)))), "1.1.0"),
        (a_spec(edits=Edits(intel_rdt=IntelRdt(enable_monitoring=True))), "1.1.0"),
        (with_edits(Edits(net_devices=(NetDevice(host_interface_name="eth1", name="net0"),))), "1.1.0"),
    ],
)
def test_the_version_must_support_the_used_fields(spec: CdiSpec, version: str) -> None:
    assert needed_version(spec) == version
    for known in VERSIONS:
        faults = check_spec(msgspec.structs.replace(spec, version=known))
        if VERSIONS.index(known) < VERSIONS.index(version):
            assert any(f"the spec version must be at least v{version}" in fault for fault in faults)
        else:
            assert faults == ()


@pytest.mark.parametrize("version", ["", "0.1.0", "0.2.0", "0.9.0", "2.0.0", "1.1", "latest", "vv1.0.0"])
def test_unknown_versions(version: str) -> None:
    assert any("invalid version" in fault for fault in check_spec(a_spec(version=version)))


def test_a_version_may_begin_with_v() -> None:
    assert check_spec(a_spec(version="v0.8.0")) == ()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (a_spec(kind="gpu"), "is not a valid kind"),
        (a_spec(kind="1/gpu"), "is not a valid vendor"),
        (a_spec(kind="v/gpu/x"), "is not a valid class"),
        (a_spec(devices=()), "no devices"),
        (a_spec(devices=(CdiSpecDevice(name="a"),)), "empty device edits"),
        (a_spec(devices=(CdiSpecDevice(name="a", edits=Edits(env=("A=1",))),) * 2), "multiple device 'a'"),
        (a_spec(devices=(CdiSpecDevice(name="-", edits=Edits(env=("A=1",))),)), "is not a valid device name"),
        (with_edits(Edits(env=("A",))), "invalid environment variable 'A'"),
        (with_edits(Edits(env=("=A",))), "invalid environment variable '=A'"),
        (with_edits(Edits(env=("A=\0",))), "zero byte"),
        (with_edits(Edits(device_nodes=(DeviceNode(path=""),))), "invalid (empty) device path"),
        (with_edits(Edits(device_nodes=(DeviceNode(path="/d", type="x"),))), "invalid type 'x'"),
        (with_edits(Edits(device_nodes=(DeviceNode(path="/d", permissions="rx"),))), "invalid permissions"),
        (with_edits(Edits(mounts=(Mount(host_path="", container_path="/b"),))), "empty host path"),
        (with_edits(Edits(mounts=(Mount(host_path="/a", container_path=""),))), "empty container path"),
        (with_edits(Edits(hooks=(Hook(hook_name="x", path="/h"),))), "invalid hook name 'x'"),
        (with_edits(Edits(hooks=(Hook(hook_name="poststop", path=""),))), "with empty path"),
        (with_edits(Edits(hooks=(Hook(hook_name="poststop", path="/h", env=("A",)),))), "invalid hook"),
        (with_edits(Edits(intel_rdt=IntelRdt(clos_id="a/b"))), "invalid ClosID"),
        (with_edits(Edits(net_devices=(NetDevice(host_interface_name="", name="a"),))), "it is empty"),
        (with_edits(Edits(net_devices=(NetDevice(host_interface_name="e", name="a"),) * 2)), "duplicate 'e'"),
    ],
)
def test_findings_name_field_and_problem(spec: CdiSpec, text: str) -> None:
    faults = check_spec(spec)
    assert any(text in fault for fault in faults), faults
    assert all(re.match(r"[a-zA-Z0-9.\[\]]+: ", fault) for fault in faults)


@pytest.mark.parametrize("permissions", ["", "r", "rwm", "none"])
def test_permissions(permissions: str) -> None:
    edits = Edits(device_nodes=(DeviceNode(path="/d", permissions=permissions),))
    assert check_spec(with_edits(edits)) == ()


_texts = st.text(min_size=1, max_size=8)
_names = st.text(alphabet="aB1_.-", max_size=3).map("a{}z".format)
_numbers = st.integers(0, 2**32 - 1)
_edits = st.builds(
    Edits,
    env=st.lists(st.sampled_from(["A=1", "B=", "A==", "C=x y"]), min_size=1, max_size=3).map(tuple),
    device_nodes=st.lists(
        st.builds(
            DeviceNode,
            path=_texts,
            host_path=st.text(max_size=5),
            type=st.sampled_from(["", "b", "c", "u", "p"]),
            major=st.integers(-(2**63), 2**63 - 1),
            file_mode=st.none() | _numbers,
            uid=st.none() | _numbers,
        ),
        max_size=2,
    ).map(tuple),
    mounts=st.lists(
        st.builds(
            Mount, host_path=_texts, container_path=_texts, options=st.lists(_texts, max_size=2).map(tuple)
        ),
        max_size=2,
    ).map(tuple),
    hooks=st.lists(st.builds(Hook, hook_name=st.just("prestart"), path=_texts), max_size=1).map(tuple),
    intel_rdt=st.none() | st.builds(IntelRdt, clos_id=st.just("a"), enable_monitoring=st.booleans()),
    additional_gids=st.lists(_numbers, max_size=2).map(tuple),
)
specs = st.builds(
    CdiSpec,
    version=st.just("1.1.0"),
    kind=st.builds("{}/{}".format, _names, _names),
    annotations=st.dictionaries(_texts, _texts, max_size=2),
    devices=st.lists(
        st.builds(CdiSpecDevice, name=_names, edits=_edits),
        min_size=1,
        max_size=3,
        unique_by=lambda d: d.name,
    ).map(tuple),
    edits=_edits,
)


@settings(max_examples=examples(40))
@given(specs)
def test_specs_round_trip(spec: CdiSpec) -> None:
    assert check_spec(spec) == ()
    assert parse_spec(msgspec.json.encode(spec), "x.json") == spec


@settings(max_examples=examples(40))
@given(specs, st.data())
def test_unknown_fields_are_refused_anywhere(spec: CdiSpec, data: st.DataObject) -> None:
    tree = json.loads(msgspec.json.encode(spec))
    objects = [tree, *tree["devices"], tree["devices"][0]["containerEdits"]]
    data.draw(st.sampled_from(objects))["surprise"] = 1
    found = parse_spec(json.dumps(tree).encode(), "x.json")
    assert isinstance(found, CdiFault)
    assert "surprise" in found.message


@settings(max_examples=examples(40))
@given(specs, st.data())
def test_a_part_of_another_type_is_a_fault(spec: CdiSpec, data: st.DataObject) -> None:
    tree = json.loads(msgspec.json.encode(spec))
    where = data.draw(st.sampled_from([tree, tree["devices"][0], tree["devices"][0]["containerEdits"]]))
    name = data.draw(st.sampled_from(sorted(where)))
    where[name] = data.draw(st.sampled_from([1.5, True, [[1]], {"a": [1]}, "\x00", -1]))
    found = parse_spec(json.dumps(tree).encode(), "x.json")
    assert isinstance(found, CdiFault)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for name in ("x.json", "x.yaml"):
        assert isinstance(parse_spec(data, name), (CdiSpec, CdiFault))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["cdiVersion", "kind", "devices", "containerEdits", "env", "mounts", "name"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_any_tree_is_read_or_refused(tree: Any) -> None:
    assert isinstance(parse_spec(json.dumps(tree).encode(), "x.json"), (CdiSpec, CdiFault))


def test_null_is_absent() -> None:
    text = b"""{"cdiVersion": "0.5.0", "kind": "a/b", "annotations": null, "containerEdits": null,
               "devices": [{"name": "x", "containerEdits": {"env": ["A=1"], "mounts": null}}]}"""
    found = parse_spec(text, "x.json")
    assert isinstance(found, CdiSpec)
    assert found.devices[0].edits == Edits(env=("A=1",))
