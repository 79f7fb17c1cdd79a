"""Node resource accounting: pods, their resource claims, and the nodes they run on.

`NodeLedger` is the ledger of one node. `check_placement` checks whether a pod with its claims fits a node and
computes its charges. `pod_requests` and `pod_limits` compute the effective requests and limits of a pod.
Implements KEP-5517 and its earlier draft (docs/spec/keps.md; docs/spec/accounting.md).

    requests.py, in_place.py, containers.py   effective requests and limits of a pod
    device_charges.py, claims.py              charges of devices and of claims
    policy.py, pools.py, policy_conflicts.py  accounting policies
    entries.py, claim_state.py, node_ledger.py  entries of a ledger, and the ledger
    placement.py, fit.py, pod_level_budget.py, claim_headroom.py  checks
    verdict.py, messages.py                   results of checks and their texts
    columns.py, change_log.py                 checks over many nodes at once
    qos.py, claim_shares.py                   QoS class; amounts that claims add to pods and containers

Imports only `api`.
"""

from plimsoll.ledger.claim_headroom import ClaimHeadroom, compute_claim_headroom
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.entries import LedgerLine
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import PlacementCheck, check_placement
from plimsoll.ledger.profile import AccountingProfile
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
]
