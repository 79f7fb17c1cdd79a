"""Message of PodScheduled=False, and the patch that writes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.ledger.verdict import Cause, Reason, VerdictCode
from plimsoll.scheduler.binding.pod_conditions import (
    BindError,
    failure_reason,
    format_bind_error,
    plan_condition,
    render_fit_error,
    shorten,
)
from plimsoll.scheduler.devices.exact import DeviceMessage
from plimsoll.scheduler.filters.node_resources import NodeResourcesMessage
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule, SharedMessage
from plimsoll.scheduler.result import FitError
from tests.build import claim, exactly, pod

PREEMPTION = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
NOW = "2026-01-02T03:04:05Z"


def short(resource: str) -> NodeReason:
    return NodeReason(
        Rule.RESOURCES, NodeResourcesMessage.INSUFFICIENT, VerdictCode.UNSCHEDULABLE, {"resource": resource}
    )


NO_DEVICES = NodeReason(Rule.DEVICES, DeviceMessage.CANNOT_ALLOCATE, VerdictCode.UNSCHEDULABLE)
NO_CLASS = NodeReason(
    Rule.DEVICES,
    ClaimMessage.CLASS_MISSING,
    VerdictCode.UNRESOLVABLE,
    {"request": "r", "device_class": "no-such-class"},
)


def fit_error(nodes: int, *reasons: tuple[NodeReason, int], claims: bool = True) -> FitError:
    from plimsoll.ledger.requests import PodResourcesOptions  # noqa: PLC0415

    mine = (claim("c", exactly()),) if claims else ()
    return FitError(
        PodInfo(pod("p", claims=["c"] if claims else []), mine, PodResourcesOptions()), nodes, reasons
    )


def test_reasons_are_counted_and_sorted_as_texts() -> None:
    """The exact text of a real cluster with three nodes."""
    made = fit_error(3, (short("cpu"), 2), (NO_DEVICES, 1))
    assert render_fit_error(made, PREEMPTION) == (
        "0/3 nodes are available: 1 cannot allocate all claims, 2 Insufficient cpu. still not schedulable, "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_numbers_are_sorted_as_texts_too() -> None:
    made = fit_error(14, (short("cpu"), 2), (short("memory"), 12))
    assert render_fit_error(made) == "0/14 nodes are available: 12 Insufficient memory, 2 Insufficient cpu."


def test_equal_texts_are_one_reason() -> None:
    other = NodeReason(
        Rule.DEVICES, NodeResourcesMessage.INSUFFICIENT, VerdictCode.UNRESOLVABLE, {"resource": "cpu"}
    )
    made = fit_error(3, (short("cpu"), 2), (other, 1))
    assert render_fit_error(made) == "0/3 nodes are available: 3 Insufficient cpu."


def test_a_reason_about_the_pod_itself_stands_alone() -> None:
    made = fit_error(1, (NO_CLASS, 0), (short("cpu"), 1))
    assert render_fit_error(made, "preemption: not helpful") == (
        "0/1 nodes are available: request r: device class no-such-class does not exist. "
        "no new claims to deallocate, preemption: not helpful"
    )


def test_a_pod_without_claims_has_no_deallocation_message() -> None:
    made = fit_error(1, (short("cpu"), 1), claims=False)
    assert render_fit_error(made, "preemption: x") == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: x"
    )


@pytest.mark.parametrize("claims", [True, False])
def test_later_releases_report_only_what_was_deallocated(claims: bool) -> None:
    made = fit_error(8, (NO_DEVICES, 8), claims=claims)
    text = "0/8 nodes are available: 8 cannot allocate all claims. preemption: x"
    assert render_fit_error(made, "preemption: x", minor=37) == text
    assert render_fit_error(made, minor=37) == "0/8 nodes are available: 8 cannot allocate all claims."


@pytest.mark.parametrize("cause", [Cause.SHARED_BY_SEVERAL, Cause.USED_BY_ANOTHER])
def test_a_shared_claim_with_charges_has_the_message_of_the_release(cause: Cause) -> None:
    charge = Reason(cause=cause, namespace="default", claim="c")
    reason = NodeReason(Rule.DEVICES, SharedMessage.TEXT, charge.code, {"text": "1.36"}, charge)
    made = fit_error(1, (reason, 1))
    assert render_fit_error(made) == "0/1 nodes are available: 1 1.36."
    assert render_fit_error(made, minor=37) == (
        "0/1 nodes are available: 1 node allocatable resource claim c has a mapped device and cannot be "
        "shared across pods."
    )


def test_pods_that_are_being_preempted_are_not_mentioned() -> None:
    assert render_fit_error(fit_error(1, (short("cpu"), 1))) == "0/1 nodes are available: 1 Insufficient cpu."


def test_no_nodes() -> None:
    assert render_fit_error(fit_error(0), "preemption: x") == "no nodes available to schedule pods"
    assert failure_reason(fit_error(0)) == "Unschedulable"


@pytest.mark.parametrize(
    ("count", "where"),
    [(1, 'running "DynamicResources" filter plugin'), (0, 'running PreFilter plugin "DynamicResources"')],
)
def test_an_error_replaces_all_reasons(count: int, where: str) -> None:
    error = NodeReason(Rule.DEVICES, SharedMessage.TEXT, VerdictCode.ERROR, {"text": "device d not found"})
    made = fit_error(3, (short("cpu"), 1), (error, count))
    assert render_fit_error(made, PREEMPTION) == f"{where}: device d not found"
    assert failure_reason(made) == "SchedulerError"


def test_reasons_of_the_condition() -> None:
    gate = NodeReason(Rule.SCHEDULING_GATES, SharedMessage.TEXT, VerdictCode.UNRESOLVABLE, {"text": "gated"})
    assert failure_reason(gate) == "SchedulingGated"
    assert failure_reason(fit_error(1, (short("cpu"), 1))) == "Unschedulable"
    assert failure_reason(NO_CLASS) == "Unschedulable"
    assert failure_reason(None) == "SchedulerError"


@given(st.lists(st.tuples(st.sampled_from(["cpu", "memory", "pods"]), st.integers(1, 30)), min_size=1))
def test_every_node_is_counted(found: list[tuple[str, int]]) -> None:
    total = sum(count for _, count in found)
    made = fit_error(total, *((short(name), count) for name, count in found))
    head, _, rest = render_fit_error(made).partition(": ")
    assert head == f"0/{total} nodes are available"
    assert sum(int(part.split(" ", 1)[0]) for part in rest.rstrip(".").split(", ")) == total


def test_failures_name_the_binding_step() -> None:
    text = format_bind_error(BindError.ADD_ALLOCATION, claim="ns/c", error="no")
    assert text == (
        'running PreBind plugin "DynamicResources": add allocation and reservation to claim ns/c: no'
    )
    assert format_bind_error(BindError.BINDING, error="no") == 'running Bind plugin "DefaultBinder": no'


def test_texts_with_braces_are_rendered() -> None:
    assert format_bind_error(BindError.BINDING, error="{x}").endswith("{x}")


def test_long_event_messages_are_truncated() -> None:
    assert shorten("x" * 1024) == "x" * 1024
    assert len(shorten("x" * 1025)) == 1024
    assert shorten("x" * 2000).endswith("x ...")


# -- patches


def unschedulable(**fields: Any) -> dict[str, Any]:
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m", **fields}


def test_a_condition_is_written_once() -> None:
    fresh = pod("p", metadata={"generation": 3})
    patch = plan_condition(fresh, "Unschedulable", "m", NOW)
    assert patch is not None
    assert patch["metadata"] == {"uid": "uid-p"}
    condition = patch["status"]["conditions"][0]
    assert condition["lastTransitionTime"] == NOW
    assert condition["observedGeneration"] == 3
    known = pod("p", status={"conditions": [condition]})
    assert plan_condition(known, "Unschedulable", "m", NOW) is None


@pytest.mark.parametrize(("reason", "message"), [("SchedulerError", "m"), ("Unschedulable", "other")])
def test_an_unchanged_status_keeps_its_transition_time(reason: str, message: str) -> None:
    since = "2025-01-01T00:00:00Z"
    known = pod("p", status={"conditions": [unschedulable(lastTransitionTime=since)]})
    patch = plan_condition(known, reason, message, NOW)
    assert patch is not None
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == since
    assert "nominatedNodeName" not in patch["status"]


def test_a_nominated_node_alone_is_written() -> None:
    known = pod("p", status={"conditions": [unschedulable()]})
    patch = plan_condition(known, "Unschedulable", "m", NOW, nominated="n1")
    assert patch == {"metadata": {"uid": "uid-p"}, "status": {"nominatedNodeName": "n1"}}
    promised = pod("p", status={"conditions": [unschedulable()], "nominatedNodeName": "n1"})
    assert plan_condition(promised, "Unschedulable", "m", NOW, nominated="n1") is None
    assert plan_condition(promised, "Unschedulable", "m", NOW) is None
    patch = plan_condition(promised, "Unschedulable", "m", NOW, nominated="")
    assert patch is not None
    assert patch["status"] == {"nominatedNodeName": None}
    assert plan_condition(known, "Unschedulable", "m", NOW, nominated="") is None
