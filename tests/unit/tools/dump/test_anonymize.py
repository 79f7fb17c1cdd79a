"""Anonymized dumps: nothing leaks, and the tools give the same answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from plimsoll.api import codec
from plimsoll.api.forms import CLASS_KEY, POD_KEY
from plimsoll.tools.audit import audit
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.cluster_state.kinds import KINDS
from plimsoll.tools.dump import Pseudonyms, anonymize
from plimsoll.tools.dump.field_rules import RULES, FieldRule
from plimsoll.tools.top import claim_rows, device_rows, namespace_rows, node_rows
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.build import claim, device, device_class, exactly, node, pod, resource_slice
from tests.dumps import USECASES, big_cluster, make_cluster_state, usecase_trees
from tests.questions.clusters import rich_cluster

KEY = b"0123456789abcdef"
LEAK = "zebrafish"
NOW = 1_790_000_000.0


# -- names


def test_names_keep_their_structure() -> None:
    names = Pseudonyms(KEY)
    assert names.name("payments-web-0").endswith("-web-0")
    assert names.name("payments-web-0").startswith(names.name("payments"))
    assert names.name("worker12") == "worker12"
    assert names.name("kube-system") == "kube-system"
    assert names.name("ip-10-0-3-17.acme.internal").count(".") == 2
    assert "10" not in names.name("ip-10-0-3-17.acme.internal")
    assert names.name("customer-4829133") != "customer-4829133"
    assert names.label_key("app.kubernetes.io/name") == "app.kubernetes.io/name"
    assert "acme" not in names.label_key("acme.com/team")
    assert names.domain("gpu.nvidia.com") == "gpu.nvidia.com"
    assert names.domain("notnvidia.com") != "notnvidia.com"
    assert names.uid("") == ""


def test_names_are_derived_from_the_key() -> None:
    assert Pseudonyms(KEY).name("payments") == Pseudonyms(KEY).name("payments")
    assert Pseudonyms(KEY).name("payments") != Pseudonyms(KEY * 2).name("payments")


NAMES = st.text("ab01-.", min_size=1, max_size=6)


@given(st.sets(NAMES, min_size=2, max_size=8))
def test_different_names_stay_different(texts: set[str]) -> None:
    names = Pseudonyms(KEY)
    assert len({names.name(text) for text in texts}) == len(texts)
    assert len({names.uid(text) for text in texts}) == len(texts)


# -- nothing leaks


def planted(kind: Any, rule: FieldRule = FieldRule.NAME) -> Any:
    """A tree of a type with a word in every text that must be replaced."""
    if isinstance(kind, inspect.StructType):
        made = {}
        for field in kind.fields:
            name = kind.cls.__name__
            own = RULES.get(f"{name}.{field.name}") or RULES.get(field.name, FieldRule.NAME)
            made[field.encode_name] = planted(field.type, own)
        return made
    if isinstance(kind, inspect.UnionType):
        return planted(next(each for each in kind.types if not isinstance(each, inspect.NoneType)), rule)
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return [planted(kind.item_type, rule)]
    if isinstance(kind, inspect.DictType):
        return planted_mapping(kind, rule)
    if isinstance(kind, inspect.IntType):
        return 1
    if isinstance(kind, inspect.BoolType):
        return True
    if isinstance(kind, inspect.CustomType):
        return "1"
    if isinstance(kind, inspect.StrType):
        if rule is FieldRule.CEL:
            return f'device.driver == "{LEAK}" // {LEAK}'
        if rule is FieldRule.QUALIFIED:
            return f"{LEAK}.corp/x"
        return "kept" if rule is FieldRule.KEEP else LEAK
    return {"cpuset": "0-3", "secret": LEAK}


def planted_mapping(kind: inspect.DictType, rule: FieldRule) -> dict[str, Any]:
    if rule is FieldRule.ANNOTATIONS:
        charge = codec.encode([{"resourceClaimName": LEAK, "containers": [LEAK]}]).decode()
        mapping = codec.encode({"nodeAllocatableResourceMappings": {f"{LEAK}.corp/x": {}}}).decode()
        return {f"{LEAK}.corp/note": LEAK, POD_KEY: charge, CLASS_KEY: mapping, "other": LEAK}
    if rule is FieldRule.VOLUMES:
        spec = {"storageClassName": LEAK, "selector": {"matchLabels": {LEAK: LEAK}}}
        ephemeral = {"volumeClaimTemplate": {"metadata": {"labels": {LEAK: LEAK}}, "spec": spec}}
        return {"name": LEAK, "secret": {"secretName": LEAK}, "ephemeral": ephemeral}
    if rule is FieldRule.CONTAINER_STATE:
        return {"terminated": {"message": LEAK, "exitCode": 1}}
    if rule is FieldRule.POD_NAMES:
        return {LEAK: "2026-01-01T00:00:00Z"}
    if rule is FieldRule.POLICIES:
        return {f"{LEAK}.corp/x": "Max"}
    if rule is FieldRule.AMOUNTS:
        quota = f"{LEAK}.deviceclass.resource.k8s.io/devices"
        return {key: planted(kind.value_type) for key in (f"{LEAK}.corp/x", f"requests.{LEAK}.corp/x", quota)}
    return {LEAK: planted(kind.value_type, rule)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.endpoint.kind)
def test_no_text_of_an_object_survives(kind: Any) -> None:
    tree = planted(inspect.type_info(kind.view))
    thing = codec.convert(tree, kind.view)
    slices = resource_slice([device("d")], LEAK, driver=LEAK)  # so that expressions name its driver
    objects = ClusterObjects([thing, slices, node(LEAK)])
    (made,) = [each for each in anonymize(objects, Pseudonyms(KEY)) if type(each) is kind.view][:1]
    text = msgspec.json.decode(codec.encode(made))
    assert LEAK not in str(text)
    assert LEAK in str(tree)


def test_device_attributes_are_kept_unless_they_identify_a_device() -> None:
    def gpu(number: int) -> dict[str, Any]:
        uuid, mac = "8c1d4bbe-9c0a-4b2e-8b3c-1b1d5a7b0c11", "0a:1b:2c:3d:4e:5f"
        made = device(f"gpu-{number}", model="A100", serial=f"S{number}", uuid=uuid, mac=mac, host="rack7")
        made["attributes"]["version"] = {"version": "1.2.3"}
        return made

    objects = ClusterObjects([node("rack7"), resource_slice([gpu(1), gpu(2)], "rack7")])
    made = anonymize(objects, Pseudonyms(KEY))
    slices = [each for each in made if hasattr(each.spec, "driver")]
    attributes = slices[0].spec.devices[0].attributes
    assert attributes["model"].string_value == "A100"
    assert attributes["version"].version_value == "1.2.3"
    originals = ("S1", "8c1d4bbe-9c0a-4b2e-8b3c-1b1d5a7b0c11", "0a:1b:2c:3d:4e:5f")
    for name, old in zip(("serial", "uuid", "mac"), originals, strict=True):
        assert attributes[name].string_value != old
    assert attributes["host"].string_value == slices[0].spec.node_name


def test_expressions_still_select_the_same_devices() -> None:
    """A driver of an unknown vendor, and an identifier of a device."""
    devices = [device(f"d{n}", serial=f"serial-{n}x") for n in range(2)]
    cel = 'device.driver == "acme.corp" && device.attributes["acme.corp"].serial == \'serial-1x\' // ours'
    objects = ClusterObjects(
        [
            node("n"),
            resource_slice(devices, "n", driver="acme.corp"),
            device_class("acme", select=cel),
            claim("c", exactly(device_class="acme")),
            pod("p", claims=["c"]),
        ]
    )
    for each in (objects, anonymize(objects, Pseudonyms(KEY))):
        report = run_whatif(ClusterState(each), WhatifPlan())
        assert [placed.devices[0].rpartition("/")[2] for placed in report.outcome.placed] == ["d1"]


# -- the same answers


def answers(state: ClusterState) -> Any:
    """Everything the tools report, without names."""
    rows = node_rows(state)
    found = audit(state, now=NOW)
    outcome = run_whatif(state, WhatifPlan()).outcome
    return (
        sorted(str(row.rows) for row in rows),
        Counter(row.state for row in device_rows(state)),
        sorted((row.state, row.booked, len(row.devices), str(row.charges)) for row in claim_rows(state)),
        sorted(
            (row.pods, row.pending, row.claims, str(sorted(row.amounts.items())))
            for row in namespace_rows(state)
        ),
        Counter((each.id, each.severity) for each in found.findings),
        (len(outcome.placed), len(outcome.pending)),
    )


def check_same_answers(trees: list[Any]) -> None:
    state = make_cluster_state(trees)
    again = ClusterState(anonymize(state.objects, Pseudonyms(KEY)), origin=state.origin)
    assert answers(again) == answers(state)


def test_the_tools_give_the_same_answers() -> None:
    check_same_answers(big_cluster(3))
    check_same_answers(rich_cluster())


@pytest.mark.parametrize("name", USECASES[::7])
def test_the_tools_give_the_same_answers_about_observed_clusters(name: str) -> None:
    check_same_answers(usecase_trees(name))


def test_numbers_and_networks_are_replaced_in_attributes_and_expressions_alike() -> None:
    """A project is in a path and a number; equal values stay equal, and parts of them still match."""
    path = "projects/628944397724/global/networks/orion-vpc"
    devices = [
        device(f"nic-{n}", networkName=path, project=628944397724, mtu=9000, speed="100G") for n in (0, 1)
    ]
    devices.append(device("nic-2", networkName="projects/1/global/networks/lyra-vpc", project=1, mtu=9000))
    conditions = [
        f'device.attributes["acme.corp"].networkName == "{path}"',
        'device.attributes["acme.corp"].networkName.contains("orion-vpc")',
        'device.attributes["acme.corp"].project == 628944397724',
        'device.attributes["acme.corp"].speed == "100G" && device.attributes["acme.corp"].mtu == 9000',
    ]
    for condition in conditions:
        request = exactly(device_class="nic", count=2)
        objects = ClusterObjects(
            [
                node("n"),
                resource_slice(devices, "n", driver="acme.corp"),
                device_class("nic", select=condition),
                claim("c", request),
                pod("p", claims=["c"]),
            ]
        )
        for each in (objects, anonymize(objects, Pseudonyms(KEY))):
            report = run_whatif(ClusterState(each), WhatifPlan())
            (placed,) = report.outcome.placed
            assert sorted(name.rpartition("/")[2] for name in placed.devices) == ["nic-0", "nic-1"]
        text = b"".join(map(codec.encode, each)).decode()
        assert not [word for word in ("628944397724", "orion", "lyra") if word in text]
        assert '"100G"' in text
        assert "9000" in text


def test_values_that_no_device_has_do_not_leak_from_expressions() -> None:
    cel = f'device.attributes["acme.corp"].host in ["{LEAK}-1"] || device.driver == "{LEAK}.corp"'
    objects = ClusterObjects([resource_slice([device("d", host="rack")]), device_class("c", select=cel)])
    assert LEAK not in b"".join(map(codec.encode, anonymize(objects, Pseudonyms(KEY)))).decode()
