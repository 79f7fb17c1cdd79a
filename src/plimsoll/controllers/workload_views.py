"""Read-only views of workloads: what their controllers read.

Pod templates are plain JSON, copied into pods unchanged, so that fields of newer versions are kept.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.meta import Condition, Int, IntOrString, LabelSelector, ObjectMeta, Wire


class WorkloadCondition(Condition, frozen=True):
    """Condition of a workload; Deployments also record the last update."""

    last_update_time: str | None = None


class WorkloadView(Wire, frozen=True):
    """Type and metadata of an object that owns pods or other workloads."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


# -- ReplicaSet and ReplicationController


class ReplicaSetSpecView(Wire, frozen=True):
    replicas: Int | None = None
    min_ready_seconds: Int = 0
    selector: LabelSelector | None = None
    template: Any = None


class ReplicaSetStatusView(Wire, frozen=True):
    """Status of a ReplicaSet or ReplicationController."""

    replicas: Int = 0
    fully_labeled_replicas: Int = 0
    ready_replicas: Int = 0
    available_replicas: Int = 0
    terminating_replicas: Int | None = None
    observed_generation: Int = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class ReplicaSetView(WorkloadView, frozen=True):
    spec: ReplicaSetSpecView = ReplicaSetSpecView()
    status: ReplicaSetStatusView = ReplicaSetStatusView()

    @property
    def replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas


class ReplicationControllerSpecView(Wire, frozen=True):
    replicas: Int | None = None
    min_ready_seconds: Int = 0
    selector: dict[str, str] = {}  # noqa: RUF012 - a frozen view
    template: Any = None


class ReplicationControllerView(WorkloadView, frozen=True):
    spec: ReplicationControllerSpecView = ReplicationControllerSpecView()
    status: ReplicaSetStatusView = ReplicaSetStatusView()


# -- Deployment


class RollingUpdateView(Wire, frozen=True):
    """Step size of a rolling update; which fields are used differs by kind."""

    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    partition: Int | None = None


class UpdateStrategyView(Wire, frozen=True):
    type: str = ""
    rolling_update: RollingUpdateView | None = None


class DeploymentSpecView(Wire, frozen=True):
    replicas: Int | None = None
    min_ready_seconds: Int = 0
    selector: LabelSelector | None = None
    template: Any = None
    strategy: UpdateStrategyView = UpdateStrategyView()
    revision_history_limit: Int | None = None
    paused: bool = False
    progress_deadline_seconds: Int | None = None


class DeploymentStatusView(Wire, frozen=True):
    observed_generation: Int = 0
    replicas: Int = 0
    updated_replicas: Int = 0
    ready_replicas: Int = 0
    available_replicas: Int = 0
    unavailable_replicas: Int = 0
    terminating_replicas: Int | None = None
    conditions: tuple[WorkloadCondition, ...] = ()
    collision_count: Int | None = None


class DeploymentView(WorkloadView, frozen=True):
    spec: DeploymentSpecView = DeploymentSpecView()
    status: DeploymentStatusView = DeploymentStatusView()

    @property
    def replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas


# -- StatefulSet, DaemonSet and their revisions


class OrdinalsView(Wire, frozen=True):
    start: Int = 0


class ClaimRetentionView(Wire, frozen=True):
    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class StatefulSetSpecView(Wire, frozen=True):
    replicas: Int | None = None
    min_ready_seconds: Int = 0
    selector: LabelSelector | None = None
    template: Any = None
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: UpdateStrategyView = UpdateStrategyView()
    revision_history_limit: Int | None = None
    volume_claim_templates: tuple[Any, ...] = ()
    persistent_volume_claim_retention_policy: ClaimRetentionView | None = None
    ordinals: OrdinalsView | None = None


class StatefulSetStatusView(Wire, frozen=True):
    observed_generation: Int = 0
    replicas: Int = 0
    ready_replicas: Int = 0
    available_replicas: Int = 0
    current_replicas: Int = 0
    updated_replicas: Int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: Int | None = None
    conditions: tuple[WorkloadCondition, ...] = ()


class StatefulSetView(WorkloadView, frozen=True):
    spec: StatefulSetSpecView = StatefulSetSpecView()
    status: StatefulSetStatusView = StatefulSetStatusView()

    @property
    def replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def start(self) -> int:
        """Ordinal of the first pod."""
        return 0 if self.spec.ordinals is None else self.spec.ordinals.start


class DaemonSetSpecView(Wire, frozen=True):
    selector: LabelSelector | None = None
    template: Any = None
    min_ready_seconds: Int = 0
    update_strategy: UpdateStrategyView = UpdateStrategyView()
    revision_history_limit: Int | None = None


class DaemonSetStatusView(Wire, frozen=True):
    observed_generation: Int = 0
    current_number_scheduled: Int = 0
    desired_number_scheduled: Int = 0
    number_misscheduled: Int = 0
    number_ready: Int = 0
    updated_number_scheduled: Int = 0
    number_available: Int = 0
    number_unavailable: Int = 0
    collision_count: Int | None = None
    conditions: tuple[WorkloadCondition, ...] = ()


class DaemonSetView(WorkloadView, frozen=True):
    spec: DaemonSetSpecView = DaemonSetSpecView()
    status: DaemonSetStatusView = DaemonSetStatusView()


class ControllerRevisionView(WorkloadView, frozen=True):
    """Template of a StatefulSet or DaemonSet at some time."""

    data: Any = None
    revision: Int = 0


# -- Job and CronJob


class ExitCodesView(Wire, frozen=True):
    container_name: str | None = None
    operator: str = ""
    values: tuple[Int, ...] = ()


class PodConditionPatternView(Wire, frozen=True):
    type: str = ""
    status: str = "True"


class PodFailureRuleView(Wire, frozen=True):
    action: str = ""
    on_exit_codes: ExitCodesView | None = None
    on_pod_conditions: tuple[PodConditionPatternView, ...] = ()


class PodFailurePolicyView(Wire, frozen=True):
    rules: tuple[PodFailureRuleView, ...] = ()


class SuccessRuleView(Wire, frozen=True):
    succeeded_indexes: str | None = None
    succeeded_count: Int | None = None


class SuccessPolicyView(Wire, frozen=True):
    rules: tuple[SuccessRuleView, ...] = ()


class JobSpecView(Wire, frozen=True):
    parallelism: Int | None = None
    completions: Int | None = None
    active_deadline_seconds: Int | None = None
    backoff_limit: Int | None = None
    backoff_limit_per_index: Int | None = None
    max_failed_indexes: Int | None = None
    selector: LabelSelector | None = None
    template: Any = None
    ttl_seconds_after_finished: Int | None = None
    completion_mode: str | None = None
    suspend: bool = False
    pod_failure_policy: PodFailurePolicyView | None = None
    success_policy: SuccessPolicyView | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None


class UncountedPodsView(Wire, frozen=True):
    """UIDs of pods that have ended and are not in the counters yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatusView(Wire, frozen=True):
    conditions: tuple[WorkloadCondition, ...] = ()
    start_time: str | None = None
    completion_time: str | None = None
    active: Int = 0
    succeeded: Int = 0
    failed: Int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedPodsView | None = None
    ready: Int | None = None
    terminating: Int | None = None


class JobView(WorkloadView, frozen=True):
    spec: JobSpecView = JobSpecView()
    status: JobStatusView = JobStatusView()

    @property
    def is_indexed(self) -> bool:
        return self.spec.completion_mode == "Indexed"


class CronJobSpecView(Wire, frozen=True):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: Int | None = None
    concurrency_policy: str = ""
    suspend: bool = False
    job_template: Any = None
    successful_jobs_history_limit: Int | None = None
    failed_jobs_history_limit: Int | None = None


class ActiveJobView(Wire, frozen=True):
    """Reference to a job that a CronJob has started."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class CronJobStatusView(Wire, frozen=True):
    active: tuple[ActiveJobView, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJobView(WorkloadView, frozen=True):
    spec: CronJobSpecView = CronJobSpecView()
    status: CronJobStatusView = CronJobStatusView()


# -- PodDisruptionBudget


class DisruptionBudgetSpecView(Wire, frozen=True):
    selector: LabelSelector | None = None
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None


class DisruptionBudgetStatusView(Wire, frozen=True):
    observed_generation: Int = 0
    #: Granted evictions: name of the pod -> time.
    disrupted_pods: dict[str, str | None] = {}  # noqa: RUF012 - a frozen view
    disruptions_allowed: Int = 0
    current_healthy: Int = 0
    desired_healthy: Int = 0
    expected_pods: Int = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class DisruptionBudgetView(WorkloadView, frozen=True):
    spec: DisruptionBudgetSpecView = DisruptionBudgetSpecView()
    status: DisruptionBudgetStatusView = DisruptionBudgetStatusView()
