"""START HERE: a write on its way into storage.

Owns the pipeline of section 1 of the API semantics:

    decode -> default -> prepare (reset, drop, count) -> validate

`prepare` takes a `Write` and gives back a `Prepared`: the tree to store, the problems that forbid storing
it, and warnings. It is pure: the trees of the caller stay as they are, and the time comes with the write.
JSON that is not an object of its kind raises DecodeError (HTTP 400); an object that breaks a rule has
problems (HTTP 422).

What each endpoint resets, drops and checks is in `endpoints.py`. Kinds that are not there are taken by the
generic rules (`stored/generic.py`) where the write says what kind of kind they are (`Write.traits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Literal, TypeAlias

from plimsoll.api.gates import Gates
from plimsoll.api.meta import Wire
from plimsoll.apiserver.validation.claim_status_authorization import Caller
from plimsoll.apiserver.validation.decode import take_in
from plimsoll.apiserver.validation.defaults import fill_defaults
from plimsoll.apiserver.validation.field_errors import Problem
from plimsoll.apiserver.validation.generic_kinds.generic_strategy import Traits, check_object, prepare_object
from plimsoll.apiserver.validation.generic_kinds.kind_table import rules_of
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.strategies import ENDPOINTS
from plimsoll.apiserver.validation.timestamps import write_time
from plimsoll.apiserver.validation.write_context import Endpoint, Job
from plimsoll.errors import InputError

_ALL_ON = Gates.all_on()

#: DIFF: no more problems are looked for in one object; upstream finds them all, however many there are
#: (test_problems_are_told_up_to_a_limit).
PROBLEMS_MAX = 1000

Operation: TypeAlias = Literal["create", "update"]


@dataclass(frozen=True, slots=True)
class Write:
    """One request to write an object.

    `object` is the JSON tree as it came, name generated and metadata filled in by storage already; `old`
    is the stored one, for updates. `namespace_labels` are the labels of the object's namespace, None
    where it could not be read. Without a `caller` every part of a claim's status may be written. `traits`
    are for kinds that have no endpoint of their own. `old_settled` says that the stored object went through
    here when it was written, under the same rules: it is then taken as it is, which is quicker.
    """

    kind: str
    operation: Operation
    object: Any
    now: datetime
    old: Any = None
    subresource: str = ""
    gates: Gates = _ALL_ON
    namespace_labels: Mapping[str, str] | None = None
    caller: Caller | None = None
    traits: Traits | None = None
    old_settled: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tree as it would be stored, and why it may not be."""

    tree: Tree
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()


def settle(kind: str, tree: Any, view: type[Wire], now: str, gates: Gates = _ALL_ON) -> Tree:
    """A tree as the API reads it: canonical, of the right types (DecodeError if not), defaults filled in."""
    settled = take_in(tree, view)
    fill_defaults(kind, settled, now, gates)
    return settled


def prepare(write: Write) -> Prepared:
    """Take a write through the pipeline."""
    endpoint = ENDPOINTS.get((write.operation, write.kind, write.subresource))
    if endpoint is None:
        endpoint = _generic_endpoint(write)
    if (write.old is None) != (write.operation == "create"):
        raise InputError("an update needs the stored object, a create has none")
    creates, now = write.operation == "create", write_time(write.now)
    given, before = write.object, write.old
    if endpoint.inward is not None:
        given, before = endpoint.inward(given), endpoint.inward(before)
    elif endpoint.restores and write.old_settled and not creates:
        given = _without_restored(given, before, endpoint.restores)
    tree = settle(write.kind, given, endpoint.view, now, write.gates)
    old: Tree = {}
    if not creates:
        old = before if write.old_settled else settle(write.kind, before, endpoint.view, now, write.gates)
    api_version = str(write.object.get("apiVersion", ""))
    job = Job(
        endpoint.view,
        creates,
        tree,
        old,
        write.gates,
        now,
        write.namespace_labels,
        write.caller,
        api_version,
    )
    endpoint.prepare(job)
    job.finish()
    problems = tuple(islice(endpoint.check(job), PROBLEMS_MAX))
    warnings = tuple(islice(endpoint.warn(job), PROBLEMS_MAX))
    if endpoint.outward is not None and given is not write.object:
        return Prepared(endpoint.outward(job.tree), problems, warnings)
    return Prepared(job.tree, problems, warnings)


def _without_restored(given: Any, old: Tree, names: tuple[str, ...]) -> Any:
    """The object without what is the very value that is stored, and will be again: nothing has to be read."""
    if not isinstance(given, dict):
        return given
    same = [name for name in names if name in given and given[name] is old.get(name)]
    return {name: value for name, value in given.items() if name not in same} if same else given


def prepare_generic(write: Write, *, namespaced: bool, has_status: bool) -> Prepared:
    """Take a write of a kind without rules of its own through the pipeline."""
    return prepare(replace(write, traits=Traits(namespaced, has_status)))


def _generic_endpoint(write: Write) -> Endpoint:
    traits = write.traits
    if traits is None:
        what = f"{write.kind}/{write.subresource}" if write.subresource else write.kind
        raise InputError(f"there is no {write.operation} of {what}")
    return Endpoint(
        rules_of(write.kind).view,
        lambda job: prepare_object(job, write.kind, write.subresource, traits),
        lambda job: check_object(job, write.kind, write.subresource, traits),
    )
