"""`plimsoll cgroups`: preview of the cgroup tree and values a node would set for pods.

Runs the node agent's own enforcement code against an in-memory plan of cgroups; nothing on the machine is
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import Form, find_pod_problem
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.errors import InputError
from plimsoll.node.cgroup_planner import CgroupPlanner, PodCgroupPlans
from plimsoll.node.cgroup_plans import CgroupSettings
from plimsoll.node.cgroup_plans.conversions import format_page_size, parse_page_size
from plimsoll.node.cgroups import plan_cgroups
from plimsoll.node.machine.machine import read_machine
from plimsoll.node.resources import resources_from_plan
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.columns import format_table
from plimsoll.tools.facts import join_names
from plimsoll.tools.views import decode_views

ROOT = "plimsoll"


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupPlanSettings:
    """Node settings for the preview. Memory and huge page sizes default to those of the Node object in the
    input, else to those of this machine.
    """

    form: str = Form.V1_37.value
    version: Literal[1, 2] = 2
    memory: str = ""  #: memory of the machine; "": see above
    memory_qos: bool = False
    gates: Gates = field(default_factory=Gates.default)
    node: str = ""  #: only pods of this node; "": all pods, on the only node
    namespace: str = ""  #: namespace to show; QoS cgroups include all pods


@dataclass(frozen=True, slots=True)
class PodCgroupPlan:
    """One pod with its planned cgroup files and values, relative to the cgroup root."""

    pod: Pod
    enforced: PodCgroupPlans
    files: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def title(self) -> str:
        return f"{self.pod.metadata.namespace or 'default'}/{self.pod.metadata.name}"

    def lines(self, paint: Paint = PLAIN) -> Iterator[str]:
        yield f"{paint.bold(self.title)}: {self.enforced.qos}"
        if self.problem:
            yield paint.yellow(f"  its claims are not charged: {self.problem}")
        rows = [("CONTAINER", "ROLE", "OOM_SCORE_ADJ")]
        for plan in self.enforced.containers.values():
            rows.append((plan.name, plan.role.name.lower(), str(plan.oom_score_adj)))
        yield from (f"  {line}" for line in format_table(rows))
        yield from (f"  {line}" for line in format_table([("FILE", "VALUE"), *self.files.items()]))

    def as_json(self) -> dict[str, Any]:
        containers = [
            {"name": plan.name, "role": plan.role.name.lower(), "oomScoreAdj": plan.oom_score_adj}
            for plan in self.enforced.containers.values()
        ]
        found = {"pod": self.title, "qosClass": self.enforced.qos, "containers": containers}
        return found | {"files": self.files} | ({"problem": self.problem} if self.problem else {})


@dataclass(frozen=True, slots=True)
class CgroupPlan:
    """Planned values of the QoS tiers and of all pods of a node."""

    form: str
    tiers: dict[str, str]
    pods: tuple[PodCgroupPlan, ...]

    def lines(self, paint: Paint = PLAIN, *, wide: bool = False) -> Iterator[str]:
        if not self.pods:
            return
        yield f"rules: {self.form}"
        yield from format_table([("FILE", "VALUE"), *self.tiers.items()])
        for pod in self.pods:
            yield ""
            yield from pod.lines(paint)

    def as_json(self) -> dict[str, Any]:
        return {"form": self.form, "tiers": self.tiers, "pods": [pod.as_json() for pod in self.pods]}


def show_plan(objects: Iterable[ParsedObject], settings: CgroupPlanSettings) -> CgroupPlan:
    """Plan the cgroups of the pods in `objects`; skip pods that have terminated."""
    found, now = list(objects), datetime.now(UTC)
    pods, nodes = decode_views(found, Pod, now), decode_views(found, Node, now)
    node = _pick(nodes, pods, settings.node)
    alive = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
    if settings.node:
        alive = [pod for pod in alive if pod.spec.node_name == settings.node]
    return _plan(alive, CgroupPlanner(_settings(node, settings)), settings)


def _pick(nodes: list[Node], pods: list[Pod], name: str) -> Node | None:
    """Return the node called `name`, or the only node."""
    if name:
        known = {node.metadata.name for node in nodes} | {pod.spec.node_name for pod in pods} - {""}
        if name not in known:
            existing = f"; existing: {join_names(sorted(known), 12)}" if known else ""
            raise InputError(f"node {name!r} not found{existing}")
        return next((node for node in nodes if node.metadata.name == name), None)
    if len(nodes) > 1:
        names = sorted({node.metadata.name for node in nodes})
        raise InputError(f"select one node with --node; existing: {join_names(names, 12)}")
    return nodes[0] if nodes else None


def _plan(pods: list[Pod], enforcement: CgroupPlanner, settings: CgroupPlanSettings) -> CgroupPlan:
    cgroups = plan_cgroups(ROOT, version=settings.version)
    cgroups.set_up()
    cgroups.apply_tiers(enforcement.tiers(pods))
    tiers = dict(cgroups.plan())
    planned = []
    known = tiers
    for pod in pods:
        enforced = enforcement.plan(pod)
        uid = pod.metadata.uid or f"-{pod.metadata.namespace or 'default'}-{pod.metadata.name}".strip("-")
        cgroups.make_pod(uid, enforced.qos, enforced.pod)
        for plan in enforced.containers.values():
            cgroups.make_container(uid, plan.name, resources_from_plan(plan))
        everything = dict(cgroups.plan())
        files = {file: value for file, value in everything.items() if file not in known}
        known = everything
        problem = find_pod_problem(pod)
        if settings.namespace and (pod.metadata.namespace or settings.namespace) != settings.namespace:
            continue
        planned.append(PodCgroupPlan(pod, enforced, files, "" if problem is None else str(problem)))
    return CgroupPlan(settings.form, tiers, tuple(planned))


def _settings(node: Node | None, settings: CgroupPlanSettings) -> CgroupSettings:
    if node is not None:
        capacity = node.status.capacity
    else:
        capacity = {} if settings.memory else read_machine().capacity
    memory = Quantity.parse(settings.memory) if settings.memory else capacity.get("memory", ZERO)
    if memory.sign() <= 0:
        raise InputError("the memory of the machine is unknown: set it with --memory")
    sizes = [parse_page_size(name) for name, amount in capacity.items() if amount]
    texts = [format_page_size(size) for size in sorted({size for size in sizes if size is not None})]
    allocatable = node.status.allocatable.get("memory", ZERO) if node is not None else ZERO
    return CgroupSettings(
        memory_capacity=memory.value(),
        form=Form(settings.form),
        count_claims=settings.gates.enabled("DRANodeAllocatableResources"),
        claims_in_qos=settings.gates.enabled("DRANodeAllocatableResourcesQoS"),
        pod_level=settings.gates.enabled("PodLevelResources"),
        memory_qos=settings.memory_qos,
        allocatable_memory=allocatable.value(),
        cgroup_version=settings.version,
        huge_page_sizes=tuple(text for text in texts if text is not None),
    )
