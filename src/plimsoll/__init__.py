"""Plimsoll keeps one ledger of a Kubernetes node's resources, whoever takes them: pod requests or DRA claims.

The names below are the public API; everything else may change between versions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll.allocator import (
        Allocation,
        AllocationState,
        Budget,
        BudgetLine,
        Fault,
        Features,
        GaveUp,
        Inventory,
        Limits,
        Preference,
        Refusal,
        allocate_claims,
        explain_lines,
    )
    from plimsoll.api.codec import decode, decode_object, encode
    from plimsoll.api.forms import Form, Policy
    from plimsoll.api.gates import Gates
    from plimsoll.api.quantity import Quantity
    from plimsoll.api.record import Record
    from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
    from plimsoll.apiserver.validation import FieldError, PreparedObject, Write, prepare
    from plimsoll.cel import Environment, Selector, compile_selector, flatten
    from plimsoll.client import Client, ClientConfig, Endpoint
    from plimsoll.client.informer import Informer
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.errors import ApiError, InputError, PlimsollError
    from plimsoll.ledger import (
        Allowance,
        Bill,
        DeviceIndex,
        Judgement,
        Line,
        NodeLedger,
        Pricing,
        Profile,
        Reason,
        Verdict,
        allowance_for,
        judge_placement,
        pod_limits,
        pod_requests,
        render_all,
        usage_by_namespace,
    )
    from plimsoll.scheduler.cycle import schedule_one
    from plimsoll.scheduler.pod_claims import read_pod_info
    from plimsoll.scheduler.pod_info import PodInfo
    from plimsoll.scheduler.profile import SchedulerProfile
    from plimsoll.scheduler.result import FitError, Placement
    from plimsoll.scheduler.snapshot.snapshot import Snapshot
    from plimsoll.tools.audit import audit
    from plimsoll.tools.cluster_state import ClusterState, Source, read_cluster_state
    from plimsoll.tools.explain import explain_claim, explain_pod
    from plimsoll.tools.report import as_text
    from plimsoll.tools.top import claim_rows, device_rows, holders, node_rows
    from plimsoll.tools.whatif import Whatif, WhatifPlan, run_whatif
    from plimsoll.up.local_cluster import LocalCluster

__all__ = [
    "Allocation",
    "AllocationState",
    "Allowance",
    "ApiError",
    "Bill",
    "Budget",
    "BudgetLine",
    "Client",
    "ClientConfig",
    "ClusterState",
    "DeviceIndex",
    "Endpoint",
    "Environment",
    "Fault",
    "Features",
    "FieldError",
    "FitError",
    "Form",
    "Gates",
    "GaveUp",
    "Informer",
    "InputError",
    "Inventory",
    "Judgement",
    "Limits",
    "Line",
    "LocalCluster",
    "NodeLedger",
    "Placement",
    "PlimsollError",
    "PodInfo",
    "Policy",
    "Preference",
    "PreparedObject",
    "Pricing",
    "Profile",
    "Quantity",
    "Reason",
    "Record",
    "Refusal",
    "RunningServer",
    "SchedulerProfile",
    "Selector",
    "ServerSettings",
    "Snapshot",
    "Source",
    "Verdict",
    "Whatif",
    "WhatifPlan",
    "Write",
    "allocate_claims",
    "allowance_for",
    "as_text",
    "audit",
    "claim_rows",
    "compile_selector",
    "decode",
    "decode_object",
    "device_rows",
    "encode",
    "explain_claim",
    "explain_lines",
    "explain_pod",
    "find_config",
    "flatten",
    "holders",
    "judge_placement",
    "node_rows",
    "pod_limits",
    "pod_requests",
    "prepare",
    "read_cluster_state",
    "read_pod_info",
    "render_all",
    "run_whatif",
    "schedule_one",
    "start_server",
    "usage_by_namespace",
]

#: Where each name lives. A name is imported when it is first used, so that a program pays for what it needs.
_HOMES = {
    name: home
    for home, names in {
        "plimsoll.allocator": [
            "Allocation",
            "AllocationState",
            "Budget",
            "BudgetLine",
            "Fault",
            "Features",
            "GaveUp",
            "Inventory",
            "Limits",
            "Preference",
            "Refusal",
            "allocate_claims",
            "explain_lines",
        ],
        "plimsoll.api.codec": ["decode", "decode_object", "encode"],
        "plimsoll.api.forms": ["Form", "Policy"],
        "plimsoll.api.gates": ["Gates"],
        "plimsoll.api.quantity": ["Quantity"],
        "plimsoll.api.record": ["Record"],
        "plimsoll.cel": ["Environment", "Selector", "compile_selector", "flatten"],
        "plimsoll.client": ["Client", "ClientConfig", "Endpoint"],
        "plimsoll.client.informer": ["Informer"],
        "plimsoll.client.kubeconfig": ["find_config"],
        "plimsoll.errors": ["ApiError", "InputError", "PlimsollError"],
        "plimsoll.ledger": [
            "Allowance",
            "Bill",
            "DeviceIndex",
            "Judgement",
            "Line",
            "NodeLedger",
            "Pricing",
            "Profile",
            "Reason",
            "Verdict",
            "allowance_for",
            "judge_placement",
            "pod_limits",
            "pod_requests",
            "render_all",
            "usage_by_namespace",
        ],
        "plimsoll.up.local_cluster": ["LocalCluster"],
        "plimsoll.apiserver.process": ["RunningServer", "ServerSettings", "start_server"],
        "plimsoll.scheduler.pod_claims": ["read_pod_info"],
        "plimsoll.scheduler.cycle": ["schedule_one"],
        "plimsoll.scheduler.result": ["Placement", "FitError"],
        "plimsoll.scheduler.profile": ["SchedulerProfile"],
        "plimsoll.scheduler.snapshot.snapshot": ["Snapshot"],
        "plimsoll.scheduler.pod_info": ["PodInfo"],
        "plimsoll.tools.audit": ["audit"],
        "plimsoll.tools.explain": ["explain_claim", "explain_pod"],
        "plimsoll.tools.cluster_state": ["ClusterState", "Source", "read_cluster_state"],
        "plimsoll.tools.report": ["as_text"],
        "plimsoll.tools.top": ["claim_rows", "device_rows", "holders", "node_rows"],
        "plimsoll.tools.whatif": ["WhatifPlan", "Whatif", "run_whatif"],
        "plimsoll.apiserver.validation": ["FieldError", "PreparedObject", "Write", "prepare"],
    }.items()
    for name in names
}


#: Old names that keep working for one release, with a DeprecationWarning: old -> new.
_RENAMED = {
    "Picture": "ClusterState",
    "Plan": "WhatifPlan",
    "Prepared": "PreparedObject",
    "Problem": "FieldError",
    "Settings": "SchedulerProfile",
    "Task": "PodInfo",
    "Unplaced": "FitError",
    "node_books": "node_rows",
    "read_picture": "read_cluster_state",
    "read_task": "read_pod_info",
}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        from plimsoll.common.deprecation import warn_renamed  # noqa: PLC0415 - seldom needed

        warn_renamed(f"plimsoll.{name}", f"plimsoll.{_RENAMED[name]}")
        return getattr(import_module(__name__), _RENAMED[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'plimsoll' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
