"""Configuration of priority and fairness, read from the stored FlowSchemas and PriorityLevelConfigurations.

Objects that cannot be used are left out, as upstream does: levels whose spec is broken (an older version
stored them without validation), and FlowSchemas whose level does not exist. The mandatory objects are added
if they are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from plimsoll.api import codec
from plimsoll.apiserver.registry.flow_control_objects import (
    CATCH_ALL,
    EXEMPT,
    MANDATORY_FLOW_SCHEMAS,
    MANDATORY_LEVELS,
)
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.storage import Store
from plimsoll.common.shuffle_sharding import fits_entropy
from plimsoll.errors import DecodeError

FLOW_SCHEMAS = "flowschemas.flowcontrol.apiserver.k8s.io"
LEVELS = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
_FLOW_SCHEMA = view_of("flowcontrol.v1.FlowSchema")
_LEVEL = view_of("flowcontrol.v1.PriorityLevelConfiguration")


@dataclass(frozen=True, slots=True)
class PriorityLevel:
    """One PriorityLevelConfiguration. `queues` is 0 if requests beyond the limit are rejected at once;
    `borrowing_percent` is None if the level may borrow without limit.
    """

    name: str
    uid: str
    is_exempt: bool
    shares: int
    lendable_percent: int
    borrowing_percent: int | None = None
    queues: int = 0
    hand_size: int = 0
    queue_length: int = 0


@dataclass(frozen=True, slots=True)
class FlowSchema:
    """One FlowSchema; `rules` are views of those of the object."""

    name: str
    uid: str
    level: str
    precedence: int
    distinguisher: str
    rules: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class FlowConfiguration:
    """Levels by name, and FlowSchemas in the order of matching."""

    levels: dict[str, PriorityLevel]
    flow_schemas: tuple[FlowSchema, ...]


def read_configuration(store: Store) -> FlowConfiguration:
    """Read the configuration from the store."""
    levels: dict[str, PriorityLevel] = {}
    mandatory = [codec.convert(tree, _LEVEL) for tree in MANDATORY_LEVELS]
    for stored in (*mandatory, *_read(store, LEVELS, _LEVEL)):  # a stored one replaces the mandatory one
        level = _to_level(stored)
        if level is not None:
            levels[level.name] = level
    schemas = map(_to_flow_schema, _read(store, FLOW_SCHEMAS, _FLOW_SCHEMA))
    usable = [schema for schema in schemas if schema.level in levels]
    return FlowConfiguration(levels, tuple(_in_order(usable)))


def _read(store: Store, resource: str, view: View) -> Iterator[View]:
    for stored in store.list(resource).items:
        try:
            yield codec.decode(stored.raw, view)
        except DecodeError:
            continue


def _in_order(schemas: Iterable[FlowSchema]) -> Iterator[FlowSchema]:
    """Yield FlowSchemas by precedence and name; the mandatory ones first and last if they are missing."""
    ordered = sorted(schemas, key=lambda schema: (schema.precedence, schema.name))
    names = {schema.name for schema in ordered}
    exempt, catch_all = (
        _to_flow_schema(codec.convert(tree, _FLOW_SCHEMA)) for tree in MANDATORY_FLOW_SCHEMAS
    )
    if EXEMPT not in names:
        yield exempt
    yield from ordered
    if CATCH_ALL not in names:
        yield catch_all


def _to_level(stored: View) -> PriorityLevel | None:
    """Return the level of an object, or None if its spec is broken."""
    name, spec = stored.metadata.name, stored.spec
    if (spec.type == "Exempt") != (name == EXEMPT) or spec.type not in ("Exempt", "Limited"):
        return None
    settings = spec.exempt if spec.type == "Exempt" else spec.limited
    if settings is None:
        return None
    shares, lendable = settings.nominal_concurrency_shares or 0, settings.lendable_percent or 0
    if spec.type == "Exempt":
        return PriorityLevel(name, stored.metadata.uid, True, shares, lendable)
    borrowing = settings.borrowing_limit_percent
    level = PriorityLevel(name, stored.metadata.uid, False, shares, lendable, borrowing)
    response = settings.limit_response
    if response is not None and response.type == "Reject" and response.queuing is None:
        return level
    if response is not None and response.type == "Queue" and response.queuing is not None:
        return _with_queues(level, response.queuing)
    return None


def _with_queues(level: PriorityLevel, queuing: View) -> PriorityLevel | None:
    queues, hand, length = queuing.queues or 0, queuing.hand_size or 0, queuing.queue_length_limit or 0
    if not 0 < hand <= queues or length < 1 or not fits_entropy(queues, hand):
        return None
    return replace(level, queues=queues, hand_size=hand, queue_length=length)


def _to_flow_schema(stored: View) -> FlowSchema:
    spec = stored.spec
    return FlowSchema(
        stored.metadata.name,
        stored.metadata.uid,
        spec.priority_level_configuration.name,
        spec.matching_precedence or 0,
        spec.distinguisher_method.type if spec.distinguisher_method else "",
        spec.rules,
    )
