"""Why is it pending, and why is it there: pods and claims explained down to the numbers. Start at `pods.py`.

`explain_pod` and `explain_claim` give values that are reports; `summarize_pending` gives a line for each pod
that waits. Everything is asked of the scheduler's own rules on the scheduler's own books (`filter_run`),
grouped by reason (`groups`), with the smallest change that would help (`fixes`). `text` has all the words.
"""

from plimsoll.tools.explain.claims import explain_claim
from plimsoll.tools.explain.pending import explain_pending, summarize_pending
from plimsoll.tools.explain.pods import explain_node, explain_pod
from plimsoll.tools.explain.verdict import (
    ClaimExplanation,
    ExplainVerdict,
    NodeExplanation,
    PendingList,
    PodExplanation,
)

__all__ = [
    "ClaimExplanation",
    "ExplainVerdict",
    "NodeExplanation",
    "PendingList",
    "PodExplanation",
    "explain_claim",
    "explain_node",
    "explain_pending",
    "explain_pod",
    "summarize_pending",
]
