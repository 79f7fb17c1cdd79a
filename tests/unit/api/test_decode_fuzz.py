"""Decoder fuzzing: an error or an object, in bounded time, never a crash."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.errors import DecodeError
from tests.unit.api.trees import VIEWS

SEED = json.dumps(
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s", "labels": {"a": "b"}, "generation": 3, "creationTimestamp": None},
        "spec": {
            "driver": "d.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "x", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": 1.5, "memory": "1e3"}}}],
            "requests": [{"name": "r", "exactly": {"deviceClassName": "c", "count": 2}}],
        },
        "status": {
            "allocation": {"devices": {"results": [{"request": "r", "shareID": "u"}]}},
            "phase": "Running",
        },
    }
).encode()
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"null",
    b"true",
    b"1e999",
    b"-",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
]
PIECES += [b"0" * 40, b'"spec":', b'"devices":[[[[', b"1Gi", b"99999999999999999999", b"\n", b"9" * 2000]


def damage(chance: random.Random, raw: bytes) -> bytes:
    """Cut, swap and insert bytes."""
    text = bytearray(raw)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(text) + 1)
        width = chance.choice([0, 0, 1, 2, 20])
        text[place : place + width] = chance.choice([*PIECES, raw[chance.randrange(len(raw)) :][:30], b""])
    return bytes(text)


def fuzz(seconds: float, seed: int) -> int:
    """Decode damaged objects until the time is up; returns their number."""
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        for _ in range(200):
            view: Any = chance.choice(VIEWS)
            start = time.process_time()
            try:
                decoded = codec.decode(damage(chance, SEED), view)
                assert codec.decode(codec.encode(decoded), view) == decoded
            except DecodeError as error:
                assert 0 < len(str(error)) < 2000  # noqa: PT017 - success is fine too
            assert time.process_time() - start < 30
            tried += 1
    return tried


def test_damaged_json_is_decoded_or_refused() -> None:
    assert fuzz(1, seed=1)


@pytest.mark.slow
def test_damaged_json_for_a_minute() -> None:
    assert fuzz(60, seed=2) > 1000
