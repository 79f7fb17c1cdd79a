"""Recorded reports, and their layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InputError
from plimsoll.tools.amounts import format_short, percent, short_bytes
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState, Source, read_cluster_state
from plimsoll.tools.cluster_state.objects import Gap
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.report import Report
from plimsoll.tools.top.node_reports import NodesReport, bar_of
from plimsoll.tools.top.nodes import ResourceRow
from plimsoll.tools.top.table import Cell, Table
from plimsoll.tools.top.top import VIEWS, top
from tests.dumps import USECASES, big_cluster, make_cluster_state, usecase_dump
from tests.outputs import GOLDEN_DIR, check_json_fields, check_output

INPUT = GOLDEN_DIR.parents[1] / "examples" / "top" / "cluster.yaml"


@pytest.fixture(scope="module")
def cluster_state() -> ClusterState:
    return read_cluster_state(Source((str(INPUT),)))


def text_of(report: Report, paint: Paint = PLAIN, wide: bool = False) -> str:
    return "".join(f"{line}\n" for line in report.lines(paint, wide=wide))


@pytest.mark.parametrize("view", VIEWS)
def test_every_view(cluster_state: ClusterState, view: str) -> None:
    report = top(cluster_state, view)
    text = text_of(report)
    check_output(f"top/{view}.txt", text)
    check_output(f"top/{view}-wide.txt", text_of(report, wide=True))
    check_json_fields(f"top/{view}-fields.txt", report.as_json())
    # The states of kubectl are long: NotReady,SchedulingDisabled and allocated,reserved.
    terminal = text_of(report, Paint(width=110, is_terminal=True))
    assert all(len(line) <= 110 for line in terminal.splitlines())


def test_a_terminal_has_colours_and_bars(cluster_state: ClusterState) -> None:
    wide = text_of(top(cluster_state), Paint(color=True, width=120))
    check_output("top/nodes-colour.txt", wide)
    assert "=" in wide
    assert "\x1b[34m=" not in text_of(top(cluster_state), Paint(color=True, width=80))  # no room for bars


@pytest.mark.parametrize(
    ("what", "name"),
    [("nodes", "node-b"), ("pods", "train-0"), ("claims", "part"), ("claims", "kept"), ("devices", "node-b")],
)
def test_one_of_a_kind(cluster_state: ClusterState, what: str, name: str) -> None:
    report = top(cluster_state, what, name=name)
    check_output(f"top/{what}-{name}.txt", text_of(report))
    json.dumps(report.as_json())


def test_sorting(cluster_state: ClusterState) -> None:
    def order(sort: str) -> list[str]:
        report = top(cluster_state, sort=sort)
        assert isinstance(report, NodesReport)
        return [node.name for node in report.rows]

    assert order("name") == ["node-a", "node-b", "node-c"]
    assert order("free") == ["node-a", "node-c", "node-b"]  # past its line comes first, whatever is asked
    assert order("used") == ["node-a", "node-b", "node-c"]
    assert order("claims") == ["node-a", "node-b", "node-c"]


def test_a_limit_reports_the_hidden_rows(cluster_state: ClusterState) -> None:
    report = top(cluster_state, limit=1)
    lines = text_of(report).splitlines()
    assert lines[-1] == "2 more nodes not shown; --limit 0 shows all."
    assert report.as_json()["notShown"] == 2
    for view in ("pods", "claims", "devices", "pools", "namespaces"):
        assert "not shown; --limit 0" in text_of(top(cluster_state, view, limit=1))


def test_a_namespace(cluster_state: ClusterState) -> None:
    for view in ("pods", "claims", "namespaces", "devices"):
        text = text_of(top(cluster_state, view, "ml"))
        assert "ml" in text
    assert "web" not in text_of(top(cluster_state, "claims", "ml"))


@pytest.mark.parametrize(
    ("what", "name", "message"),
    [
        ("nodes", "node-x", "node node-x not found; did you mean node-"),
        ("pods", "train", "pod train not found"),
        ("pods", "done", "has terminated"),
        ("claims", "parts", "did you mean part"),
        ("devices", "zzz", "device zzz not found"),
        ("pools", "zzz", "pool zzz not found"),
        ("namespaces", "mll", "did you mean ml"),
    ],
)
def test_an_unknown_name(cluster_state: ClusterState, what: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        top(cluster_state, what, name=name)


def test_an_unknown_resource(cluster_state: ClusterState) -> None:
    with pytest.raises(InputError, match=r"did you mean memory\?"):
        top(cluster_state, resources=("memry",))
    rows = top(cluster_state, resources=("hugepages-1Gi",)).as_json()["totals"]
    assert [row["resource"] for row in rows] == ["hugepages-1Gi"]


def test_missing_kinds_are_not_shown_as_zero() -> None:
    refused = Gap("resourceclaims", 'User "team" cannot list', brief="may not be seen", refused=True)
    cluster_state = ClusterState(ClusterObjects(make_cluster_state(big_cluster(1)).objects, [refused]))
    with pytest.raises(InputError, match='resourceclaims cannot be shown: User "team" cannot list'):
        top(cluster_state, "claims")
    assert list(top(cluster_state, "nodes").lines(PLAIN))
    assert list(top(cluster_state, "devices").lines(PLAIN))


def test_an_empty_cluster_says_so() -> None:
    empty = ClusterState(ClusterObjects())
    for view in VIEWS:
        assert "No " in text_of(top(empty, view))


@pytest.mark.parametrize("name", USECASES)
def test_observed_use_cases(name: str) -> None:
    """Every view of every observed use case: no line too wide, and the rows add up."""
    seen = read_cluster_state(Source((str(usecase_dump(name)),)))
    for view in VIEWS:
        report = top(seen, view)
        assert list(report.lines(PLAIN))
        json.dumps(report.as_json())


def test_many_nodes_fit_the_screen() -> None:
    many = make_cluster_state(big_cluster(60))
    assert len(text_of(top(many, limit=10)).splitlines()) < 30


# -- layout


def test_columns_are_laid_out_before_they_are_painted() -> None:
    table = Table(("NAME", ">SIZE", "REST"))
    table.add(Cell("a", "red"), "1", "x")
    table.add("bbb", Cell("100", "bold"), "y")
    plain = list(table.lines(PLAIN))
    painted = list(table.lines(Paint(color=True)))
    assert plain == ["NAME  SIZE  REST", "a        1  x", "bbb    100  y"]
    assert [line.replace("\x1b[0m", "") for line in painted][2] == "bbb   \x1b[1m 100  y".replace(
        "\x1b[1m 100", " \x1b[1m100"
    )


def test_a_list_is_cut_to_the_screen() -> None:
    table = Table(("NAME", "HOLDERS"))
    table.add("a", [f"claim-{number}" for number in range(20)])
    (_, line) = table.lines(Paint(width=40, is_terminal=True))
    assert line == "a     claim-0, claim-1, +18 more"
    for whole in (table.lines(Paint(width=40, is_terminal=True), wide=True), table.lines(Paint(width=40))):
        assert [*whole][1].endswith("claim-19")


@given(st.integers(40, 200), st.integers(1, 60))
def test_names_that_are_shortened_still_differ(width: int, length: int) -> None:
    table = Table(("NODE", "=STATE", ">FREE", "POOL", "HELD BY"), optional=("POOL",))
    names = [f"{'rack-' * (length // 5)}tray-{number}" for number in range(12)]
    for name in names:
        table.add(name, "allocated", "1000", name, [f"team/{name}", "team/other"])
    lines = [line for line in table.lines(Paint(width=width, is_terminal=True)) if "Left out" not in line]
    assert max(map(len, lines)) <= width
    assert len({line.split()[0] for line in lines[1:]}) == len(names)
    assert all("allocated" in line and "1000" in line for line in lines[1:])
    assert ("POOL" in lines[0]) or width < len("rack-") * length + 60
    assert all(name in line for name, line in zip(names, [*table.lines(Paint(width=width))][1:], strict=True))


def test_optional_columns_are_left_out_and_named() -> None:
    table = Table(("NODE", "DRIVER", ">FREE"), optional=("DRIVER",))
    table.add("node-with-a-rather-long-name", "driver.example.com", "1")
    head, row, note = table.lines(Paint(width=30, is_terminal=True))
    assert head.split() == ["NODE", "FREE"]
    assert row.split()[1:] == ["1"]
    assert "DRIVER" in note
    assert len([*table.lines(Paint(width=200, is_terminal=True))]) == 2


@given(st.integers(-(2**62), 2**62))
def test_bytes_are_rounded(units: int) -> None:
    text = short_bytes(units)
    assert len(text) <= 9
    number = text.rstrip("EPTGMKi")
    power = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei").index(text.removeprefix(number))
    shown = abs(float(number)) * 1024**power
    assert shown <= abs(units) * (1 + 1e-9)
    assert shown >= abs(units) * 0.9 - 1


def test_cores_are_exact() -> None:
    assert [format_short("cpu", each) for each in (0, 250, 1000, 1234, -1750)] == [
        "0", "0.25", "1", "1.234", "-1.75",
    ]  # fmt: skip
    assert format_short("example.com/gpu", 3) == "3"
    assert [percent(3, 4), percent(0, 0), percent(1, 0), percent(-1, 4)] == ["75%", "-", "over", "-"]


@given(st.tuples(*[st.integers(0, 100)] * 4))
def test_a_bar_is_always_as_long(parts: tuple[int, int, int, int]) -> None:
    line, requests, claims, overhead = parts
    row = ResourceRow("cpu", line, requests, claims, overhead, line - requests - claims - overhead)
    bar = bar_of(row)
    assert len(bar) == 10
    assert bar == "".join(sorted(bar, key="=#+.".index))
    if row.used and row.used >= line:
        assert "." not in bar


def test_the_input_is_there() -> None:
    assert Path(INPUT).exists()


def test_device_classes_are_searched_only_where_they_are_shown(
    cluster_state: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []

    def free_by_class(cluster_state: ClusterState) -> dict[str, dict[str, int]]:
        searched.append(cluster_state)
        return {}

    monkeypatch.setattr("plimsoll.tools.top.top.free_by_class", free_by_class)
    report = top(cluster_state, "nodes")
    assert list(report.lines(PLAIN))
    assert not searched
    assert list(report.lines(PLAIN, wide=True))
    assert report.as_json()
    assert searched == [cluster_state]


def test_the_progress_of_the_ledgers_is_reported() -> None:
    state = make_cluster_state(big_cluster(100, pods_per_node=4))
    reports: list[tuple[str, int, int]] = []
    state.compute_ledgers(lambda *report: reports.append(report))
    whole = len(state.objects)
    assert reports == [("computing the ledgers", done, whole) for done in range(0, whole, 500)]
    assert len(reports) > 1
    assert len(state.snapshot) == 100
    state.compute_ledgers(lambda *report: pytest.fail("the ledgers are known"))
