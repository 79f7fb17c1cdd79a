"""Configuration files: valid fields, and errors for invalid ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common.config_file import LogConfig
from plimsoll.errors import ConfigError, InputError
from plimsoll.scheduler.process.configuration import (
    LeaderElection,
    SchedulerSettings,
    override,
    parse_settings,
    read_settings,
)
from plimsoll.scheduler.profile import Strategy
from plimsoll.scheduler.queue.backoff import QueueSettings

FULL = """
kind: SchedulerConfiguration
profiles:
- schedulerName: one
  strategy: MostAllocated
  weights: {DeviceWaste: 3}
- schedulerName: two
queue: {initialBackoff: 500ms, maxBackoff: 20s, flush: 1m}
featureGates: {DRAPrioritizedList: false}
wireForm: annotation
bindsInFlight: 7
stopTimeout: 2.5
generatedClaimGrace: 3
namedClaimGrace: 1s
leaderElection: {leaderElect: true, resourceName: l, resourceNamespace: ns, leaseDuration: 30s}
listen: "[::1]:1"
debug: true
log: {format: json, verbose: true}
dryRun: true
"""


def test_a_file_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(FULL)
    found = read_settings(path)
    one, two = found.profiles
    assert (one.name, one.strategy, one.weights["DeviceWaste"]) == ("one", Strategy.MOST_ALLOCATED, 3)
    assert (two.name, two.strategy) == ("two", Strategy.LEAST_ALLOCATED)
    assert found.queue == QueueSettings(initial_backoff_ms=500, max_backoff_ms=20_000, flush_ms=60_000)
    assert not found.gates.enabled("DRAPrioritizedList")
    assert found.election == LeaderElection(
        elect=True, namespace="ns", name="l", lease=30.0, renew=10.0, retry=2.0
    )
    assert (found.wire_form, found.binds, found.listen, found.debug) == ("annotation", 7, "[::1]:1", True)
    assert (found.stop_seconds, found.generated_seconds, found.named_seconds) == (2.5, 3.0, 1.0)
    assert (found.log, found.dry_run) == (LogConfig(format="json", verbose=True), True)


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    assert read_settings(path) == read_settings(None) == SchedulerSettings(listen="127.0.0.1:10259")
    assert [profile.name for profile in read_settings(None).profiles] == ["plimsoll"]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "c: must be a mapping of settings, not []"),
        ({"profils": []}, r"c: profils: unknown field; valid fields: kind, apiVersion, "),
        ({"kind": "Pod"}, "c: kind: must be one of SchedulerConfiguration, not 'Pod'"),
        ({"profiles": []}, "c: profiles: must be a list with at least one entry, not []"),
        ({"profiles": ["a"]}, "c: profiles[0]: must be a mapping of settings, not 'a'"),
        (
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "c: profiles[1].schedulerName: duplicate name 'a'; each profile needs its own name",
        ),
        (
            {"profiles": [{"schedulerName": "a b"}]},
            "c: profiles[0].schedulerName: invalid scheduler name 'a b'",
        ),
        (
            {"profiles": [{"strategy": "Best"}]},
            "c: profiles[0].strategy: must be one of LeastAllocated",
        ),
        (
            {"profiles": [{"wights": {}}]},
            "c: profiles[0].wights: unknown field; valid fields: scheduler",
        ),
        ({"queue": {"flush": "soon"}}, "c: queue.flush: must be a time such as 500ms, 15s or 5m, not 'soon'"),
        ({"queue": {"flush": True}}, "c: queue.flush: must be a time such as 500ms, 15s or 5m, not True"),
        ({"queue": {"flush": -1}}, "c: queue.flush: must be a time"),
        ({"queue": {"maxBackoff": "10ms"}}, "c: queue.maxBackoff: must not be shorter than initialBackoff"),
        (
            {"queue": {"x": 1}},
            "c: queue.x: unknown field; valid fields: initialBackoff, maxBackoff, fl",
        ),
        ({"featureGates": {"Nope": True}}, "c: featureGates: unknown feature gate 'Nope'"),
        ({"featureGates": {"Nope": "x"}}, "c: featureGates.Nope: must be true or false, not 'x'"),
        ({"wireForm": "1.35"}, "c: wireForm: must be one of auto, 1.36, 1.37, draft, annotation, not '1.35'"),
        ({"bindsInFlight": 0}, "c: bindsInFlight: must be a whole number from 1 to 10000, not 0"),
        ({"bindsInFlight": True}, "c: bindsInFlight: must be a whole number"),
        (
            {"leaderElection": {"leaseDuration": "5s"}},
            "c: leaderElection: leader election: the lease (5 s) mu",
        ),
        (
            {"listen": "nowhere"},
            "c: listen: 'nowhere' is not an address: give HOST:PORT, such as 127.0.0.1:10259",
        ),
        ({"listen": 5}, "c: listen: must be a string, not 5; write it in quotes"),
        ({"debug": "yes please"}, "c: debug: must be true or false, not 'yes please'"),
        ({"log": {"format": "xml"}}, "c: log.format: must be one of text, json, not 'xml'"),
    ],
)
def test_a_mistake_names_the_field_and_the_fix(tree: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(tree, "c")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("a: 1\n---\nb: 2", "must be one document, found 2"),
        (b"\xff\xfe\x00\xd8a", "c.yaml: "),
    ],
)
def test_an_invalid_file(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError, match=message):
        read_settings(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_settings(tmp_path / "nowhere")


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = """kind apiVersion profiles queue featureGates wireForm bindsInFlight stopTimeout leaderElection
    listen debug log dryRun generatedClaimGrace"""
FIELDS = st.sampled_from(sorted(NAMES.split()))


@given(st.dictionaries(FIELDS, TREES) | TREES)
def test_any_file_is_read_or_refused(tree: Any) -> None:
    with suppress(InputError):
        assert parse_settings(tree).profiles


def test_flags_override_the_file() -> None:
    start = parse_settings({"profiles": [{"schedulerName": "a", "strategy": "MostAllocated"}], "debug": True})
    same = override(start, listen=None, debug=None)
    assert same == start
    changed = override(
        start,
        names=("b", "a", "b"),
        leader_elect=True,
        lease="ns/l",
        gates="DRAPrioritizedList=false",
        binds=3,
    )
    assert [profile.name for profile in changed.profiles] == ["b", "a"]
    assert all(profile.strategy is Strategy.MOST_ALLOCATED for profile in changed.profiles)
    assert (changed.election.elect, changed.election.namespace, changed.election.name) == (True, "ns", "l")
    assert override(start, lease="l").election.namespace == "kube-system"
    assert not changed.gates.enabled("DRAPrioritizedList")
    assert (changed.binds, changed.debug) == (3, True)
    for mistake in ({"lease": "a/b/c"}, {"lease": "/x"}, {"listen": "x"}, {"names": ("",)}, {"gates": "x"}):
        with pytest.raises(InputError):
            override(start, **mistake)
