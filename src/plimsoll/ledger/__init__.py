"""Who is charged what: pods, their claims, and the nodes they run on. Imports api.

`NodeLedger` is the book of one node; `check_placement` says whether a pod with its claims fits and what it
would be charged; `pod_requests` and `pod_limits` are what a pod asks for by itself. Implements documents 000
and 002. Devices become amounts (`mapping`), claims become bills (`claims`), policies say how bills and
requests go together (`policy`, `pools`, `compatibility`), entries of lines make up the book (`lines`,
`node`), and `cgroups/`, `qos` and `eviction` plan what a node does with a pod.
"""

from plimsoll.ledger.claim_headroom import ClaimHeadroom, compute_claim_headroom
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.entries import LedgerLine
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import PlacementCheck, check_placement
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.quota import usage_by_namespace
from plimsoll.ledger.requests import pod_limits, pod_requests
from plimsoll.ledger.verdict import Reason, Verdict

__all__ = [
    "AccountingProfile",
    "ChargeContext",
    "ChargedClaim",
    "ClaimHeadroom",
    "DeviceIndex",
    "LedgerLine",
    "NodeLedger",
    "PlacementCheck",
    "Reason",
    "Verdict",
    "check_placement",
    "compute_claim_headroom",
    "format_reasons",
    "pod_limits",
    "pod_requests",
    "usage_by_namespace",
]
