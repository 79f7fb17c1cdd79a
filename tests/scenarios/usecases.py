"""Replay of a recorded use case on a cluster over HTTP, and its differences.

A story is a directory with `input.yaml` (the objects that were sent, in order) and `result.yaml` (`steps`:
what was done and what came of it; then the pods, claims and events at the end). Steps that say `create`,
`wait` and `delete` are repeated as they stand; anything else that was done or noted down is in `NOTES`, in
our own words. What comes out has the same form as what was recorded, with everything taken out that chance
decides: generated names, ids and times.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plimsoll.errors import ApiError
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE, wait_until

Tree = dict[str, Any]
USE_CASES = Path(__file__).parents[3] / "shared" / "usecases"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Seconds within which Kubernetes bound a pod that an event made schedulable. A pod that the event does not
#: wake is tried again after five minutes only, later than our runs wait.
SOON = 5.0
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CONTAINERS = ("initContainers", "containers")
_CHARGES = "nodeAllocatableResourceClaimStatuses"
_CHANCE = {"uid", "resourceVersion", "creationTimestamp", "allocationTimestamp", "managedFields"}
_TIMES = {"lastProbeTime", "lastTransitionTime", "observedGeneration"}


@dataclass(frozen=True)
class Difference:
    """Difference between our run and the recorded one."""

    where: str
    theirs: Any
    ours: Any


class UseCase:
    """Recorded use case: the objects sent and the results."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.namespace = f"uc-{directory.name}"
        self.objects: list[Tree] = list(yaml.load_all((directory / "input.yaml").read_text(), _LOADER))
        self.result: Tree = yaml.load((directory / "result.yaml").read_text(), _LOADER)

    def plain(self, tree: Any) -> Any:
        """Return a tree without random values."""
        if isinstance(tree, Mapping):
            return {k: self.plain(v) for k, v in tree.items() if k not in _CHANCE and k not in _TIMES}
        if isinstance(tree, list):
            return [self.plain(item) for item in tree]
        if isinstance(tree, str):
            text = _ID.sub("<id>", tree)
            for prefix in self._prefixes():
                text = re.sub(rf"\b{re.escape(prefix)}[a-z0-9]{{5}}\b", f"{prefix}*", text)
            return text
        return tree

    def _prefixes(self) -> list[str]:
        """Return the name prefixes of claims generated from templates."""
        return [
            f"{tree['metadata']['name']}-{claim['name']}-"
            for tree in self.objects
            if tree["kind"] == "Pod"
            for claim in tree["spec"].get("resourceClaims", ())
            if "resourceClaimTemplateName" in claim
        ]


class UseCaseRun:
    """Run of a use case on a cluster."""

    def __init__(self, use_case: UseCase, cluster: LocalCluster, better: Mapping[str, bool]) -> None:
        """`better` are the pods with another result here, and whether they are bound in the end."""
        self.use_case = use_case
        self.cluster = cluster
        self.better = better
        self.client = cluster.client
        self.namespace = use_case.namespace
        self.differences: list[Difference] = []
        self.allocations: dict[str, Any] = {}
        self._objects = iter(use_case.objects)
        self._last_change = time.monotonic()

    def execute(self) -> list[Difference]:
        labels = (
            {"resource.kubernetes.io/admin-access": "true"} if self.use_case.name == "admin-access" else {}
        )
        self.client.create("namespaces", {"metadata": {"name": self.namespace, "labels": labels}})
        steps: list[Tree] = self.use_case.result["steps"]
        for number, step in enumerate(steps):
            label = step.get("step", "")
            verb, _, rest = label.partition(" ")
            if verb == "create":
                self.compare(label, _refusal(step), _refusal(self._create()))
            elif verb == "wait":
                self.compare(f"{number} {label}", _waited(step), self._wait(rest, step))
            elif verb == "delete":
                kind, _, name = rest.partition("/")
                self._delete(kind, name, self.use_case.name != "claim-reused-by-next-pod")
            else:
                key = next(key for key in NOTES if key in step)
                ours = NOTES[key](self, step)
                if ours is not None:
                    where = (
                        f"{number} {key} {step[key]}" if key in ("accepted", "refused") else f"{number} {key}"
                    )
                    self.compare(where, {k: step.get(k) for k in ours}, ours)
        self._compare_the_end()
        return self.differences

    def compare(self, where: str, theirs: Any, ours: Any) -> None:
        theirs, ours = self.use_case.plain(theirs), self.use_case.plain(ours)
        if theirs != ours:
            self.differences.append(Difference(where, theirs, ours))

    def get(self, kind: str, name: str) -> Tree | None:
        try:
            return self.client.get(kind, name, self.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def seconds(self) -> float:
        """Return the seconds since the last object was created or deleted."""
        return time.monotonic() - self._last_change

    def _create(self) -> Tree:
        tree = next(self._objects)
        try:
            self.client.create(tree["kind"], tree, tree["metadata"].get("namespace", ""))
        except ApiError as error:
            return {"http": error.code, "reason": error.reason, "causes": error.details.get("causes")}
        finally:
            self._last_change = time.monotonic()
        return {"http": 201}

    def _delete(self, kind: str, name: str, and_wait: bool) -> None:
        self.client.delete(kind, name, self.namespace, grace=0)
        self._last_change = time.monotonic()
        if and_wait:
            self.cluster.wait_for(kind, name, self.namespace, gone=True)

    def _wait(self, name: str, step: Tree) -> Tree:
        """Wait for the recorded result or the better one, and return the pod."""
        bound = self.better.get(name, step["nodeName"] is not None)

        def is_settled(pod: Tree) -> bool:
            if pod["spec"].get("nodeName"):
                return True
            return not bound and _condition(pod) is not None

        try:
            pod = self.cluster.wait_for("pods", name, self.namespace, is_settled, timeout=DEADLINE)
        except AssertionError:
            pod = self.client.get("pods", name, self.namespace)
        status = pod.get("status", {})
        return {
            "nodeName": pod["spec"].get("nodeName"),
            "PodScheduled": _condition(pod),
            _CHARGES: status.get(_CHARGES),
        }

    def _compare_the_end(self) -> None:
        for kind in ("pods", "resourceclaims"):
            theirs = {self.use_case.plain(t["metadata"]["name"]): t for t in self.use_case.result[kind]}
            found = self.client.list(kind, self.namespace)
            ours = {self.use_case.plain(tree["metadata"]["name"]): tree for tree in found}
            read = _pod if kind == "pods" else _claim
            for name in sorted({*theirs, *ours}):
                left, right = theirs.get(name), ours.get(name)
                self.compare(
                    f"{kind}/{name}",
                    None if left is None else read(left),
                    None if right is None else read(right),
                )
        self._compare_events()

    def _compare_events(self) -> None:
        wanted = {self._event(event) for event in self.use_case.result["events"]}
        others = {f"Pod/{name}" for name in self.better}

        def is_complete(events: set[Any]) -> bool:
            return all(event[0] in others for event in wanted - events)

        with suppress(AssertionError):  # they are written in the background
            wait_until(self._events, is_complete)
        found = self._events()
        for name in sorted({event[0] for event in wanted ^ found}):
            self.compare(
                f"events/{name}",
                sorted(event[1:] for event in wanted if event[0] == name),
                sorted(event[1:] for event in found if event[0] == name),
            )

    def _events(self) -> set[tuple[str, ...]]:
        events = self.client.list("events.events.k8s.io", self.namespace)
        return {
            self._event({**e, "regarding": f"{e['regarding']['kind']}/{e['regarding']['name']}"})
            for e in events
            if e.get("reportingController") == "default-scheduler"
        }

    def _event(self, event: Tree) -> tuple[str, ...]:
        keys = ("regarding", "type", "reason", "action", "note", "reportingController")
        return tuple(self.use_case.plain(event.get(key, "")) for key in keys)


# -- recorded notes and their replay


def _note_seconds(run: UseCaseRun, step: Tree) -> Tree | None:
    """Note whether the event that a pod waited for has woken it."""
    theirs = next(v for k, v in step.items() if k.startswith("seconds")) < SOON
    run.compare("soon", theirs, run.seconds() < DEADLINE)
    if "low_exists" in step:
        return _note_existence(run, step) | {"nominatedNodeName": step["nominatedNodeName"]}
    return None


def _note_existence(run: UseCaseRun, step: Tree) -> Tree:
    key = next(key for key in step if key.endswith("_exists"))
    return {key: run.get("pods", key.removesuffix("_exists")) is not None}


def _note_capacity(run: UseCaseRun, step: Tree) -> Tree:
    name = f"{step['device']}-{step['request'] or 'none'}"
    claim = run.client.get("resourceclaims", name, run.namespace)
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        return {"consumedCapacity": None}
    run.allocations[name] = allocation
    return {"consumedCapacity": allocation["devices"]["results"][0].get("consumedCapacity")}


def _note_allocations(run: UseCaseRun, step: Tree) -> Tree:
    return {"allocations": run.allocations}


def _note_charges(run: UseCaseRun, step: Tree) -> Tree:
    """Note the charges of all pods of each driver."""
    counts: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    for pod in run.client.list("pods", run.namespace):
        amount = pod["status"][_CHARGES][0]["resources"]["cpu"]
        of_driver = counts[pod["metadata"]["name"][0]]
        of_driver[amount] = of_driver.get(amount, 0) + 1
    assert counts == step["expected"]
    return {"charged_cpu_by_driver": counts}


def _note_stored(run: UseCaseRun, step: Tree) -> Tree | None:
    name = step.get("accepted") or step["refused"]
    stored = run.get("resourceslices", f"v-{name}")
    if stored is None:
        return {"refused": name}
    return {"accepted": name, "stored": stored["spec"]["devices"][0].get("nodeAllocatableResourceMappings")}


def _note_resize(run: UseCaseRun, step: Tree) -> Tree:
    patch = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "200m"}}}]}}
    try:
        run.client.patch("pods", "p", patch, run.namespace, subresource="resize", type="strategic")
    except ApiError as error:
        return {"resize_http": error.code, "message": error.message}
    return {"resize_http": 200, "message": None}


def _note_restart(run: UseCaseRun, step: Tree) -> None:
    run.cluster.restart_scheduler()


def _note_slice_update(run: UseCaseRun, step: Tree) -> Tree:
    """Note the mapping of a device in use growing from 3 to 7 cpu."""
    tree = run.client.get("resourceslices", "n-su-s")
    tree["spec"]["pool"]["generation"] = 2
    tree["spec"]["devices"][0]["nodeAllocatableResourceMappings"]["cpu"]["allocationMultiplier"] = "7"
    run.client.update("resourceslices", tree)
    return {"update_http": 200}


def _note_allocation_by_hand(run: UseCaseRun, step: Tree) -> Tree:
    """Note a claim allocated (6 of 8 cpu) before any pod names it."""
    recorded = next(tree for tree in run.use_case.result["resourceclaims"])
    tree = run.client.get("resourceclaims", "pre", run.namespace)
    tree["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    tree = run.client.update("resourceclaims", tree, run.namespace)
    tree["status"] = {"allocation": recorded["status"]["allocation"]}
    run.client.update("resourceclaims", tree, run.namespace, subresource="status")
    return {"status_update_http": 200, "message": None}


NOTES: Mapping[str, Callable[[UseCaseRun, Tree], Tree | None]] = {
    "seconds": _note_seconds,
    "seconds_from_release_to_bound": _note_seconds,
    "seconds_from_delete_to_bound": _note_seconds,
    "low_exists": _note_existence,
    "low2_exists": _note_existence,
    "consumedCapacity": _note_capacity,
    "allocations": _note_allocations,
    "charged_cpu_by_driver": _note_charges,
    "accepted": _note_stored,
    "refused": _note_stored,
    "resize_http": _note_resize,
    "restart": _note_restart,
    "update_http": _note_slice_update,
    "status_update_http": _note_allocation_by_hand,
}


# -- compared parts of objects


def _condition(pod: Tree) -> Tree | None:
    conditions = pod.get("status", {}).get("conditions", ())
    return next((dict(c) for c in conditions if c["type"] == "PodScheduled"), None)


def _refusal(answer: Tree) -> Tree:
    """Return the rejected fields and error types; messages differ between servers."""
    causes = [(cause["field"], cause["reason"]) for cause in answer.get("causes") or ()]
    return {"http": answer["http"], "reason": answer.get("reason"), "causes": causes}


def _waited(step: Tree) -> Tree:
    return {key: step[key] for key in ("nodeName", "PodScheduled", _CHARGES)}


def _pod(tree: Tree) -> Tree:
    # The record comes from a server without service accounts.
    spec = {key: part for key, part in tree["spec"].items() if not key.startswith("serviceAccount")}
    for place, parts in (
        (spec, "volumes"),
        *((each, "volumeMounts") for kind in _CONTAINERS for each in spec.get(kind, ())),
    ):
        rest = [each for each in place.pop(parts, ()) if not each["name"].startswith("kube-api-access-")]
        if rest:
            place[parts] = rest
    return {"spec": spec, "status": tree["status"]}


def _claim(tree: Tree) -> Tree:
    status = dict(tree.get("status") or {})
    if "reservedFor" in status:
        status["reservedFor"] = sorted(status["reservedFor"], key=lambda user: str(user["name"]))
    return {
        "metadata": {
            key: tree["metadata"].get(key) for key in ("annotations", "finalizers", "ownerReferences")
        },
        "spec": tree["spec"],
        "status": status,
    }
