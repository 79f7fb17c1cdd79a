"""Detection of another scheduler that handles pods of the same scheduler names, such as kube-scheduler.

Two schedulers of one name decide about each pod independently of each other, and overcommit nodes. A binding,
or several conditions of pods, that this process has not written while it leads are reported once, in the log
and as an event. Changes from before it leads do not count: they are those of a previous leader. Where both
decide the same, nothing shows who has written it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from plimsoll.api.core import Pod
from plimsoll.api.meta import Condition
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.pod_conditions import POD_SCHEDULED, SCHEDULING_GATED

LOG = logging.getLogger("plimsoll.scheduler")

#: Conditions of others before they are reported: one may be a late write of a previous leader.
_MIN_CONDITIONS = 3


class OtherSchedulerDetector:
    """Detector that compares changes of pods with what this process has written."""

    def __init__(
        self,
        names: Container[str],
        *,
        is_leading: Callable[[], bool],
        find_node: Callable[[str], str],
        has_written: Callable[[str, str], bool],
        report: Callable[[str], None],
    ) -> None:
        """Create a detector for pods of these scheduler names.

        `find_node` returns the node on which this process has placed a pod (by key), or "", and `has_written`
        whether this process has written a message to the condition of a pod.
        """
        self._names = names
        self._is_leading = is_leading
        self._find_node = find_node
        self._has_written = has_written
        self._report = report
        #: Nodes of bindings that failed here, but may have been applied, by pod.
        self._failed: dict[str, set[str]] = {}
        self._conditions = 0
        self._is_reported = False

    def on_binding_failed(self, key: str, node: str) -> None:
        """Note a binding whose result in the API is unknown."""
        self._failed.setdefault(key, set()).add(node)

    def on_pod_event(self, old: Pod | None, new: Pod | None) -> None:
        """Compare two states of a pod, before the second one is applied to the snapshot."""
        if old is None or old.spec.node_name or old.spec.scheduler_name not in self._names:
            return
        key = pod_key(old)
        nodes = {self._find_node(key), *self._failed.get(key, ())} - {""}
        if new is None or new.spec.node_name:
            self._failed.pop(key, None)
        if new is None or self._is_reported or not self._is_leading():
            return
        name = new.metadata.full_name
        if new.spec.node_name:
            if new.spec.node_name not in nodes:
                self._report_once(new, f"bound pod {name} to node {new.spec.node_name}")
        elif nodes:
            return
        elif (condition := _find_changed_condition(old, new)) is not None:
            self._conditions += not self._has_written(key, condition.message)
            if self._conditions >= _MIN_CONDITIONS:
                self._report_once(new, f"wrote the condition of pod {name}: {condition.message!r}")

    def _report_once(self, pod: Pod, action: str) -> None:
        self._is_reported = True
        text = (
            f"another scheduler handles pods with schedulerName {pod.spec.scheduler_name}: it {action}; "
            "stop one of the two, or give them different names"
        )
        LOG.error("%s", text)
        self._report(text)


def _find_changed_condition(old: Pod, new: Pod) -> Condition | None:
    """Return the condition PodScheduled of a pod that a scheduler has changed."""
    before, after = _find_condition(old), _find_condition(new)
    if after is None or after.reason == SCHEDULING_GATED:
        return None
    is_same = before is not None and (before.reason, before.message) == (after.reason, after.message)
    return None if is_same else after


def _find_condition(pod: Pod) -> Condition | None:
    return next((each for each in pod.status.conditions if each.type == POD_SCHEDULED), None)
