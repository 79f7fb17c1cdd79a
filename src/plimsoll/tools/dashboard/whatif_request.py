"""Parsing of what-if requests of the page.

A JSON object becomes a `WhatifPlan`; errors name the field. Manifests are text only: no files of this machine
are read. Sizes are bounded, and `Deadline` ends long work.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from plimsoll.errors import ApiError, InputError
from plimsoll.tools.whatif import WhatifPlan

_KEYS = {
    "add": str,
    "remove": list,
    "as": list,
    "cordon": list,
    "drain": list,
    "addNodes": int,
    "like": str,
    "policy": str,
    "replicas": int,
    "namespace": str,
    "preempt": bool,
    "exhaustive": bool,
    "taints": list,
    "taintDevices": list,
}
#: Limits of added nodes and pods, and of list lengths.
MOST_NODES, MOST_PODS, MOST_NAMES = 1000, 5000, 1000


def read_plan(tree: Any) -> WhatifPlan:
    """Return the plan of a request. Raise InputError that names the field."""
    if not isinstance(tree, Mapping):
        raise InputError("the request must be a JSON object")
    for key, value in tree.items():
        kind = _KEYS.get(key)
        if kind is None:
            raise InputError(f"{str(key)[:40]}: unknown field; valid fields: {', '.join(_KEYS)}")
        if value is not None and type(value) is not kind:
            raise InputError(f"{key}: must be {_NAMES[kind]}")
    more = tree.get("addNodes") or 0
    if not 0 <= more <= MOST_NODES:
        raise InputError(f"addNodes: must be from 0 to {MOST_NODES}")
    add = tree.get("add") or ""
    return WhatifPlan(
        policy=tree.get("policy") or "",
        remove=_texts(tree, "remove"),
        add_nodes=more,
        like=tree.get("like") or "",
        taints=tuple(_taint(text) for text in _texts(tree, "taints")),
        taint_devices=_texts(tree, "taintDevices"),
        cordon=_texts(tree, "cordon"),
        drain=_texts(tree, "drain"),
        add=(add + "\n",) if add.strip() else (),  # a trailing newline marks it as text
        replicas=tree.get("replicas"),
        most_pods=MOST_PODS,
        namespace=tree.get("namespace") or "default",
        preempt=tree.get("preempt") is not False,
        exhaustive=tree.get("exhaustive") is True,
        versus=_texts(tree, "as"),
    )


_NAMES = {str: "a string", list: "a list of strings", int: "an integer", bool: "a boolean"}


def _texts(tree: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = tree.get(key) or []
    if not all(isinstance(value, str) for value in values):
        raise InputError(f"{key}: must be a list of strings")
    if len(values) > MOST_NAMES:
        raise InputError(f"{key}: at most {MOST_NAMES} entries, not {len(values)}")
    return tuple(value.strip() for value in values if value.strip())


def _taint(text: str) -> tuple[str, str]:
    node, _, taint = text.partition(" ")
    if not taint.strip():
        raise InputError(f"taints: {text[:80]!r}: must be NODE KEY=VALUE:EFFECT")
    return node, taint.strip()


class Deadline:
    """Progress callback that raises when the time is up."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._seconds = seconds

    def __call__(self, what: str, done: int, whole: int) -> None:
        if time.monotonic() > self._until:
            text = f"timed out after {self._seconds:g} s ({what}, {done} so far): reduce the request"
            raise ApiError(503, "ServiceUnavailable", text)
