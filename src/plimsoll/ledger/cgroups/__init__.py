"""What a node sets for a pod: cgroup values, container resources and OOM scores, as plans.

Nothing here touches a machine. A plan is a value that says what a node agent is to apply (sections 5 and 6
of the accounting semantics, and P28 of section 7 for accounting policies).

    settings.py     how the node is set up
    conversions.py  CPU to shares, weight and quota and back; sizes of huge pages
    shares.py       what claims give to a pod and to each of its containers
    memory.py       memory.min, memory.low and memory.high
    oom.py          oom_score_adj
    containers.py   the resources of a container
    pods.py         the cgroup of a pod and the resources of its sandbox
    tiers.py        the cgroups above the pods, one for each QoS class
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
