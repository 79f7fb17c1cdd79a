"""Who is charged what: pods, their claims, and the nodes they run on. Imports api.

`NodeLedger` is the book of one node; `judge_placement` says whether a pod with its claims fits and what it
would be charged; `pod_requests` and `pod_limits` are what a pod asks for by itself. Implements documents 000
and 002. Devices become amounts (`mapping`), claims become bills (`claims`), policies say how bills and
requests go together (`policy`, `pools`, `compatibility`), entries of lines make up the book (`lines`,
`node`), and `cgroups/`, `qos` and `eviction` plan what a node does with a pod.
"""

from plimsoll.ledger.allowance import Allowance, allowance_for
from plimsoll.ledger.claims import Bill, Pricing
from plimsoll.ledger.devices import DeviceIndex
from plimsoll.ledger.judge import Judgement, judge_placement
from plimsoll.ledger.lines import Line
from plimsoll.ledger.node import NodeLedger
from plimsoll.ledger.profile import Profile
from plimsoll.ledger.quota import usage_by_namespace
from plimsoll.ledger.requests import pod_limits, pod_requests
from plimsoll.ledger.texts import render_all
from plimsoll.ledger.verdict import Reason, Verdict

__all__ = [
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
]
