"""Wire forms: each is read and written back, and conversions report their losses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import PodStatus
from plimsoll.api.forms import (
    ClaimCharge,
    ClassPolicy,
    DeviceRule,
    Form,
    ResourceCharge,
    device_forms,
    read_class,
    read_device,
    read_status,
    status_form,
    write_class,
    write_device,
    write_status,
)
from plimsoll.api.meta import ObjectReference
from plimsoll.api.quantity import Quantity
from plimsoll.api.record import Record
from plimsoll.api.resource import Device, DeviceClass, DeviceClassSpec
from plimsoll.errors import FormError

q = Quantity.parse

# The same socket, written by three generations of drivers: 4Gi of memory per unit of a capacity.
SOCKET: dict[Form, dict[str, Any]] = {
    Form.V1_36: {
        "nodeAllocatableResourceMappings": {
            "memory": {"capacityKey": "dra.example.com/mem", "allocationMultiplier": "1"}
        }
    },
    Form.V1_37: {
        "nodeAllocatableResources": {
            "memory": {"mapping": {"capacityKey": "dra.example.com/mem", "capacityMultiplier": "1"}}
        }
    },
    Form.DRAFT: {"nativeResourceMappings": {"memory": {"quantityFrom": {"capacity": "dra.example.com/mem"}}}},
}
# An accelerator that takes two CPUs along with each device.
ACCELERATOR: dict[Form, dict[str, Any]] = {
    Form.V1_36: {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}},
    Form.V1_37: {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}},
    Form.DRAFT: {"nativeResourceMappings": {"cpu": {"quantityFrom": {"perInstanceQuantity": "2"}}}},
}
CHARGE: dict[Form, dict[str, Any]] = {
    Form.V1_36: {
        "nodeAllocatableResourceClaimStatuses": [
            {"resourceClaimName": "c", "containers": ["a", "b"], "resources": {"cpu": "4"}}
        ]
    },
    Form.V1_37: {
        "nodeAllocatableResourceClaimStatuses": [
            {
                "resourceClaimName": "c",
                "containers": ["a", "b"],
                "mapping": [{"name": "cpu", "quantity": "4"}],
            }
        ]
    },
    Form.DRAFT: {
        "nativeResourceClaimStatus": [
            {
                "claimInfo": {"name": "c"},
                "containers": ["a", "b"],
                "resources": [{"resourceName": "cpu", "quantity": "4"}],
            }
        ]
    },
}
FORMS = list(Form)


def device(tree: dict[str, Any]) -> Device:
    return codec.convert({"name": "d", **tree}, Device)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_device_reads_the_same_in_every_form(form: Form) -> None:
    assert device_forms(device(SOCKET[form])) == (form,)
    rule = read_device(device(SOCKET[form]))["memory"]
    assert rule.capacity_key == "dra.example.com/mem"
    assert rule.multiplier in (None, q("1"))
    assert read_device(device(ACCELERATOR[form])) == {"cpu": DeviceRule(None, q("2"))}


@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("source", FORMS)
def test_fields_of_every_form_convert_without_loss(source: Form, target: Form) -> None:
    for trees in (SOCKET, ACCELERATOR):
        given = device(trees[source])
        written = write_device(given, read_device(given), target)
        assert written.losses == ()
        tree = codec.to_tree(written.view)
        expected = {"name": "d", **trees[target]}
        if source is Form.DRAFT and target is Form.V1_36 and trees is SOCKET:
            expected = json.loads(json.dumps(expected).replace(', "allocationMultiplier": "1"', ""))
        assert tree == expected


@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("source", FORMS)
def test_charges_convert_between_forms(source: Form, target: Form) -> None:
    status = codec.convert(CHARGE[source], PodStatus)
    assert status_form(status) is source
    written = write_status(status, read_status(status), target)
    assert written.losses == ()
    assert codec.to_tree(written.view) == CHARGE[target]


def test_older_forms_have_no_overhead_field() -> None:
    given = device(
        {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "100m", "perContainer": "10m"}}}}
    )
    rules = read_device(given)
    assert rules == {"cpu": DeviceRule(mapped=False, per_pod=q("100m"), per_container=q("10m"))}
    for form in (Form.V1_36, Form.DRAFT):
        written = write_device(given, rules, form)
        assert written.losses == (
            "d: cpu: overhead of 100m per pod",
            "d: cpu: overhead of 10m per container",
        )
        with pytest.raises(FormError, match="overhead of 100m per pod"):
            written.lossless(form)


def test_the_draft_has_no_multiplier_for_a_capacity() -> None:
    rule = DeviceRule("cores", q("2"))
    written = write_device(device({}), {"cpu": rule}, Form.DRAFT)
    assert written.losses == ("d: cpu: multiplier 2 of capacity cores",)


def test_claim_info_beyond_the_name_only_fits_the_draft() -> None:
    reference = ObjectReference(kind="ResourceClaim", name="c", uid="u")
    charge = ClaimCharge("c", ("a",), {"cpu": ResourceCharge(q("1"))}, reference)
    status = write_status(PodStatus(), [charge], Form.DRAFT).lossless(Form.DRAFT)
    assert read_status(status) == (charge,)
    assert write_status(PodStatus(), [charge], Form.V1_37).losses == ("claim c: claimInfo beyond the name",)


def test_policies_are_kept_in_every_form() -> None:
    charge = ClaimCharge("c", ("a",), {"cpu": ResourceCharge(q("100"), policy="ConsumeFrom", drawn=q("0"))})
    for form in FORMS:
        status = write_status(PodStatus(), [charge], form).lossless(form)
        assert read_status(codec.decode(codec.encode(status), PodStatus)) == (charge,)
        rules = {"cpu": DeviceRule(None, q("1"), policy="Max")}
        assert read_device(write_device(device({}), rules, form).lossless(form)) == rules


def test_the_newest_form_wins_and_several_are_seen() -> None:
    both = device({**SOCKET[Form.DRAFT], **ACCELERATOR[Form.V1_37]})
    assert device_forms(both) == (Form.V1_37, Form.DRAFT)
    assert set(read_device(both)) == {"cpu"}


def test_an_entry_that_mixes_forms_charges_both() -> None:
    entry = {
        "resourceClaimName": "c",
        "resources": {"cpu": "1"},
        "mapping": [{"name": "cpu", "quantity": "2"}],
        "overhead": [{"name": "cpu", "perPod": "1m"}],
    }
    status = codec.convert({"nodeAllocatableResourceClaimStatuses": [entry]}, PodStatus)
    (charge,) = read_status(status)
    assert charge.resources["cpu"] == ResourceCharge(q("3"), q("1m"))


def test_class_policies_under_both_names() -> None:
    policy = ClassPolicy(True, {"cpu": "Max"})
    ours = codec.convert(
        {
            "managesNodeAllocatableResources": True,
            "nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"},
        },
        DeviceClassSpec,
    )
    draft = codec.convert(
        {"managesNativeResources": True, "nativeResourceAccountingPolicies": {"cpu": "Max"}}, DeviceClassSpec
    )
    assert read_class(ours) == read_class(draft) == policy
    assert write_class(draft, policy, Form.V1_36) == ours
    assert write_class(ours, policy, Form.DRAFT) == draft
    assert read_class(DeviceClass().spec) == ClassPolicy()


def test_unknown_fields_survive_a_rewrite_in_the_same_form() -> None:
    raw = (
        b'{"name":"d","nodeAllocatableResources":{"cpu":{"mapping":{"deviceMultiplier":"2","x":1},"y":[2]}}}'
    )
    record = Record(raw, Device)
    rules = read_device(record.view)
    changed = write_device(record.view, {"cpu": DeviceRule(None, q("3"))}, Form.V1_37).lossless(Form.V1_37)
    assert json.loads(record.replace(changed).raw) == json.loads(raw.replace(b'"2"', b'"3"'))
    assert rules["cpu"].multiplier == q("2")


# -- any rules and charges, any form

amounts = st.sampled_from(["1", "2", "500m", "1Gi", "0"]).map(q)
resources = st.sampled_from(["cpu", "memory", "hugepages-2Mi"])
policies = st.sampled_from(["", "AddPerClaim", "Max", "FromTheFuture"])
rules = st.dictionaries(
    resources,
    st.builds(
        DeviceRule,
        st.none() | st.just("cores"),
        amounts,
        st.just(True),
        st.none() | amounts,
        st.none() | amounts,
        policies,
    ),
    max_size=3,
)
charges = st.lists(
    st.builds(
        ClaimCharge,
        st.sampled_from(["a", "b"]),
        st.lists(st.sampled_from(["x", "y"]), unique=True, max_size=2).map(tuple),
        st.dictionaries(
            resources,
            st.builds(
                ResourceCharge,
                amounts,
                st.none() | amounts,
                st.none() | amounts,
                policies,
                st.none() | amounts,
            ),
            min_size=1,
            max_size=2,
        ),
    ),
    min_size=1,
    max_size=2,
)


@given(rules, st.sampled_from(FORMS))
def test_rules_round_trip_or_their_loss_is_reported(rules: dict[str, DeviceRule], form: Form) -> None:
    written = write_device(device({}), rules, form)
    again = read_device(codec.decode(codec.encode(written.view), Device))
    assert (spelled_out(again) == spelled_out(rules)) == (not written.losses)


def spelled_out(rules: dict[str, DeviceRule]) -> dict[str, DeviceRule]:
    """Return rules with the default multiplier filled in."""
    return {
        n: replace(r, multiplier=q("1") if r.multiplier is None else r.multiplier) for n, r in rules.items()
    }


@given(charges, st.sampled_from(FORMS))
def test_charges_round_trip_or_their_loss_is_reported(charges: list[ClaimCharge], form: Form) -> None:
    written = write_status(PodStatus(), charges, form)
    again = read_status(codec.decode(codec.encode(written.view), PodStatus))
    assert (again == tuple(charges)) == (not written.losses)
