"""Rules of ResourceClaims: an immutable spec, and an allocation that is set once and removed as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
)
from plimsoll.apiserver.validation.resource_claim_status import drop_deallocated_status_devices

Tree = dict[str, Any]

_STATUS = FieldPath("status")
_RESERVED = _STATUS.child("reservedFor")
_CONSUMERS_MAX = 256
_IMMUTABLE = "field is immutable"


def find_spec_problems(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    if old is not None:
        if tree.get("spec") is not old.get("spec") and tree.get("spec") != old.get("spec"):
            yield invalid(FieldPath("spec"), None, _IMMUTABLE)
        return
    path = FieldPath("spec").child("devices", "requests")
    for index, request in enumerate(_requests(tree)):
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if one is not None and not one.get("deviceClassName"):
                yield required(path.index(index).child("exactly", "deviceClassName"))


def prepare_status(tree: Tree, old: Tree) -> None:
    """Drop the device statuses whose devices are no longer allocated."""
    tree["status"] = dict(tree.get("status") or {})
    drop_deallocated_status_devices(tree, old)


def find_status_problems(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    assert old is not None
    status, before = tree.get("status") or {}, old.get("status") or {}
    allocation = status.get("allocation")
    yield from _reservation_problems(status, before, is_deleted="deletionTimestamp" in tree["metadata"])
    yield from _device_problems(status.get("devices") or (), allocation)
    known = before.get("allocation")
    if allocation is None or allocation is known:
        return
    if known is not None:
        if allocation != known:
            yield invalid(_STATUS.child("allocation"), None, f"{_IMMUTABLE}, only removed as a whole")
        return
    path, names = _STATUS.child("allocation", "devices", "results"), _request_names(tree)
    for index, result in enumerate(_results(allocation)):
        if result.get("request") not in names:
            at = path.index(index).child("request")
            yield invalid(at, result.get("request"), "must be the name of a request")
        for name in ("driver", "pool", "device"):
            if not result.get(name):
                yield required(path.index(index).child(name))


def _reservation_problems(status: Tree, before: Tree, *, is_deleted: bool) -> Iterator[FieldError]:
    path, consumers = _RESERVED, status.get("reservedFor") or ()
    if consumers is before.get("reservedFor") and "allocation" in status:
        return
    if len(consumers) > _CONSUMERS_MAX:
        yield too_many(path, len(consumers), _CONSUMERS_MAX)
    seen = set()
    for index, consumer in enumerate(consumers):
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                yield required(path.index(index).child(name))
        if (uid := consumer.get("uid")) in seen:
            yield duplicate(path.index(index), uid)
        seen.add(uid)
    if consumers and not status.get("allocation"):
        yield forbidden(path, "a claim can be reserved only while it is allocated")
    elif is_deleted and any(each not in (before.get("reservedFor") or ()) for each in consumers):
        yield forbidden(path, "no consumer can be added while the claim is being deleted")


def _device_problems(devices: Any, allocation: Tree | None) -> Iterator[FieldError]:
    if not devices:
        return
    allocated = {_device_key(result) for result in _results(allocation)}
    seen = set()
    for index, device in enumerate(devices):
        key, at = _device_key(device), _STATUS.child("devices").index(index)
        if key in seen:
            yield duplicate(at, "/".join(map(str, key)))
        if key not in allocated:
            yield invalid(at, "/".join(map(str, key)), "must be a device of the allocation")
        seen.add(key)


def _device_key(device: Tree) -> tuple[Any, ...]:
    return device.get("driver"), device.get("pool"), device.get("device"), device.get("shareID") or ""


def _results(allocation: Tree | None) -> list[Tree]:
    return ((allocation or {}).get("devices") or {}).get("results") or []


def _requests(tree: Tree) -> list[Tree]:
    return ((tree.get("spec") or {}).get("devices") or {}).get("requests") or []


def _request_names(tree: Tree) -> set[str]:
    """Return the names that results can have: of requests and of their alternatives."""
    names = set()
    for request in _requests(tree):
        names.add(request["name"])
        names |= {f"{request['name']}/{each['name']}" for each in request.get("firstAvailable") or ()}
    return names
