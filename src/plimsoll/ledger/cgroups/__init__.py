"""Cgroup values, container resources and OOM scores of pods, computed as plans.

Pure functions: a plan is a value that a node agent applies (docs/spec/accounting.md, "Kubelet", "Changes in
1.37" and "Accounting policies").

    settings.py     node settings that the plans depend on
    conversions.py  CPU to shares, weight and quota and back; huge page sizes
    shares.py       amounts that claims add to a pod and to its containers
    memory.py       memory.min, memory.low and memory.high
    oom.py          oom_score_adj
    containers.py   resources of a container
    pods.py         cgroup of a pod and resources of its sandbox
    qos_cgroups.py  cgroups of the QoS classes
"""

from plimsoll.ledger.cgroups.containers import ContainerPlan, plan_container, plan_containers
from plimsoll.ledger.cgroups.oom import oom_score_adj
from plimsoll.ledger.cgroups.pods import PodPlan, SandboxPlan, plan_overhead, plan_pod, plan_sandbox
from plimsoll.ledger.cgroups.qos_cgroups import QosCgroupPlan, plan_qos_cgroups
from plimsoll.ledger.cgroups.settings import CgroupSettings, MemoryReservationPolicy
from plimsoll.ledger.cgroups.shares import ClaimShares, compute_claim_shares

__all__ = [
    "CgroupSettings",
    "ClaimShares",
    "ContainerPlan",
    "MemoryReservationPolicy",
    "PodPlan",
    "QosCgroupPlan",
    "SandboxPlan",
    "compute_claim_shares",
    "oom_score_adj",
    "plan_container",
    "plan_containers",
    "plan_overhead",
    "plan_pod",
    "plan_qos_cgroups",
    "plan_sandbox",
]
