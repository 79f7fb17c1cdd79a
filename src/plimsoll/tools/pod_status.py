"""Status of a pod as kubectl get prints it: Running, Pending, Terminating, CrashLoopBackOff, Completed."""

from __future__ import annotations

from datetime import UTC, datetime

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.apiserver.tables.pods import summarize_pod
from plimsoll.apiserver.tables.row import TableRow

#: Time of rows; it matters only for ages, which are not shown.
_ANY_TIME = datetime.fromtimestamp(0, UTC)


def pod_status(pod: Pod) -> str:
    """Return the STATUS column of a pod."""
    return summarize_pod(TableRow(codec.to_tree(pod), _ANY_TIME)).status or "Pending"
