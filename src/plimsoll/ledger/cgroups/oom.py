"""oom_score_adj: whose processes the kernel kills first when memory runs out.

Owns the formula of sections 5 and 6 of the accounting semantics: Guaranteed and node-critical pods are last,
BestEffort first, and a Burstable container stands the better the more of the machine's memory it requests.
Memory from claims counts as requested since 1.37, shared fairly among the containers of a claim.
"""

from __future__ import annotations

from plimsoll.api.core import Container, Pod
from plimsoll.api.forms import Form
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.cgroups.settings import Settings
from plimsoll.ledger.cgroups.shares import NOTHING, ClaimShares, divide
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.qos import BEST_EFFORT, GUARANTEED, pod_qos
from plimsoll.ledger.requests import Options, container_requests_sum, pod_level_requests_set

LAST = -997
FIRST = 1000
_CRITICAL_PRIORITY = 2_000_000_000
_SOURCE = "kubernetes.io/config.source"
_MIRROR = "kubernetes.io/config.mirror"


def is_critical(pod: Pod) -> bool:
    """Whether a node must not do without this pod: static pods, and the highest priorities."""
    annotations = pod.metadata.annotations
    return (
        annotations.get(_SOURCE, "api") != "api"
        or _MIRROR in annotations
        or (pod.spec.priority is not None and pod.spec.priority >= _CRITICAL_PRIORITY)
    )


def is_node_critical(pod: Pod) -> bool:
    return is_critical(pod) and pod.spec.priority_class_name == "system-node-critical"


def oom_score_adj(pod: Pod, container: Container, settings: Settings, shares: ClaimShares = NOTHING) -> int:
    """The score of a container of this pod; `shares` is what claims give where they count."""
    qos = pod_qos(pod, settings.form, pod_level=settings.pod_level)
    if is_node_critical(pod) or qos == GUARANTEED:
        return LAST
    if qos == BEST_EFFORT:
        return FIRST
    spare = _spare_memory(pod, settings, shares)
    score = _score(_memory(container, shares) + spare, settings)
    if is_sidecar(container) and any(c.name == container.name for c in pod.spec.init_containers):
        smallest = min((_memory(c, shares) for c in pod.spec.containers), default=0)
        score = min(score, _score(smallest + spare, settings))
    # Below any BestEffort process, above any Guaranteed one that uses all memory.
    score = max(score, FIRST + LAST)
    return score - 1 if score == FIRST else score


def _memory(container: Container, shares: ClaimShares) -> int:
    return container.resources.requests.get("memory", ZERO).value() + shares.memory.get(container.name, 0)


def _score(memory: int, settings: Settings) -> int:
    return FIRST - divide(1000 * memory, settings.memory_capacity)


def _spare_memory(pod: Pod, settings: Settings, shares: ClaimShares) -> int:
    """Each container's part of what the pod as a whole requests beyond its containers."""
    if not settings.pod_level or not pod_level_requests_set(pod):
        return 0
    assert pod.spec.resources is not None
    whole = pod.spec.resources.requests.get("memory", ZERO)
    if not whole:
        return 0
    options = Options(form=settings.form, count_claims=True)
    taken = container_requests_sum(pod, options, shares.charges()).get("memory", ZERO)
    spare = whole.value() - taken.value()
    if settings.form is not Form.V1_36:
        spare = max(spare, 0)
    return divide(spare, max(1, len(pod.spec.containers) + len(pod.spec.init_containers)))
