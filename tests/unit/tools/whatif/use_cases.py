"""Replay of recorded kube-scheduler 1.36 runs in memory, step by step.

A use case is a directory with `input.yaml` (the objects that were sent, in order) and `result.yaml` (`steps`:
actions and their results). `UseCaseReplay` repeats the steps under `--as kube-1.36` and lists mispredictions:
a pod's node, or its message if it has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import ResourceClaim, ResourceClaimStatus, ResourceSlice
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.pod_schedulers import SCHEDULER_MODELS
from plimsoll.tools.whatif import Whatif

Tree = dict[str, Any]
USE_CASES = Path(__file__).resolve().parents[5] / "shared" / "usecases"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STOCK = SCHEDULER_MODELS["kube-1.36"]
#: The part of a claim's name that a server makes up.
_GENERATED = re.compile(r"\b([a-z0-9]+-c-)[a-z0-9]{5}\b")


@dataclass(frozen=True)
class Misprediction:
    """Pod whose prediction differs from the recorded result."""

    pod: str
    theirs: str
    ours: str


class UseCaseReplay:
    """Replay of one use case."""

    def __init__(self, directory: Path) -> None:
        self.namespace = f"uc-{directory.name}"
        self.objects = iter(list(yaml.load_all((directory / "input.yaml").read_text(), _LOADER)))
        self.result: Tree = yaml.load((directory / "result.yaml").read_text(), _LOADER)
        self.whatif = self._new(ClusterObjects())
        self.why: dict[tuple[str, str], str] = {}
        self.wrong: list[Misprediction] = []

    @staticmethod
    def _new(objects: ClusterObjects) -> Whatif:
        return Whatif(
            _STOCK.cluster_state(ClusterState(objects)), settings=_STOCK.settings(SchedulerProfile.default())
        )

    def run(self) -> list[Misprediction]:
        for step in self.result["steps"]:
            verb, _, rest = step.get("step", "").partition(" ")
            if verb == "create":
                tree = next(self.objects)
                if step["http"] == 201:
                    self.whatif.add(tree)
                    self.schedule()
            elif verb == "wait":
                self.compare(rest, step)
            elif verb == "delete":
                kind, _, name = rest.partition("/")
                self.whatif.remove(f"{kind}/{self.namespace}/{name}")
                self.schedule()
            elif "restart" in step:
                self.whatif = self._new(self.whatif.cluster_state.objects.copy())
            elif "update_http" in step:
                self.whatif.add(self._grown("n-su-s"))
            elif "status_update_http" in step:
                self.whatif.add(self._allocated("pre"))
        return self.wrong

    def schedule(self) -> None:
        outcome = self.whatif.schedule()
        self.why = {pending.pod: pending.why for pending in outcome.pending}

    def compare(self, name: str, step: Tree) -> None:
        pod = self.whatif.cluster_state.objects.find(Pod, self.namespace, name)
        ours = "gone" if pod is None else pod.spec.node_name or self.why.get((self.namespace, name), "?")
        theirs = step["nodeName"] or (step["PodScheduled"] or {}).get("message", "")
        theirs = _GENERATED.sub(r"\1whatif", theirs)
        waits = pod is not None and not pod.spec.node_name and not step["nodeName"]
        # What preemption has to say comes after the reasons, and is not part of the prediction; a pod that
        # waits for its claim has no message there.
        if ours != theirs and not (waits and (theirs.startswith(ours) or not theirs)):
            self.wrong.append(Misprediction(name, theirs, ours))

    def _grown(self, name: str) -> ResourceSlice:
        """Grow the mapping of a device in use from 3 to 7 cpu."""
        old = self.whatif.cluster_state.objects.find(ResourceSlice, "", name)
        assert old is not None
        assert old.spec.devices
        device = old.spec.devices[0]
        mapping = device.node_allocatable_resource_mappings["cpu"]
        grown = replace(mapping, allocation_multiplier=Quantity.parse("7"))
        device = replace(device, node_allocatable_resource_mappings={"cpu": grown})
        spec = replace(old.spec, devices=(device,), pool=replace(old.spec.pool, generation=2))
        return replace(old, spec=spec)

    def _allocated(self, name: str) -> ResourceClaim:
        """Allocate a claim before any pod names it."""
        recorded = codec.convert(self.result["resourceclaims"][0], ResourceClaim)
        old = self.whatif.cluster_state.claim(name, self.namespace)
        return replace(old, status=ResourceClaimStatus(recorded.status.allocation))
