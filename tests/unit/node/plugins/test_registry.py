"""Plugin registry, socket scan and health cache, compared with plain models."""

from __future__ import annotations

import os
import socket as sockets_of
from contextlib import closing
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from plimsoll.node.plugins.health import (
    DEFAULT_SECONDS,
    HEALTHY,
    MAX_MESSAGE_BYTES,
    UNHEALTHY,
    UNKNOWN,
    UNKNOWN_HEALTH,
    HealthCache,
    HealthReport,
    HealthStatus,
    read_reports,
    truncate_message,
)
from plimsoll.node.plugins.registration import PluginTiming, retry_delay
from plimsoll.node.plugins.registry import Plugin, Registry
from plimsoll.node.plugins.sockets import MAX_DEPTH, MAX_ENTRIES, Socket, compare, scan
from plimsoll.protocols.messages import health_v1, health_v1alpha1
from tests.directories import short_directory

DRIVERS = ("a", "b")
ENDPOINTS = ("/x", "/y", "/z")


def plugin(driver: str, endpoint: str, rank: int) -> Plugin:
    return Plugin(driver, endpoint, "v1.DRAPlugin", "", rank, 0.0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(DRIVERS), st.sampled_from(ENDPOINTS), st.integers(0, 30)),
        st.tuples(st.just("remove"), st.sampled_from(DRIVERS), st.integers(0, 30)),
        st.tuples(st.just("connect"), st.sampled_from(DRIVERS), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("wait"), st.integers(0, 40)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_registry_equals_a_plain_list(steps: list[tuple[object, ...]]) -> None:
    """Compare with a list of all plugins that is searched for every question."""
    registry = Registry()
    plain: dict[int, list[object]] = {}  # rank -> driver, endpoint, connected
    since: dict[str, float] = {}  # driver -> when it was first seen without a connection
    notified: set[str] = set()
    now = 0.0
    for step in steps:
        match step:
            case ("add", str(driver), str(endpoint), int(rank)):
                if rank in plain:
                    continue  # ranks are given once
                double = any(entry[:2] == [driver, endpoint] for entry in plain.values())
                assert bool(registry.add(plugin(driver, endpoint, rank), now)) == double
                if not double:
                    plain[rank] = [driver, endpoint, False]
            case ("remove", str(driver), int(rank)):
                registry.remove(driver, rank, now)
                if plain.get(rank, [""])[0] == driver:
                    del plain[rank]
                    since.setdefault(driver, now)
            case ("connect", str(driver), int(rank), bool(connected)):
                entry = plain.get(rank, ["", "", connected])
                changed = entry[0] == driver and entry[2] != connected
                assert registry.set_connected(driver, rank, connected, now) == changed
                entry[2] = connected if changed else entry[2]
            case ("wait", int(seconds)):
                now += seconds
        due = []
        for driver in DRIVERS:
            own = {rank: entry for rank, entry in plain.items() if entry[0] == driver}
            linked = [rank for rank, entry in own.items() if entry[2]]
            chosen = registry.choose(driver)
            assert (chosen.rank if chosen else None) == max(linked, default=max(own, default=None))
            assert [found.rank for found in registry.of(driver)] == sorted(own, reverse=True)
            if linked:
                since.pop(driver, None)
                notified.discard(driver)
            elif own:
                since.setdefault(driver, now)
            if driver in notified and not own:
                notified.discard(driver)
                del since[driver]
            if driver not in notified and now - since.get(driver, now) >= 30:
                due.append(driver)
                notified.add(driver)
                if not own:
                    notified.discard(driver)
                    del since[driver]
        assert list(registry.gone(now, 30)) == due
        assert list(registry.gone(now, 30)) == []


def test_backoff_doubles_up_to_a_limit() -> None:
    waits = [retry_delay(failures, PluginTiming()) for failures in range(1, 12)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122, 122]
    assert retry_delay(10**9, PluginTiming()) == 122
    assert retry_delay(0, PluginTiming()) == 0.5


# -- sockets


def bind(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sockets_of.socket(sockets_of.AF_UNIX)) as server:
        server.bind(str(path))


def test_a_scan_finds_only_sockets() -> None:
    with short_directory() as directory:
        assert scan(directory / "missing") == {}
        for name in ("b.sock", "a.sock", "sub/c.sock", ".hidden", ".sub/d.sock", "sub/.e"):
            bind(directory / name)
        (directory / "file").write_text("")
        os.mkfifo(directory / "pipe")
        (directory / "link").symlink_to(directory / "a.sock")
        (directory / "directory").symlink_to(directory / "sub")
        (directory / "nowhere").symlink_to(directory / "nothing")
        (directory / "loop").symlink_to(directory / "loop")
        assert sorted(str(path.relative_to(directory)) for path in scan(directory)) == [
            "a.sock",
            "b.sock",
            "link",
            "sub/c.sock",
        ]


def test_a_scan_is_bounded() -> None:
    with short_directory() as directory:
        deep = directory
        for _ in range(MAX_DEPTH + 3):
            deep /= "d"
            bind(deep / "s")
        assert len(scan(directory)) == MAX_DEPTH
    with short_directory() as directory:
        for place in range(MAX_ENTRIES + 50):
            (directory / str(place)).touch()
        bind(directory / "sub" / "s")
        assert len(scan(directory)) <= 1


def test_a_recreated_socket_is_a_new_one_whatever_its_mode() -> None:
    with short_directory() as directory:
        bind(directory / "s")
        first = scan(directory)
        (directory / "s").chmod(0o600)
        assert compare(first, scan(directory)) == compare({}, {})
        (directory / "s").unlink()
        (directory / "hold").touch()  # so that the number of the inode is not used again
        bind(directory / "s")
        second = scan(directory)
        changes = compare(first, second)
        assert changes.gone == tuple(first.values())
        assert changes.added == tuple(second.values())


SEEN = st.dictionaries(
    st.sampled_from([Path("/a"), Path("/b"), Path("/c")]), st.tuples(st.integers(0, 3), st.integers(0, 2))
)


@given(SEEN, SEEN)
def test_changes_lead_from_one_scan_to_the_next(
    old: dict[Path, tuple[int, int]], new: dict[Path, tuple[int, int]]
) -> None:
    before = {path: Socket(made, path, 1, inode) for path, (made, inode) in old.items()}
    after = {path: Socket(made, path, 1, inode) for path, (made, inode) in new.items()}
    changes = compare(before, after)
    rebuilt = set(before.values()) - set(changes.gone) | set(changes.added)
    assert rebuilt == set(after.values())
    assert list(changes.added) == sorted(changes.added)
    assert not set(changes.gone) & set(changes.added)


# -- health

REPORTS = st.lists(
    st.builds(
        HealthReport,
        st.just("p"),
        st.sampled_from(["d1", "d2", "d3"]),
        st.builds(HealthStatus, st.sampled_from([HEALTHY, UNHEALTHY, UNKNOWN]), st.sampled_from(["", "hot"])),
        st.sampled_from([5.0, 30.0]),
    ),
    max_size=3,
    unique_by=lambda report: report.device,
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sampled_from([1, 2]), REPORTS),
        st.tuples(st.just("clear"), st.sampled_from([1, 2]), st.just([])),
        st.tuples(st.just("wait"), st.integers(1, 20), st.just([])),
    ),
    max_size=30,
)


_UNKNOWN = [HealthReport("p", "d1", UNKNOWN_HEALTH, 5.0)]


@given(EVENTS)
@example([("report", 1, [HealthReport("p", "d1", HealthStatus(HEALTHY), 5.0)]), ("report", 2, _UNKNOWN)])
@example(
    [
        ("report", 2, _UNKNOWN),
        ("report", 1, [HealthReport("p", "d1", HealthStatus(HEALTHY))]),
        ("wait", 6, []),
    ]
)
def test_health_is_the_newest_report_that_still_holds(
    events: list[tuple[str, int, list[HealthReport]]],
) -> None:
    """Compare with a log of all messages that is read from the end."""
    cache = HealthCache()
    reported: list[tuple[float, int, HealthReport]] = []
    now = 0.0
    devices = ("d1", "d2", "d3")

    def plain(device: str) -> HealthStatus:
        for own in (2, 1):
            for at, plugin_, report in reversed(reported):
                if plugin_ == own and report.device == device:
                    if at + report.seconds > now:
                        return report.health
                    break
        return UNKNOWN_HEALTH

    before = [UNKNOWN_HEALTH] * 3
    for kind, number, reports in events:
        changed = False
        if kind == "report":
            changed = cache.report(number, reports, now)
            reported += [(now, number, report) for report in reports]
        elif kind == "clear":
            changed = cache.clear(number)
            reported = [entry for entry in reported if entry[1] != number]
        else:
            now += number
            changed = cache.expire(now)
        after = [cache.get_health((2, 1), "p", device, now) for device in devices]
        assert after == [plain(device) for device in devices]
        assert changed or before == after  # no change without a report
        before = after
        assert not cache.expire(now)


def test_reports_of_both_versions_are_read() -> None:
    for messages in (health_v1, health_v1alpha1):
        message = messages.NodeWatchResourcesResponse()
        for name, health, seconds, text in (
            ("a", 1, 60, ""),
            ("b", 2, 0, "x" * 5000),
            ("c", 0, -5, "ä" * 600),
            ("d", 77, 2**62, ""),
            ("", 1, 0, ""),
            ("e" * 300, 1, 0, ""),
        ):
            entry = message.devices.add(health=health, health_check_timeout_seconds=seconds, message=text)
            entry.device.pool_name, entry.device.device_name = "p", name
        read = read_reports(message)
        assert [report.device for report in read] == ["a", "b", "c", "d"]
        assert [report.health.status for report in read] == [HEALTHY, UNHEALTHY, UNKNOWN, UNKNOWN]
        assert [report.seconds for report in read[:3]] == [60, DEFAULT_SECONDS, DEFAULT_SECONDS]
        assert read[3].seconds < 10**9
        assert read[1].health.message == "x" * 1021 + "..."


@given(st.text(max_size=3000))
def test_messages_are_truncated_between_characters(text: str) -> None:
    truncate = truncate_message(text.encode(errors="replace").decode())
    assert len(truncate.encode()) <= MAX_MESSAGE_BYTES
    if len(text.encode(errors="replace")) <= MAX_MESSAGE_BYTES:
        assert truncate == text.encode(errors="replace").decode()
    else:
        assert truncate.endswith("...")
