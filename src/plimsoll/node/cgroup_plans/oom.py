"""oom_score_adj of containers, which orders the kernel's OOM kills.

docs/spec/accounting.md, "Kubelet" and "Changes in 1.37": Guaranteed and node-critical pods are killed last,
BestEffort pods first, and a Burstable container is safer the larger its share of the machine's memory
request. Since 1.37 memory from claims counts as requested, divided among the containers of a claim; with the
gate DRANodeAllocatableResourcesQoS a pod that has cpu or memory from claims only is Burstable.
"""

from __future__ import annotations

from plimsoll.api.core import Container, Pod
from plimsoll.api.forms import Form
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.claim_shares import NO_SHARES, ClaimShares, divide_toward_zero
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.qos import BEST_EFFORT, GUARANTEED
from plimsoll.ledger.requests import PodResourcesOptions, aggregate_container_requests, has_pod_level_requests
from plimsoll.node.cgroup_plans.settings import CgroupSettings

GUARANTEED_OOM_SCORE_ADJ = -997
BEST_EFFORT_OOM_SCORE_ADJ = 1000
_CRITICAL_PRIORITY = 2_000_000_000
_SOURCE = "kubernetes.io/config.source"
_MIRROR = "kubernetes.io/config.mirror"


def is_critical_pod(pod: Pod) -> bool:
    """Return whether a pod is critical: a static pod, or one with a system-critical priority."""
    annotations = pod.metadata.annotations
    return (
        annotations.get(_SOURCE, "api") != "api"
        or _MIRROR in annotations
        or (pod.spec.priority is not None and pod.spec.priority >= _CRITICAL_PRIORITY)
    )


def is_node_critical_pod(pod: Pod) -> bool:
    return is_critical_pod(pod) and pod.spec.priority_class_name == "system-node-critical"


def oom_score_adj(
    pod: Pod, container: Container, settings: CgroupSettings, shares: ClaimShares = NO_SHARES
) -> int:
    """Compute the score of a container; `shares` are the amounts that claims add."""
    qos = settings.qos_of(pod, shares.charges())
    if is_node_critical_pod(pod) or qos == GUARANTEED:
        return GUARANTEED_OOM_SCORE_ADJ
    if qos == BEST_EFFORT:
        return BEST_EFFORT_OOM_SCORE_ADJ
    spare = _spare_memory(pod, settings, shares)
    score = _score(_memory(container, shares) + spare, settings)
    if is_sidecar(container) and any(c.name == container.name for c in pod.spec.init_containers):
        smallest = min((_memory(c, shares) for c in pod.spec.containers), default=0)
        score = min(score, _score(smallest + spare, settings))
    # Below any BestEffort process, above any Guaranteed one that uses all memory.
    score = max(score, BEST_EFFORT_OOM_SCORE_ADJ + GUARANTEED_OOM_SCORE_ADJ)
    return score - 1 if score == BEST_EFFORT_OOM_SCORE_ADJ else score


def _memory(container: Container, shares: ClaimShares) -> int:
    return container.resources.requests.get("memory", ZERO).value() + shares.memory.get(container.name, 0)


def _score(memory: int, settings: CgroupSettings) -> int:
    return BEST_EFFORT_OOM_SCORE_ADJ - divide_toward_zero(1000 * memory, settings.memory_capacity)


def _spare_memory(pod: Pod, settings: CgroupSettings, shares: ClaimShares) -> int:
    """Return each container's part of the pod-level memory request beyond its containers."""
    if not settings.pod_level or not has_pod_level_requests(pod):
        return 0
    assert pod.spec.resources is not None
    whole = pod.spec.resources.requests.get("memory", ZERO)
    if not whole:
        return 0
    options = PodResourcesOptions(form=settings.form, count_claims=True)
    taken = aggregate_container_requests(pod, options, shares.charges()).get("memory", ZERO)
    spare = whole.value() - taken.value()
    if settings.form is not Form.V1_36:
        spare = max(spare, 0)
    return divide_toward_zero(spare, max(1, len(pod.spec.containers) + len(pod.spec.init_containers)))
