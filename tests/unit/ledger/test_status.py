"""Claim charges in a pod's status: every form, in upstream's order."""

from __future__ import annotations

import pytest

from plimsoll.api import codec
from plimsoll.api.forms import Form, read_status
from plimsoll.ledger.status import build_status_entries, write_charges
from tests.build import charging_device, claim, container, pod, pool_device, resource_slice, result
from tests.unit.ledger.fixture import LedgerFixture

ONE = pod("p", container("b", "z", "a"), container("a", "z"), init=[container("i", "z")])
WORLD = LedgerFixture(
    resource_slice([charging_device("d", memory="1Gi", cpu="2"), charging_device("e", cpu="500m")]),
    claims=[claim("z", results=[result("d"), result("e")]), claim("a", results=[result("e")])],
)
BILLS = WORLD.check_placement(ONE).charged_claims or ()


def test_entries_have_the_order_of_upstream() -> None:
    entries = build_status_entries(reversed(BILLS))
    assert [entry.claim for entry in entries] == ["a", "z"]
    assert entries[1].containers == ("i", "b", "a")
    assert list(entries[1].resources) == ["cpu", "memory"]


def test_the_1_36_form() -> None:
    tree = codec.to_tree(write_charges(ONE, BILLS, Form.V1_36).lossless(Form.V1_36))
    assert tree["status"]["nodeAllocatableResourceClaimStatuses"] == [
        {"resourceClaimName": "a", "containers": ["b"], "resources": {"cpu": "500m"}},
        {
            "resourceClaimName": "z",
            "containers": ["i", "b", "a"],
            "resources": {"cpu": "2500m", "memory": "1Gi"},
        },
    ]


def test_the_1_37_form_has_lists_by_resource_name() -> None:
    tree = codec.to_tree(write_charges(ONE, BILLS, Form.V1_37).lossless(Form.V1_37))
    assert tree["status"]["nodeAllocatableResourceClaimStatuses"][1]["mapping"] == [
        {"name": "cpu", "quantity": "2500m"},
        {"name": "memory", "quantity": "1Gi"},
    ]


def test_the_draft_form() -> None:
    tree = codec.to_tree(write_charges(ONE, BILLS, Form.DRAFT).lossless(Form.DRAFT))
    assert tree["status"]["nativeResourceClaimStatus"][0] == {
        "claimInfo": {"name": "a"},
        "containers": ["b"],
        "resources": [{"resourceName": "cpu", "quantity": "500m"}],
    }


@pytest.mark.parametrize("form", Form)
def test_every_form_reads_back(form: Form) -> None:
    pool = LedgerFixture(
        resource_slice([pool_device(policy="ConsumeFrom")]),
        claims=[claim("c", results=[result("socket0", cpu="8")])],
    )
    charged_claims = (*BILLS, *pool.place(pod("q", container("a", "c", cpu="3"))))
    written = write_charges(ONE, charged_claims, form).lossless(form)
    assert read_status(written.status) == build_status_entries(charged_claims)
    assert written.spec == ONE.spec


def test_fields_missing_from_a_form_are_reported() -> None:
    overhead = {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "100m"}}}}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", fields=overhead)]), claims=[claim("c", results=[result("d")])]
    )
    charged_claims = fixture.check_placement(pod("p", container("a", "c"))).charged_claims or ()
    assert write_charges(ONE, charged_claims, Form.V1_37).losses == ()
    assert write_charges(ONE, charged_claims, Form.V1_36).losses == (
        "claim c: cpu: overhead of 100m per pod",
    )
