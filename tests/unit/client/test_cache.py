"""Changes between listings, compared with a plain dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client import WatchEvent
from plimsoll.client.cache import Cache, CacheChange, is_older

Objects = dict[str, tuple[str, int]]


def raw(name: str, uid: str, revision: int) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(revision)}
    return json.dumps({"metadata": metadata}).encode()


def read(text: bytes) -> tuple[str, int]:
    metadata = json.loads(text)["metadata"]
    return metadata["uid"], int(metadata["resourceVersion"])


def fold(mirrored: Objects, changes: Iterable[CacheChange], cache: Cache[Any]) -> None:
    """Apply changes to a copy, checking that each continues the previous state."""
    for (_, name), old, new in changes:
        assert (None if old is None else cache.view(old)) == mirrored.get(name)
        if new is None:
            del mirrored[name]
        else:
            assert old is None or old.uid == new.uid
            mirrored[name] = cache.view(new)
        assert cache.get(("ns", name)) == mirrored.get(name)


names = st.sampled_from("abcd")
states = st.dictionaries(names, st.sampled_from(["u1", "u2"]))
steps = st.lists(states | st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), names))


@given(steps)
def test_changes_between_two_listings(script: list[Any]) -> None:
    cache: Cache[tuple[str, int]] = Cache(read)
    real: Objects = {}
    mirrored: Objects = {}
    revision = 1
    for step in script:
        revision += 1
        if isinstance(step, dict):  # a listing; what is the same as before keeps its revision
            real = {
                name: real[name] if name in real and real[name][0] == uid else (uid, revision)
                for name, uid in step.items()
            }
            fresh = cache.replace()
            items = [raw(name, uid, version) for name, (uid, version) in real.items()]
            for item in items:
                fresh.add([item], str(revision))
            fresh.add([], str(revision))
            fold(mirrored, fresh.commit(), cache)
        else:
            kind, name = step
            uid = real[name][0] if name in real else f"v{revision}"
            if kind == "DELETED":
                real.pop(name, None)
            elif kind != "BOOKMARK":
                real[name] = (uid, revision)
            fold(mirrored, cache.apply(WatchEvent(kind, raw(name, uid, revision), str(revision))), cache)
            fold(mirrored, cache.apply(WatchEvent(kind, raw(name, uid, revision), str(revision))), cache)
        assert mirrored == real
        assert {key[1]: cache.view(entry) for key, entry in cache.entries()} == real
        assert sorted(cache.items()) == sorted(real.values())
        assert cache.revision == str(revision)


def test_objects_without_a_name_are_skipped() -> None:
    problems: list[str] = []
    cache: Cache[Any] = Cache(read, report=problems.append)
    for text in (b"{}", b"[]", b'{"metadata":{"name":3}}', b'{"metadata":{}}'):
        assert list(cache.apply(WatchEvent("ADDED", text, "5"))) == []
        cache.revision = ""
    assert len(problems) == 4
    assert len(cache) == 0


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_revisions_are_compared_as_numbers(a: int, b: int) -> None:
    assert is_older(str(a), str(b)) == (a <= b)
    assert not is_older(f"x{a}", str(b))
    assert not is_older("", str(b))
