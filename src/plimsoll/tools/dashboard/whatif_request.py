"""Parsing of what-if requests of the page.

A JSON object becomes a `WhatifPlan`; errors name the field. Manifests are text only: no files of this machine
are read. Sizes are bounded, and `Deadline` ends long work.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, field
from msgspec.structs import asdict

from plimsoll.api.config import Config, convert_config
from plimsoll.errors import ApiError, InputError
from plimsoll.tools.whatif import WhatifPlan

#: Limits of added nodes and pods, and of list lengths.
MOST_NODES, MOST_PODS, MOST_NAMES = 1000, 5000, 1000


def _read_names(value: Any) -> tuple[str, ...]:
    names = convert_config(value, Annotated[tuple[str, ...], Meta(max_length=MOST_NAMES)])
    return tuple(name.strip() for name in names if name.strip())


def _read_taints(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple(_split_taint(text) for text in _read_names(value))


def _split_taint(text: str) -> tuple[str, str]:
    node, _, taint = text.partition(" ")
    if not taint.strip():
        raise InputError(f"{text[:80]!r}: must be NODE KEY=VALUE:EFFECT")
    return node, taint.strip()


_Names: TypeAlias = Annotated[tuple[str, ...], _read_names]


class _WhatifRequest(Config, frozen=True, kw_only=True):
    add: str = ""
    remove: _Names = ()
    versus: _Names = field(default=(), name="as")
    cordon: _Names = ()
    drain: _Names = ()
    add_nodes: Annotated[int, Meta(ge=0, le=MOST_NODES)] = 0
    like: str = ""
    policy: str = ""
    replicas: int | None = None
    namespace: str = ""
    preempt: bool = True
    exhaustive: bool = False
    taints: Annotated[tuple[tuple[str, str], ...], _read_taints] = ()
    taint_devices: _Names = ()


def read_plan(tree: Any) -> WhatifPlan:
    """Return the plan of a request. Raise InputError that names the field."""
    if not isinstance(tree, Mapping):
        raise InputError("the request must be a JSON object")
    given = asdict(convert_config(tree, _WhatifRequest))
    given["namespace"] = given["namespace"] or "default"
    given["add"] = (given["add"] + "\n",) if given["add"].strip() else ()  # a newline marks it as text
    return WhatifPlan(**given, most_pods=MOST_PODS)


class Deadline:
    """Progress callback that raises when the time is up."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._seconds = seconds

    def __call__(self, what: str, done: int, whole: int) -> None:
        if time.monotonic() > self._until:
            text = f"timed out after {self._seconds:g} s ({what}, {done} so far): reduce the request"
            raise ApiError(503, "ServiceUnavailable", text)
