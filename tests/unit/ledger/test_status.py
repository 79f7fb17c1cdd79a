"""Claim charges in a pod's status: every form, upstream's order, and the writes around binding."""

from __future__ import annotations

import pytest

from plimsoll.api import codec
from plimsoll.api.forms import Form, read_status
from plimsoll.ledger.status import patch_failed, plan_clear, plan_patch, status_entries, with_charges
from plimsoll.ledger.texts import render_all
from plimsoll.ledger.verdict import Code
from tests.unit.ledger.books import World, claim, container, device, piece, pod, pool_device, result

ONE = pod("p", container("b", "z", "a"), container("a", "z"), init=[container("i", "z")])
WORLD = World(
    piece(device("d", memory="1Gi", cpu="2"), device("e", cpu="500m")),
    claims=[claim("z", result("d"), result("e")), claim("a", result("e"))],
)
BILLS = WORLD.judge_placement(ONE).bills or ()


def test_entries_stand_in_upstreams_order() -> None:
    entries = status_entries(reversed(BILLS))
    assert [entry.claim for entry in entries] == ["a", "z"]
    assert entries[1].containers == ("i", "b", "a")
    assert list(entries[1].resources) == ["cpu", "memory"]


def test_the_1_36_form() -> None:
    tree = codec.to_tree(with_charges(ONE, BILLS, Form.V1_36).whole(Form.V1_36))
    assert tree["status"]["nodeAllocatableResourceClaimStatuses"] == [
        {"resourceClaimName": "a", "containers": ["b"], "resources": {"cpu": "500m"}},
        {
            "resourceClaimName": "z",
            "containers": ["i", "b", "a"],
            "resources": {"cpu": "2500m", "memory": "1Gi"},
        },
    ]


def test_the_1_37_form_has_lists_by_resource_name() -> None:
    tree = codec.to_tree(with_charges(ONE, BILLS, Form.V1_37).whole(Form.V1_37))
    assert tree["status"]["nodeAllocatableResourceClaimStatuses"][1]["mapping"] == [
        {"name": "cpu", "quantity": "2500m"},
        {"name": "memory", "quantity": "1Gi"},
    ]


def test_the_draft_form() -> None:
    tree = codec.to_tree(with_charges(ONE, BILLS, Form.DRAFT).whole(Form.DRAFT))
    assert tree["status"]["nativeResourceClaimStatus"][0] == {
        "claimInfo": {"name": "a"},
        "containers": ["b"],
        "resources": [{"resourceName": "cpu", "quantity": "500m"}],
    }


@pytest.mark.parametrize("form", Form)
def test_every_form_reads_back(form: Form) -> None:
    pool = World(piece(pool_device(policy="ConsumeFrom")), claims=[claim("c", result("socket0", cpu="8"))])
    bills = (*BILLS, *pool.place(pod("q", container("a", "c", cpu="3"))))
    written = with_charges(ONE, bills, form).whole(form)
    assert read_status(written.status) == status_entries(bills)
    assert written.spec == ONE.spec


def test_what_a_form_has_no_room_for_is_told() -> None:
    overhead = {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "100m"}}}}
    world = World(piece(device("d", fields=overhead)), claims=[claim("c", result("d"))])
    bills = world.judge_placement(pod("p", container("a", "c"))).bills or ()
    assert with_charges(ONE, bills, Form.V1_37).losses == ()
    assert with_charges(ONE, bills, Form.V1_36).losses == ("claim c: cpu: overhead of 100m per pod",)


def test_the_write_before_binding() -> None:
    entries = status_entries(BILLS)
    assumed = with_charges(ONE, BILLS, Form.V1_36).view.status
    assert plan_patch(assumed, entries).entries == entries
    assert plan_patch(assumed, ()).entries is None
    differing = plan_patch(ONE.status, entries)
    assert differing.entries is None
    assert differing.verdict.code is Code.ERROR
    assert render_all(differing.verdict) == (
        "assumed pod status does not match calculated status to be patched",
    )


def test_the_write_after_a_failed_binding() -> None:
    assert plan_clear(with_charges(ONE, BILLS, Form.V1_36).view.status).entries == ()
    assert plan_clear(ONE.status).entries is None


def test_a_write_the_server_refuses() -> None:
    verdict = patch_failed(ONE, "conflict")
    assert verdict.code is Code.ERROR
    assert render_all(verdict) == ("updating pod default/p NodeAllocatableResourceClaimStatuses: conflict",)
