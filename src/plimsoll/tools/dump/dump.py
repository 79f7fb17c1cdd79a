"""`collect_objects` and `write_objects`: everything the tools read, as one `kind: List`.

Objects are written with all their fields, except those that only repeat others (`managedFields` and the
annotation of `kubectl apply`), by kind, namespace and name: two dumps of the same cluster are equal. JSON has
one object per line.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.storage import PersistentVolume
from plimsoll.api.workloads import SELECTING_KINDS, Service
from plimsoll.client.endpoints import CONTROLLER_REVISIONS, CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, EVENTS, JOBS
from plimsoll.common.yaml import dump_document
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.kinds import KINDS
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.cluster_state.raw_objects import ObjectQuery, read_raw_objects
from plimsoll.tools.cluster_state.related import event_subject, event_time
from plimsoll.tools.cluster_state.source import Source
from plimsoll.tools.columns import format_count

Tree = dict[str, Any]
JSON, YAML = "json", "yaml"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: Workloads that no tool reads, and that keep their pods in a copy of the cluster (`plimsoll up -f`).
_WORKLOADS = (DEPLOYMENTS, DAEMON_SETS, JOBS, CRON_JOBS, CONTROLLER_REVISIONS)
_COMPLETED = SELECTING_KINDS | {PersistentVolume}
#: Sources of a PersistentVolume.
_SOURCES = frozenset(
    {"hostPath", "csi", "gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "cinder", "azureFile"}
    | {"vsphereVolume", "portworxVolume"}
)
_ENDPOINTS = {
    endpoint.kind: endpoint for endpoint in (*(kind.endpoint for kind in KINDS), *_WORKLOADS, EVENTS)
}
#: Events of each object that are written, the latest.
MAX_EVENTS = 10
_ORDER = {kind: number for number, kind in enumerate(_ENDPOINTS)}


@dataclass(frozen=True, slots=True)
class DumpSummary:
    """Numbers of objects that were written, by plural name."""

    counts: dict[str, int]

    def __str__(self) -> str:
        total = format_count(sum(self.counts.values()), "object")
        parts = ", ".join(f"{plural} {count:,}" for plural, count in self.counts.items())
        return f"{total} ({parts})" if parts else total


def collect_objects(source: Source, tick: ProgressCallback = no_progress) -> tuple[list[Tree], list[Gap]]:
    """Read the objects of a source, and of its namespace only if it has one; also return the gaps.

    Raises InputError if nodes or pods cannot be read.
    """
    plurals = tuple(kind.endpoint.plural for kind in KINDS)
    needed = tuple(kind.endpoint.plural for kind in KINDS if kind.needed)
    query = ObjectQuery(plurals, needed=needed, narrow=True, more=(*_WORKLOADS, EVENTS))
    read = read_raw_objects(source, query, tick)
    found: dict[tuple[str, str, str], Tree] = {}
    for each in read.found:
        endpoint = _ENDPOINTS.get(each.kind)
        group = str(each.tree.get("apiVersion", "")).rpartition("/")[0]
        if endpoint is not None and (endpoint not in _WORKLOADS or endpoint.group == group):
            found[each.kind, each.namespace, each.name] = _shortened(each.tree)
    found = {key: tree for key, tree in found.items() if key[0] != EVENTS.kind} | _recent_events(found)
    if not found:
        raise InputError(f"no objects found in {source.origin}")
    return [found[key] for key in sorted(found, key=_place)], read.gaps


def _recent_events(found: Mapping[tuple[str, str, str], Tree]) -> dict[tuple[str, str, str], Tree]:
    """Return the latest events of the objects that were read."""
    events: dict[tuple[str, str, str], list[tuple[str, tuple[str, str, str]]]] = {}
    for key, tree in found.items():
        if key[0] == EVENTS.kind:
            subject = event_subject(tree)
            if subject in found:
                events.setdefault(subject, []).append((event_time(tree), key))
    latest = (key for each in events.values() for _, key in sorted(each)[-MAX_EVENTS:])
    return {key: found[key] for key in latest}


def _place(key: tuple[str, str, str]) -> tuple[int, str, str]:
    return _ORDER[key[0]], key[1], key[2]


def _shortened(tree: Tree) -> Tree:
    """Return an object without fields that repeat others."""
    made = dict(tree)
    metadata = made.get("metadata")
    if isinstance(metadata, dict):
        metadata = {key: value for key, value in metadata.items() if key != "managedFields"}
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
        made["metadata"] = metadata
    return made


def trees_of(objects: ClusterObjects) -> Iterator[Tree]:
    """Yield typed objects as trees, by kind, in their order, with stand-ins for required fields that types
    do not have.
    """
    pods = Counter(
        owner.uid for pod in objects.all(Pod) for owner in pod.metadata.owner_references if owner.controller
    )
    for kind in KINDS:
        head = {"apiVersion": kind.endpoint.api_version, "kind": kind.endpoint.kind}
        for thing in objects.all(kind.view):
            tree: Tree = {**codec.to_tree(thing), **head}
            spec: Tree = tree.setdefault("spec", {}) if kind.view in _COMPLETED else {}
            if kind.view is Service:
                spec["ports"] = [{"port": 80}]
            elif kind.view in SELECTING_KINDS:
                spec |= _workload_fields(spec.get("selector") or {}, pods[thing.metadata.uid])
            elif kind.view is PersistentVolume and not _SOURCES & spec.keys():
                spec["hostPath"] = {"path": "/"}
            yield tree


def _workload_fields(selector: Tree, replicas: int) -> Tree:
    labels = selector.get("matchLabels", {} if "matchExpressions" in selector else selector) or {
        "name": "main"
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main"}]}}
    return {"replicas": replicas, "template": template}


def write_objects(trees: Iterable[Tree], out: IO[bytes], form: str) -> DumpSummary:
    """Write objects as one list, in JSON or YAML."""
    counts: Counter[str] = Counter()
    for part in _json_parts(trees, counts) if form == JSON else _yaml_parts(trees, counts):
        out.write(part)
    return DumpSummary(dict(counts))


def _json_parts(trees: Iterable[Tree], counts: Counter[str]) -> Iterator[bytes]:
    yield b'{"apiVersion":"v1","kind":"List","items":['
    separator = b"\n"
    for tree in _counted(trees, counts):
        yield separator + codec.encode(tree)
        separator = b",\n"
    yield b"\n]}\n"


def _yaml_parts(trees: Iterable[Tree], counts: Counter[str]) -> Iterator[bytes]:
    head = b"apiVersion: v1\nkind: List\nitems:\n"
    for tree in _counted(trees, counts):
        yield head + dump_document([tree])
        head = b""
    if head:
        yield b"apiVersion: v1\nkind: List\nitems: []\n"


def _counted(trees: Iterable[Tree], counts: Counter[str]) -> Iterator[Tree]:
    for tree in trees:
        counts[_ENDPOINTS[tree["kind"]].plural] += 1
        yield tree


def format_of(path: Path) -> str:
    """Return the format that the name of a file asks for: YAML for .yaml and .yml, also compressed."""
    name = path.name.removesuffix(".gz")
    return YAML if name.endswith((".yaml", ".yml")) else JSON


def write_file(trees: Iterable[Tree], path: Path, form: str) -> DumpSummary:
    """Write objects to a file, compressed if its name ends with .gz. Raise InputError on failure."""
    try:
        with path.open("wb") as file:
            if path.suffix != ".gz":
                return write_objects(trees, file, form)
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                return write_objects(trees, cast(IO[bytes], packed), form)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
