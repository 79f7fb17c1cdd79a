"""Cgroup values, container resources and OOM scores of pods, computed as plans.

Pure functions: a plan is a value that a node agent applies (docs/spec/accounting.md, "Kubelet", "Changes in
1.37" and "Accounting policies").

    settings.py     node settings that the plans depend on
    conversions.py  CPU to shares, weight and quota and back; huge page sizes
    memory.py       memory.min, memory.low and memory.high
    oom.py          oom_score_adj
    containers.py   resources of a container
    pods.py         cgroup of a pod and resources of its sandbox
    qos_cgroups.py  cgroups of the QoS classes
"""

from plimsoll.node.cgroup_plans.containers import ContainerPlan, plan_containers
from plimsoll.node.cgroup_plans.oom import oom_score_adj
from plimsoll.node.cgroup_plans.pods import PodPlan, SandboxPlan, plan_pod, plan_sandbox
from plimsoll.node.cgroup_plans.qos_cgroups import QosCgroupPlan, plan_qos_cgroups
from plimsoll.node.cgroup_plans.settings import CgroupSettings, MemoryReservationPolicy

__all__ = [
    "CgroupSettings",
    "ContainerPlan",
    "MemoryReservationPolicy",
    "PodPlan",
    "QosCgroupPlan",
    "SandboxPlan",
    "oom_score_adj",
    "plan_containers",
    "plan_pod",
    "plan_qos_cgroups",
    "plan_sandbox",
]
