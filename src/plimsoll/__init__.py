"""Plimsoll keeps one ledger of a Kubernetes node's resources, for both pod requests and DRA claims.

The names below are the public API; everything else may change between versions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll.allocator import (
        Allocation,
        AllocationFault,
        AllocationState,
        BudgetLine,
        Features,
        Inventory,
        NodeBudget,
        Preference,
        Refusal,
        SearchAborted,
        SearchLimits,
        allocate_claims,
        explain_lines,
    )
    from plimsoll.api.codec import decode, decode_object, encode
    from plimsoll.api.forms import AccountingPolicy, Form
    from plimsoll.api.gates import Gates
    from plimsoll.api.quantity import Quantity
    from plimsoll.api.record import Record
    from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
    from plimsoll.apiserver.validation import FieldError, PreparedObject, Write, prepare
    from plimsoll.cel import Environment, Selector, compile_selector, flatten
    from plimsoll.client import Client, ClientConfig, Endpoint
    from plimsoll.client.informer import Informer
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.controllers.quota.ledger_usage import usage_by_namespace
    from plimsoll.errors import ApiError, InputError, PlimsollError
    from plimsoll.ledger import (
        AccountingProfile,
        ChargeContext,
        ChargedClaim,
        ClaimHeadroom,
        DeviceIndex,
        LedgerLine,
        NodeLedger,
        PlacementCheck,
        Reason,
        Verdict,
        check_placement,
        compute_claim_headroom,
        format_reasons,
        pod_limits,
        pod_requests,
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
    "AccountingPolicy",
    "AccountingProfile",
    "Allocation",
    "AllocationFault",
    "AllocationState",
    "ApiError",
    "BudgetLine",
    "ChargeContext",
    "ChargedClaim",
    "ClaimHeadroom",
    "Client",
    "ClientConfig",
    "ClusterState",
    "DeviceIndex",
    "Endpoint",
    "Environment",
    "Features",
    "FieldError",
    "FitError",
    "Form",
    "Gates",
    "Informer",
    "InputError",
    "Inventory",
    "LedgerLine",
    "LocalCluster",
    "NodeBudget",
    "NodeLedger",
    "Placement",
    "PlacementCheck",
    "PlimsollError",
    "PodInfo",
    "Preference",
    "PreparedObject",
    "Quantity",
    "Reason",
    "Record",
    "Refusal",
    "RunningServer",
    "SchedulerProfile",
    "SearchAborted",
    "SearchLimits",
    "Selector",
    "ServerSettings",
    "Snapshot",
    "Source",
    "Verdict",
    "Whatif",
    "WhatifPlan",
    "Write",
    "allocate_claims",
    "as_text",
    "audit",
    "check_placement",
    "claim_rows",
    "compile_selector",
    "compute_claim_headroom",
    "decode",
    "decode_object",
    "device_rows",
    "encode",
    "explain_claim",
    "explain_lines",
    "explain_pod",
    "find_config",
    "flatten",
    "format_reasons",
    "holders",
    "node_rows",
    "pod_limits",
    "pod_requests",
    "prepare",
    "read_cluster_state",
    "read_pod_info",
    "run_whatif",
    "schedule_one",
    "start_server",
    "usage_by_namespace",
]

#: Where each name lives. A name is imported when it is first used, so that a program pays for what it needs.
HOMES = {
    name: home
    for home, names in {
        "plimsoll.allocator": [
            "Allocation",
            "AllocationState",
            "NodeBudget",
            "BudgetLine",
            "AllocationFault",
            "Features",
            "SearchAborted",
            "Inventory",
            "SearchLimits",
            "Preference",
            "Refusal",
            "allocate_claims",
            "explain_lines",
        ],
        "plimsoll.api.codec": ["decode", "decode_object", "encode"],
        "plimsoll.api.forms": ["Form", "AccountingPolicy"],
        "plimsoll.api.gates": ["Gates"],
        "plimsoll.api.quantity": ["Quantity"],
        "plimsoll.api.record": ["Record"],
        "plimsoll.cel": ["Environment", "Selector", "compile_selector", "flatten"],
        "plimsoll.client": ["Client", "ClientConfig", "Endpoint"],
        "plimsoll.client.informer": ["Informer"],
        "plimsoll.client.kubeconfig": ["find_config"],
        "plimsoll.errors": ["ApiError", "InputError", "PlimsollError"],
        "plimsoll.ledger": [
            "ClaimHeadroom",
            "ChargedClaim",
            "DeviceIndex",
            "PlacementCheck",
            "LedgerLine",
            "NodeLedger",
            "ChargeContext",
            "AccountingProfile",
            "Reason",
            "Verdict",
            "compute_claim_headroom",
            "check_placement",
            "pod_limits",
            "pod_requests",
            "format_reasons",
        ],
        "plimsoll.controllers.quota.ledger_usage": ["usage_by_namespace"],
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


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'plimsoll' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
