"""Manifests as the objects a scheduler would see.

Reads text, files, trees and objects. Deployments, StatefulSets, ReplicaSets, Jobs, ReplicationControllers and
CronJobs become the pods their controllers would create; a bare pod may be multiplied. Names and UIDs are
derived from the manifest, so results are reproducible. Kinds that do not affect scheduling are listed in
`passed_by`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeAlias

from msgspec.structs import replace as with_fields

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.meta import Wire
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.storage import PersistentVolumeClaim
from plimsoll.errors import DecodeError, InputError
from plimsoll.tools.cluster_state.files import decode_object
from plimsoll.tools.cluster_state.kinds import BY_NAME
from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects, read_objects

#: YAML or JSON text, a file or directory (a Path), an object as a tree, or a decoded object.
Manifest: TypeAlias = "str | Path | Mapping[str, Any] | Wire"
#: Creation time of everything that is added; fixed, for reproducible results.
CREATION_TIME = "2000-01-01T00:00:00Z"
PODS_MAX = 100_000
#: Kind -> where its pod template is, and where the number of pods.
_WORKLOADS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Deployment": (("spec", "template"), ("spec", "replicas")),
    "ReplicaSet": (("spec", "template"), ("spec", "replicas")),
    "StatefulSet": (("spec", "template"), ("spec", "replicas")),
    "ReplicationController": (("spec", "template"), ("spec", "replicas")),
    "Job": (("spec", "template"), ("spec", "parallelism")),
    "CronJob": (("spec", "jobTemplate", "spec", "template"), ("spec", "jobTemplate", "spec", "parallelism")),
}
#: Objects between a workload and its pods, as in quotas.
_CREATED = {"Deployment": ("replicasets.apps",), "CronJob": ("jobs.batch",)}


@dataclass(frozen=True, slots=True)
class AddedWorkload:
    """Workload that is expanded to its pods, and the kinds of objects that it consists of, as in quotas."""

    kind: str
    namespace: str
    name: str
    resources: tuple[str, ...]


@dataclass(slots=True)
class ParsedManifests:
    """Objects to add in order, and ignored objects."""

    things: list[Any] = field(default_factory=list)
    passed_by: list[str] = field(default_factory=list)  #: KIND/NAME of objects that do not affect scheduling
    #: Claims of StatefulSets, to be created unless they exist.
    volume_claims: list[PersistentVolumeClaim] = field(default_factory=list)
    #: Workloads by the UID of the owner of their pods.
    workloads: dict[str, AddedWorkload] = field(default_factory=dict)
    most: int = PODS_MAX  #: pods; more are refused
    pods: int = 0

    def add_pod(self, pod: Pod) -> None:
        self.pods += 1
        if self.pods > self.most:
            raise InputError(f"more than {self.most} pods: reduce the number")
        self.things.append(pod)


def read_manifests(
    manifests: Iterable[Manifest],
    *,
    namespace: str = "default",
    replicas: int | None = None,
    most: int = PODS_MAX,
) -> ParsedManifests:
    """Read the objects of manifests; `replicas` applies to each pod and workload, `most` limits all pods."""
    if replicas is not None and not 1 <= replicas <= most:
        raise InputError(f"replicas: must be from 1 to {most}, not {replicas}")
    made = ParsedManifests(most=most)
    for manifest in manifests:
        if isinstance(manifest, Pod):
            for pod in _multiplied(manifest, replicas):
                made.add_pod(pod)
            continue
        if isinstance(manifest, Wire):
            made.things.append(manifest)
            continue
        is_empty = True
        for found in _parse(manifest):
            _add_object(found, namespace, replicas, made)
            is_empty = False
        if is_empty:
            name = str(manifest) if isinstance(manifest, Path) else "manifest"
            raise InputError(f"{'standard input' if manifest == '-' else name}: no objects found")
    return made


def _parse(manifest: str | Path | Mapping[str, Any]) -> Iterator[ParsedObject]:
    if isinstance(manifest, Mapping):
        yield ParsedObject(dict(manifest), "manifest", 1, 1)
    elif isinstance(manifest, Path) or manifest == "-":
        yield from read_objects([manifest])
    else:
        yield from parse_objects(dedent(manifest), "manifest")


def _add_object(found: ParsedObject, namespace: str, replicas: int | None, made: ParsedManifests) -> None:
    if found.kind in _WORKLOADS:
        workload = _read_workload(found, namespace)
        made.workloads[_uid_of(workload)] = workload
        for tree in _pods_of(found, namespace, replicas):
            if found.kind == "StatefulSet":
                made.volume_claims.extend(_claim_volumes(found, tree))
            made.add_pod(_read_pod(replace(found, tree=tree), namespace))
    elif found.kind == "Pod":
        for pod in _multiplied(_read_pod(found, namespace), replicas):
            made.add_pod(pod)
    else:
        found = replace(found, tree=_with_namespace(found, namespace))
        thing = decode_object(found, CREATION_TIME)
        if thing is None:
            made.passed_by.append(f"{found.kind}/{found.name}")
        else:
            _check_name(found)
            meta = thing.metadata
            made.things.append(_with_uid(thing, f"{found.kind}/{meta.full_name}"))


def _with_namespace(found: ParsedObject, namespace: str) -> dict[str, Any]:
    """Return the tree of a namespaced kind with its namespace set."""
    kind = BY_NAME.get(found.kind)
    metadata = found.tree.get("metadata")
    if kind is None or not kind.endpoint.namespaced or not isinstance(metadata, dict):
        return found.tree
    return {**found.tree, "metadata": {"namespace": namespace, **metadata}}


def _read_pod(found: ParsedObject, namespace: str) -> Pod:
    tree = deepcopy(found.tree)
    metadata = tree.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise InputError(f"{found.where}: metadata: must be a mapping")
    if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        metadata["name"] = metadata["generateName"] + "0"
    for field_name in ("uid", "resourceVersion", "deletionTimestamp"):
        metadata.pop(field_name, None)
    metadata.setdefault("namespace", namespace)
    tree.pop("status", None)  # it is scheduled as a new pod
    pod = decode_object(replace(found, tree=tree), CREATION_TIME)
    if pod is None:
        raise InputError(f"{found.where}: apiVersion: must be v1 for a Pod, not {tree.get('apiVersion')!r}")
    _check_name(replace(found, tree=tree))
    assert isinstance(pod, Pod)
    if not pod.spec.containers:
        raise InputError(
            f"{found.where}: Pod {pod.metadata.name}: spec.containers: at least one container is required"
        )
    for path, amount in _amounts(pod):
        if amount < ZERO:
            raise InputError(f"{found.where}: Pod {pod.metadata.name}: {path}: {amount} must not be negative")
    return _named(pod, pod.metadata.name)


def _amounts(pod: Pod) -> Iterator[tuple[str, Quantity]]:
    """Yield the requested amounts of a pod with their fields."""
    spec = pod.spec
    requests = [("spec.overhead", spec.overhead)]
    if spec.resources is not None:
        requests.append(("spec.resources.requests", spec.resources.requests))
    for group, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, each in enumerate(containers):
            requests.append((f"spec.{group}[{index}].resources.requests", each.resources.requests))
    for path, amounts in requests:
        for name, amount in amounts.items():
            yield f"{path}.{name}", amount


def _check_name(found: ParsedObject) -> None:
    if not found.name:
        raise InputError(f"{found.where}: {found.kind}: metadata.name: must not be empty")


def _multiplied(pod: Pod, replicas: int | None) -> Iterator[Pod]:
    if replicas is None:
        yield pod if pod.metadata.uid else _named(pod, pod.metadata.name)
    for number in range(replicas or 0):
        yield _named(pod, f"{pod.metadata.name}-{number}")


def _named(pod: Pod, name: str) -> Pod:
    uid = f"whatif/{pod.metadata.namespace}/{name}"
    return with_fields(pod, metadata=with_fields(pod.metadata, name=name, generate_name="", uid=uid))


def _with_uid(thing: Any, uid: str) -> Any:
    if thing.metadata.uid:
        return thing
    return with_fields(thing, metadata=with_fields(thing.metadata, uid=f"whatif/{uid}"))


# -- workloads


def _read_workload(found: ParsedObject, namespace: str) -> AddedWorkload:
    _check_name(found)
    group = str(found.tree.get("apiVersion", "")).rpartition("/")[0]
    own = f"{found.kind.lower()}s" + (f".{group}" if group else "")
    namespace = (found.tree.get("metadata") or {}).get("namespace") or namespace
    return AddedWorkload(found.kind, namespace, found.name, (own, *_CREATED.get(found.kind, ())))


def _uid_of(workload: AddedWorkload) -> str:
    return f"whatif/{workload.kind}/{workload.namespace}/{workload.name}"


def _pods_of(found: ParsedObject, namespace: str, replicas: int | None) -> Iterator[dict[str, Any]]:
    """Yield the pods a controller would create for a workload, as trees."""
    at_template, at_number = _WORKLOADS[found.kind]
    template = _at(found, at_template)
    if not isinstance(template, dict):
        raise _problem(found, f"{'.'.join(at_template)} is missing")
    number = replicas if replicas is not None else _at(found, at_number)
    if number is None:
        number = 1
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= PODS_MAX:
        where = ".".join(at_number)
        raise _problem(found, f"{where}: must be from 0 to {PODS_MAX}, not {number!r}")
    completions = _at(found, (*at_number[:-1], "completions"))
    if replicas is None and isinstance(completions, int) and completions < number:
        number = completions
    workload = _read_workload(found, namespace)
    namespace = workload.namespace
    owner = {"apiVersion": found.tree.get("apiVersion", ""), "kind": found.kind, "name": found.name}
    owner |= {"uid": _uid_of(workload), "controller": True}
    metadata = template.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise _problem(found, "template.metadata: must be a mapping")
    first = _at(found, ("spec", "ordinals", "start")) if found.kind == "StatefulSet" else None
    if first is not None and (not isinstance(first, int) or isinstance(first, bool) or first < 0):
        raise _problem(found, f"spec.ordinals.start: must be a number from 0, not {first!r}")
    for index in range(first or 0, (first or 0) + number):
        kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
        name = f"{found.name}-{index}"
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**kept, "name": name, "namespace": namespace, "ownerReferences": [owner]},
            "spec": template.get("spec") or {},
        }


def _claim_volumes(found: ParsedObject, pod: dict[str, Any]) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims that a StatefulSet creates for a pod, and make the pod use them."""
    templates = _at(found, ("spec", "volumeClaimTemplates")) or []
    meta, spec = pod["metadata"], pod["spec"]
    if not templates or not isinstance(spec, dict):
        return  # an unusable spec is reported when the pod is read
    if not isinstance(templates, list):
        raise _problem(found, "spec.volumeClaimTemplates: must be a list")
    volumes = spec.get("volumes") or []
    if not isinstance(volumes, list) or not all(isinstance(each, dict) for each in volumes):
        raise _problem(found, "template.spec.volumes: must be a list of objects")
    for index, template in enumerate(templates):
        where = f"spec.volumeClaimTemplates[{index}]"
        given = template.get("metadata") if isinstance(template, dict) else None
        name = given.get("name") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(name, str) or not name:
            raise _problem(found, f"{where}.metadata.name is missing")
        claim = f"{name}-{meta['name']}"
        source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        volumes = [*(each for each in volumes if each.get("name") != name), source]
        kept = {key: given[key] for key in ("labels", "annotations") if key in given}
        tree = {
            "metadata": {**kept, "name": claim, "namespace": meta["namespace"]},
            "spec": template.get("spec") or {},
        }
        try:
            made = convert(tree, PersistentVolumeClaim)
        except DecodeError as error:
            raise _problem(found, f"{where}: {error}") from None
        yield _with_uid(made, f"PersistentVolumeClaim/{made.metadata.full_name}")
    pod["spec"] = {**spec, "volumes": volumes}


def _problem(found: ParsedObject, text: str) -> InputError:
    return InputError(f"{found.where}: {found.kind} {found.name}: {text}")


def _at(found: ParsedObject, path: tuple[str, ...]) -> Any:
    tree: Any = found.tree
    for key in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree
