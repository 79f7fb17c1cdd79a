"""History on disk: it survives a restart, is bounded, and neither a corrupt nor a full file is fatal."""

from __future__ import annotations

import logging
import random
import sqlite3
from pathlib import Path

import pytest

from plimsoll.tools.dashboard.history.samples import Sample, take_sample
from plimsoll.tools.dashboard.history.store import HistoryStore
from plimsoll.tools.top.nodes import node_rows
from tests.dumps import big_cluster, make_cluster_state

NOW = 1_800_000_000


def sample(time: int, used: int = 5, nodes: int = 2) -> Sample:
    amounts = {"cpu": (8000, used, 2, 0, 0)}
    names = [f"n{number}" for number in range(nodes)]
    return Sample(time, 10, 3, {"cpu": (16000, 2 * used, 4, 0, 0)}, {"gpu": 7}, dict.fromkeys(names, amounts))


def test_samples_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.db"
    store = HistoryStore(path)
    for minute in range(3):
        store.add(sample(NOW + 60 * minute, used=minute))
    store.close()
    store = HistoryStore(path)
    found = store.series()
    assert found["times"] == [NOW, NOW + 60, NOW + 120]
    assert found["pending"] == [3, 3, 3]
    assert found["classes"] == {"gpu": [7, 7, 7]}
    assert found["resources"]["cpu"]["requests"] == [0, 2, 4]
    of_node = store.series("n1", since=NOW + 60)
    assert of_node["resources"]["cpu"] == {
        "line": [8000, 8000],
        "requests": [1, 2],
        "claims": [2, 2],
        "overhead": [0, 0],
        "uncounted": [0, 0],
    }
    assert store.series("unknown")["times"] == []
    store.close()


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    for before in (0, 0o644):
        path = tmp_path / f"history-{before}"
        if before:
            path.touch(before)
        store = HistoryStore(path)
        try:
            files = list(tmp_path.glob(f"{path.name}*"))
            assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
            assert len(files) == 3  # with the write-ahead log
        finally:
            store.close()


def test_old_samples_are_thinned() -> None:
    store = HistoryStore()
    for hour in range(100):
        store.add(sample(NOW + 900 * hour))
        store.add(sample(NOW + 900 * hour + 20))
    times = store.series()["times"]
    assert len(times) < 110
    assert times == store.series("n0")["times"]
    store.close()


def test_corrupt_file_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database" * 100)
    store = HistoryStore(path)
    store.add(sample(NOW))
    assert store.series()["times"] == [NOW]
    store.close()
    assert (tmp_path / "history.db.corrupt").exists()
    assert "is corrupt" in caplog.text
    store = HistoryStore(path)
    assert store.series()["times"] == [NOW]
    store.close()


def test_file_damaged_while_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.db"
    store = HistoryStore(path)
    store.add(sample(NOW))
    store.database.execute("DROP TABLE clusters")
    assert store.series()["times"] == []  # logged, not raised
    store.add(sample(NOW + 60))
    assert "history file" in caplog.text
    store.close()


def test_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = HistoryStore(tmp_path / "history.db")
    store.add(sample(NOW))
    pages = store.database.execute("PRAGMA page_count").fetchone()[0]
    store.database.execute(f"PRAGMA max_page_count={pages}")
    noise = random.Random(1)
    for minute in range(1, 4):
        big = {f"n{number}": {"cpu": (noise.getrandbits(60), 1, 1, 1, 1)} for number in range(2000)}
        store.add(Sample(NOW + 60 * minute, 1, 1, {}, {}, big))
    assert store.series()["times"] == [NOW]
    assert caplog.text.count("cannot be written") == 1  # once, not with every sample
    store.database.execute("PRAGMA max_page_count=1000000")
    store.add(sample(NOW + 300))
    assert store.series()["times"] == [NOW, NOW + 300]
    assert "is written again" in caplog.text
    store.close()


def test_file_that_cannot_be_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    store = HistoryStore(tmp_path / "file" / "history.db")
    store.add(sample(NOW))
    assert store.series()["times"] == [NOW]
    assert "kept in memory" in caplog.text
    store.close()


def test_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = HistoryStore(path, max_bytes=400_000)
    noise = random.Random(1)
    for minute in range(60):
        amounts = {f"n{number}": {"cpu": (noise.getrandbits(40), 1, 1, 1, 1)} for number in range(1000)}
        store.add(Sample(NOW + 60 * minute, 1, 1, {"cpu": (1, 1, 1, 1, 1)}, {}, amounts))
    assert len(store.series()["times"]) == 60  # of the cluster, all of them
    assert 0 < len(store.series("n1")["times"]) < 60
    store.close()
    with sqlite3.connect(path) as database:
        pages, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
        )
    database.close()
    assert pages * size < 800_000


def test_sample_of_a_cluster() -> None:
    state = make_cluster_state(big_cluster(3))
    rows = node_rows(state)
    found = take_sample(state, rows, NOW)
    assert (found.pods, found.pending) == (len(state.pods), len(state.pending))
    assert found.totals["cpu"] == (
        sum(row.row("cpu").line for row in rows),
        sum(row.row("cpu").requests for row in rows),
        sum(row.row("cpu").claims for row in rows),
        0,
        0,
    )
    assert set(found.nodes) == {row.name for row in rows}
    assert found.classes["gpu"] == 3 * 7
