"""Agreement of a filter's bulk and pointwise forms."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_ports import NodePortsFilter
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.unit.scheduler.snapshots import pod_info_of


def check(
    kind: type[Filter], wanting: Pod, snapshot: Snapshot, profile: SchedulerProfile | None = None
) -> None:
    pod_info = pod_info_of(wanting, snapshot).with_profile(profile or SchedulerProfile.default())
    rule = kind.pre_filter(pod_info, snapshot)
    if isinstance(rule, NodeReason):
        return
    if rule is None:  # then it must not concern any node
        rule = (
            kind(pod_info, snapshot)
            if kind is not NodePortsFilter
            else NodePortsFilter(pod_info, snapshot, ())
        )
        assert not any(rule.filter_node(row) for row in snapshot.rows())
        return
    passed = rule.filter()
    assert passed.shape == snapshot.alive.shape
    assert {row: bool(passed[row]) for row in snapshot.rows()} == {
        row: not rule.filter_node(row) for row in snapshot.rows()
    }
    removed = snapshot.alive & ~passed
    assert filter_reasons(rule.count_reasons(removed)) == filter_reasons(Filter.count_reasons(rule, removed))
    assert rule.resolvable_nodes(removed).tolist() == Filter.resolvable_nodes(rule, removed).tolist()


def filter_reasons(tally: object) -> dict[tuple[str, object], int]:
    assert isinstance(tally, list)
    return {(render(reason), reason.rule): count for reason, count in tally}
