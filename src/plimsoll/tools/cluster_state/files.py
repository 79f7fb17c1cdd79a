"""Reading a cluster from files: output of `kubectl get -o yaml|json` and handwritten manifests.

Objects without a UID are given the defaults of the API; one with a UID came from an API server, and is taken
as it is unless it lacks a default. Kinds that no tool uses are skipped. JSON is decoded from bytes to typed
objects in one step; YAML is read item by item (`common/yaml_documents.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api import resource_versions as versions
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.validation.write import decode_with_defaults
from plimsoll.common.gc_pause import without_collection
from plimsoll.common.input_limits import Bounds, check_density, default_bounds
from plimsoll.errors import DecodeError, InputError
from plimsoll.tools.cluster_state.api_defaults import lacks_defaults, set_priorities
from plimsoll.tools.cluster_state.ignored_fields import find_ignored_fields, find_ignored_fields_in_json
from plimsoll.tools.cluster_state.kinds import BY_NAME, KINDS, StateKind
from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects, read_sources
from plimsoll.tools.cluster_state.missing_kinds import find_gaps
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap
from plimsoll.tools.cluster_state.progress import TICK_EVERY, ProgressCallback, no_progress
from plimsoll.tools.cluster_state.related import is_related
from plimsoll.tools.cluster_state.shared_parts import SharedParts

_MB = 1_000_000
T = TypeVar("T", bound=Any)


def read_files(paths: Iterable[str], tick: ProgressCallback = no_progress) -> ClusterObjects:
    """Read the objects of files, directories, archives, or standard input (`-`)."""
    paths = list(paths)
    bounds = default_bounds()
    reader = _Reader(format_datetime(datetime.now(UTC)), tick, bounds)
    with without_collection():
        for source, text in read_sources(paths, bounds):
            reader.read(text, source)
    reader.finish(", ".join("standard input" if path == "-" else str(path) for path in paths))
    return reader.objects


class _Reader:
    def __init__(self, timestamp: str, tick: ProgressCallback, bounds: Bounds) -> None:
        self.objects = ClusterObjects()
        self._bounds = bounds
        self._timestamp = timestamp
        self._tick = tick
        self._seen = 0
        self._repeated: dict[str, list[str]] = {}
        self._lost: Counter[tuple[str, str]] = Counter()
        self._parts = SharedParts()

    def read(self, text: bytes, source: str) -> None:
        if not text or text.isspace():
            raise InputError(f"{source}: file is empty")
        if text[:200].lstrip().startswith(b"{"):
            check_density(text, source, self._bounds)
        items = _json_items(text)
        if items is not None:
            for number, raw, head in items:
                self._count()
                self._add_raw(raw, head, source, text, f", items[{number}]")
            return
        size = len(text)
        reported = -1

        def report_bytes(done: int) -> None:
            nonlocal reported
            if done // _MB != reported:
                reported = done // _MB
                self._tick(f"reading {source}, MB", reported, -(-size // _MB))

        for found in parse_objects(text, source, report_bytes, self._bounds):
            self._seen += 1
            self._add_tree(found)

    def _count(self) -> None:
        self._seen += 1
        if self._seen % TICK_EVERY == 0:
            self._tick("reading objects", self._seen, 0)

    # -- one object

    def _add_tree(self, found: ParsedObject) -> None:
        self.objects.related.add(found.tree)
        kind = _kind_of(found.kind, found.tree.get("apiVersion"))
        if kind is not None:
            self._store(kind, _decode_parsed(found, kind, self._timestamp, self._parts))
            self.objects.set_ignored_fields(found.name, find_ignored_fields(kind, found.tree))

    def _add_raw(self, raw: msgspec.Raw, head: _Header, source: str, text: bytes, place: str) -> None:
        if is_related(head.kind, head.api_version):
            tree = {**codec.decode_tree(raw), "apiVersion": head.api_version, "kind": head.kind}
            self.objects.related.add(tree)
        kind = _kind_of(head.kind, head.api_version)
        if kind is None:
            return
        try:
            if head.metadata.uid and (not kind.versioned or _same_shape(head.api_version)):
                thing = require_name(self._parts.decode(raw, kind.view))
                if not lacks_defaults(thing):
                    self._store(kind, thing)
                    ignored = find_ignored_fields_in_json(kind, raw, head.api_version)
                    self.objects.set_ignored_fields(head.metadata.name, ignored)
                    return
            given = {**codec.decode_tree(raw), "apiVersion": head.api_version, "kind": head.kind}
            self._store(kind, _read_tree(given, kind, self._timestamp, self._parts))
            self.objects.set_ignored_fields(head.metadata.name, find_ignored_fields(kind, given))
        except DecodeError as error:
            line = text.count(b"\n", 0, max(text.find(raw), 0)) + 1
            where = f"{source}, document 1, line {line}{place}"
            who = f"{head.kind} {head.metadata.name}".rstrip()
            raise DecodeError(f"{where}: {who}: {error}") from None

    def _store(self, kind: StateKind, thing: Any) -> None:
        if isinstance(thing, versions.Unconvertible):
            self._lost[kind.endpoint.plural, thing.why] += 1
            return
        old = self.objects.find(kind.view, thing.metadata.namespace, thing.metadata.name)
        if old is not None and old != thing:
            full = "/".join(filter(None, thing.metadata.key))
            self._repeated.setdefault(kind.endpoint.plural, []).append(full)
        self.objects.set(thing)

    # -- all of them

    def finish(self, origin: str) -> None:
        """Record gaps for missing or repeated objects. Raise InputError if nothing was read."""
        if not self.objects and not self._lost:
            known = ", ".join(kind.endpoint.kind for kind in KINDS if kind.needed)
            raise InputError(
                f"none of the {self._seen} objects in {origin} is a {known} or another kind that is read"
                if self._seen
                else f"no objects found in {origin}"
            )
        for plural, names in self._repeated.items():
            what = f"{names[0]} is" if len(names) == 1 else f"{len(names)} ({names[0]}, ...) are"
            why = f"{what} given more than once with differences; the last one is used"
            self.objects.gaps.append(Gap(plural, why, whole=False))
        for (plural, why), number in self._lost.items():
            self.objects.gaps.append(Gap(plural, f"{number} skipped: {why}", whole=False))
        set_priorities(self.objects)
        self.objects.gaps += _assign_unique_uids(self.objects)
        self.objects.gaps += find_gaps(self.objects, origin)


def _assign_unique_uids(objects: ClusterObjects) -> Iterator[Gap]:
    """Give objects that share a UID, such as handmade copies, unique ones: ledgers key objects by UID."""
    kinds: tuple[tuple[str, type[Any]], ...] = (("pods", Pod), ("resourceclaims", ResourceClaim))
    for plural, kind in kinds:
        known: set[str] = set()
        copies: list[str] = []
        for thing in objects.all(kind):
            meta = thing.metadata
            if meta.uid and meta.uid in known:
                full = meta.full_name
                objects.set(replace(thing, metadata=replace(meta, uid=f"{meta.uid}/{full}")))
                copies.append(full)
            known.add(meta.uid)
        if copies:
            what = f"{copies[0]} has" if len(copies) == 1 else f"{len(copies)} ({copies[0]}, ...) have"
            yield Gap(
                plural, f"{what} the same UID as another object; each is counted separately", whole=False
            )


# -- JSON, from bytes


class _Meta(msgspec.Struct, gc=False):
    uid: str = ""
    name: str = ""


class _Header(msgspec.Struct, rename={"api_version": "apiVersion"}):
    kind: str = ""
    api_version: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _ListEnvelope(msgspec.Struct, rename={"api_version": "apiVersion"}):
    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


_headers = msgspec.json.Decoder(_Header)
_envelopes = msgspec.json.Decoder(_ListEnvelope)
Item = tuple[int, msgspec.Raw, _Header]


def _json_items(text: bytes) -> Iterator[Item] | None:
    """Iterate over the undecoded items of one JSON list with their headers; None if the text is not such a
    list.
    """
    if not text[:200].lstrip().startswith(b"{"):
        return None
    try:
        envelope = _envelopes.decode(text)
        if not envelope.kind.endswith("List") or envelope.items is None:
            return None
        # Headers are decoded twice, not kept: with many small items they would take most of the memory.
        for _, _, head in _read_headers(envelope):
            if not head.kind or head.kind.endswith("List"):
                return None
        return _read_headers(envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # the slow path reports the error


def _read_headers(envelope: _ListEnvelope) -> Iterator[Item]:
    for number, raw in enumerate(envelope.items or ()):
        head = _headers.decode(raw)
        if not head.kind:
            head.kind = envelope.kind.removesuffix("List")
            head.api_version = head.api_version or envelope.api_version
        yield number, raw, head


def _same_shape(api_version: str) -> bool:
    return api_version.rpartition("/")[2] in versions.SAME


# -- trees


def _kind_of(name: str, api_version: Any) -> StateKind | None:
    kind = BY_NAME.get(name)
    if kind is None or not isinstance(api_version, str):
        return None
    return kind if api_version.rpartition("/")[0] == kind.endpoint.group else None


def _read_tree(
    given: Any, kind: StateKind, timestamp: str, parts: SharedParts
) -> Any | versions.Unconvertible:
    tree = versions.to_v1(given)
    if isinstance(tree, versions.Unconvertible):
        return tree
    metadata = tree.get("metadata")
    if isinstance(metadata, dict) and metadata.get("uid"):
        thing = require_name(parts.convert(tree, kind.view))
        if not lacks_defaults(thing):
            return thing
    tree = decode_with_defaults(kind.endpoint.kind, tree, kind.view, timestamp)
    if not isinstance(tree.get("metadata"), dict):
        raise DecodeError("must not be empty", "metadata.name")
    if kind.endpoint.namespaced and not tree["metadata"].get("namespace"):
        tree["metadata"]["namespace"] = "default"
    if kind.view is ResourceClaim and not tree["metadata"].get("uid"):
        # Holders of devices are identified by UID, which handwritten claims do not have.
        meta = tree["metadata"]
        meta["uid"] = f"{meta['namespace']}/{meta.get('name', '')}"
    return require_name(codec.convert(tree, kind.view))


def require_name(thing: T) -> T:
    """Return the object. Raise DecodeError if it has no name."""
    if not thing.metadata.name:
        raise DecodeError("must not be empty", "metadata.name")
    return thing


def _decode_parsed(
    found: ParsedObject, kind: StateKind, timestamp: str, parts: SharedParts
) -> Any | versions.Unconvertible:
    try:
        return _read_tree(found.tree, kind, timestamp, parts)
    except DecodeError as error:
        who = f"{found.kind} {found.name}".rstrip()
        raise DecodeError(f"{found.where}: {who}: {error}") from None


def decode_object(found: ParsedObject, timestamp: str) -> Any | None:
    """Decode an object of a kind the tools read, else return None. Raise DecodeError with its location."""
    kind = _kind_of(found.kind, found.tree.get("apiVersion"))
    if kind is None:
        return None
    thing = _decode_parsed(found, kind, timestamp, SharedParts())
    if isinstance(thing, versions.Unconvertible):
        raise DecodeError(f"{found.where}: {found.kind} {found.name}: {thing.why}")
    return thing
