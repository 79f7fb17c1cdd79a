"""Typed views of `scheduling.k8s.io`: PodGroup and its parts, PriorityClass."""

from __future__ import annotations

from typing import ClassVar

from plimsoll.api.meta import Condition, Int, ObjectMeta, Wire

#: Finalizer that keeps a PodGroup while pods refer to it.
POD_GROUP_FINALIZER = "scheduling.k8s.io/podgroup-protection"
#: Condition of a PodGroup, written by the scheduler.
POD_GROUP_SCHEDULED = "PodGroupScheduled"
#: Disruption mode of a group whose pods are preempted together.
WHOLE_GROUP = "PodGroup"


class BasicSchedulingPolicy(Wire, frozen=True):
    """Policy of pods that are scheduled independently."""


class GangSchedulingPolicy(Wire, frozen=True):
    """Policy of pods that are scheduled together or not at all."""

    min_count: Int = 0


class PodGroupSchedulingPolicy(Wire, frozen=True):
    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class PodGroupResourceClaim(Wire, frozen=True):
    """`spec.resourceClaims[]`: a claim or a template that pods of the group share."""

    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class TopologyConstraint(Wire, frozen=True):
    """Node label whose value must be the same for all pods of a group."""

    key: str = ""


class PodGroupSchedulingConstraints(Wire, frozen=True):
    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(Wire, frozen=True):
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: str | None = None
    priority_class_name: str = ""
    priority: Int | None = None


class PodGroupResourceClaimStatus(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    resource_claim_name: str | None = None


class PodGroupStatus(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PriorityClass(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    value: Int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class PodGroup(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def min_count(self) -> int:
        """Pods that must be scheduled together: minCount of a gang, else 0."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 0
