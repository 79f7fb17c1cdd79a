"""`plimsoll explain`: why a pod or claim is pending or where it was scheduled, with the numbers. START HERE:
`pods.py`.

`explain_pod` and `explain_claim` return reports; `summarize_pending` returns one line per pending pod.
Everything is evaluated by the scheduler's own cycle (`attempt`), grouped by reason (`groups`), with the
changes that would help (`tools.fixes`). All texts are in `text`.
"""

from plimsoll.tools.explain.claims import explain_claim
from plimsoll.tools.explain.pending import PendingGroup, PendingList, explain_pending, summarize_pending
from plimsoll.tools.explain.pods import explain_node, explain_pod
from plimsoll.tools.explain.verdict import (
    ClaimExplanation,
    ExplainVerdict,
    NodeExplanation,
    PodExplanation,
)
from plimsoll.tools.explain.workloads import WorkloadExplanation, explain_workload, read_events

__all__ = [
    "ClaimExplanation",
    "ExplainVerdict",
    "NodeExplanation",
    "PendingGroup",
    "PendingList",
    "PodExplanation",
    "WorkloadExplanation",
    "explain_claim",
    "explain_node",
    "explain_pending",
    "explain_pod",
    "explain_workload",
    "read_events",
    "summarize_pending",
]
