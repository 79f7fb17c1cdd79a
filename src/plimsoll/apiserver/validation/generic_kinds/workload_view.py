"""Views of the workload kinds, for validation.

They have the fields that a default, a rule or a stored form depends on; all other fields are preserved
unchanged.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.meta import Int, Int32, IntOrString, LabelSelector, ObjectMeta, Wire
from plimsoll.apiserver.validation.pod.pod_view import FullPodSpec
from plimsoll.apiserver.validation.pod.volume_view import FullPersistentVolumeClaimSpec


class PodTemplateSpec(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullPodSpec = FullPodSpec()


class PodTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    template: PodTemplateSpec = PodTemplateSpec()


# -- apps


class RollingUpdate(Wire, frozen=True):
    """Rolling update parameters of Deployments, DaemonSets and StatefulSets."""

    max_unavailable: IntOrString | None = None  #: a number or a percentage
    max_surge: IntOrString | None = None  #: a number or a percentage
    partition: Int32 | None = None


class UpdateStrategy(Wire, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Wire, frozen=True):
    """Fields that Deployments, ReplicaSets, StatefulSets and DaemonSets have in common."""

    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    min_ready_seconds: Int32 = 0
    revision_history_limit: Int32 | None = None


class DeploymentSpec(WorkloadSpec, frozen=True):
    strategy: UpdateStrategy = UpdateStrategy()
    progress_deadline_seconds: Int32 | None = None


class DaemonSetSpec(WorkloadSpec, frozen=True):
    update_strategy: UpdateStrategy = UpdateStrategy()


class VolumeClaimTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullPersistentVolumeClaimSpec = FullPersistentVolumeClaimSpec()


class PersistentVolumeClaimRetentionPolicy(Wire, frozen=True):
    when_deleted: str = ""
    when_scaled: str = ""


class Ordinals(Wire, frozen=True):
    start: Int32 = 0


class StatefulSetSpec(WorkloadSpec, frozen=True):
    update_strategy: UpdateStrategy = UpdateStrategy()
    service_name: str = ""
    pod_management_policy: str = ""
    volume_claim_templates: tuple[VolumeClaimTemplate, ...] = ()
    persistent_volume_claim_retention_policy: PersistentVolumeClaimRetentionPolicy | None = None
    ordinals: Ordinals | None = None


class ReplicaSet(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class Deployment(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()


class DaemonSet(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()


class StatefulSet(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()


class ReplicationControllerSpec(Wire, frozen=True):
    replicas: Int32 | None = None
    min_ready_seconds: Int32 = 0
    selector: dict[str, str] = {}
    template: PodTemplateSpec | None = None


class ReplicationController(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


# -- batch


class PodConditionPattern(Wire, frozen=True):
    type: str = ""
    status: str = ""


class PodFailurePolicyRule(Wire, frozen=True):
    on_pod_conditions: tuple[PodConditionPattern, ...] = ()


class PodFailurePolicy(Wire, frozen=True):
    rules: tuple[PodFailurePolicyRule, ...] = ()


class JobSpec(Wire, frozen=True):
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    active_deadline_seconds: Int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: Any = None
    backoff_limit: Int32 | None = None
    backoff_limit_per_index: Int32 | None = None
    max_failed_indexes: Int32 | None = None
    selector: LabelSelector | None = None
    manual_selector: bool | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    ttl_seconds_after_finished: Int32 | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None


class Job(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class JobTemplateSpec(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class CronJobSpec(Wire, frozen=True):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: Int | None = None
    concurrency_policy: str = ""
    suspend: bool | None = None
    job_template: JobTemplateSpec = JobTemplateSpec()
    successful_jobs_history_limit: Int32 | None = None
    failed_jobs_history_limit: Int32 | None = None


class CronJob(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CronJobSpec = CronJobSpec()
