"""Binding of a pod's volumes, before the pod itself is bound (kube-scheduler's PreBind of VolumeBinding).

`write` makes each chosen PersistentVolume refer to its claim, and sets the selected node of each claim whose
volume is to be provisioned. The volume controller and the provisioner do the rest: `wait_until_bound` waits
for them, and fails when they give up, by removing what was written, or when the time is over.

Writes are conditional on the resourceVersion of their object, and a write without a response is settled
before the binding is abandoned, as those of `bind.py` are. As in kube-scheduler, what was written is not
undone when the binding fails: the claim may be bound to that volume already, and the next attempt places the
pod where its volumes are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from plimsoll.api.core import Node, NodeSelector, Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.node_selection import selector_matches
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.errors import InputError
from plimsoll.scheduler.binding.pod_conditions import BindError, format_bind_error
from plimsoll.scheduler.binding.result import BindFailure, BindStep
from plimsoll.scheduler.binding.writer import BindingWriter, retry_until_answered
from plimsoll.scheduler.result import DynamicProvision, PodVolumes, StaticBinding

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)
#: Receives the volumes and claims in responses.
OnVolume: TypeAlias = Callable[[PersistentVolume | PersistentVolumeClaim], None]

#: Time for volumes to be bound, from the last write on.
VOLUME_TIMEOUT_MS = 600_000


class VolumeWriter(Protocol):
    """Writes of volumes. Each is made once; errors and lost responses raise ApiError."""

    async def bind_volume(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        """Make a volume refer to a claim, if the volume is unchanged."""

    async def select_node(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
        """Request a volume on a node for a claim, if the claim is unchanged."""

    async def fence_volume(self, volume: PersistentVolume) -> PersistentVolume | None:
        """Give a volume a new resourceVersion, so that earlier conditional writes are refused; None: gone."""

    async def fence_volume_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        """Give a claim a new resourceVersion, so that earlier conditional writes are refused; None: gone."""

    async def read_volume(self, volume: PersistentVolume) -> PersistentVolume | None:
        """Return the current volume; None if it is gone, or another one has its name."""

    async def read_volume_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        """Return the current claim; None if it is gone, or another one has its name."""


class VolumeCluster(Protocol):
    """Objects of the API that the progress of a binding is read from, without what is assumed."""

    def node(self, name: str) -> Node | None: ...

    def volume(self, name: str) -> PersistentVolume | None: ...

    def volume_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None: ...

    def has_pod(self, pod: Pod) -> bool: ...

    async def wait_for(
        self, volumes: PodVolumes, check: Callable[[], bool | str], timeout_ms: int
    ) -> bool | str:
        """Return the result of `check` once it is not False, or False when the time is over."""


class VolumeBinder:
    """Volumes of one pod in the course of its binding."""

    def __init__(
        self,
        pod: Pod,
        node: str,
        volumes: PodVolumes,
        writer: VolumeWriter,
        cluster: VolumeCluster,
        on_volume: OnVolume,
    ) -> None:
        self._pod = pod
        self._node = node
        self._bindings = list(volumes.static_bindings)
        self._provisions = list(volumes.dynamic_provisions)
        self._writer = writer
        self._cluster = cluster
        self._on_volume = on_volume

    @property
    def volumes(self) -> PodVolumes:
        """Volumes and claims as the API has them."""
        return PodVolumes(tuple(self._bindings), tuple(self._provisions))

    async def write(self, calls: RetriedCalls) -> BindFailure | None:
        """Write the chosen volumes and the selected node, in order; the first error ends it."""
        for index, binding in enumerate(self._bindings):
            volume, claim = binding.volume, binding.claim
            if _is_written(volume, claim):
                continue
            written = await self._apply(
                calls,
                self._writer.bind_volume,
                (volume, claim),
                self._writer.read_volume,
                self._writer.fence_volume,
                lambda fresh, claim=claim: _is_written(fresh, claim),  # type: ignore[misc]
            )
            if isinstance(written, BindFailure):
                return written
            self._bindings[index] = StaticBinding(written, claim)
        for index, provision in enumerate(self._provisions):
            if provision.claim.selected_node == self._node and provision.claim.metadata.resource_version:
                known = self._cluster.volume_claim(*provision.claim.metadata.key)
                if known is not None and known.selected_node == self._node:
                    continue  # by an earlier attempt, or for another pod with the claim
            requested = await self._apply(
                calls,
                self._writer.select_node,
                (provision.claim, self._node),
                self._writer.read_volume_claim,
                self._writer.fence_volume_claim,
                lambda fresh: fresh.selected_node == self._node,
            )
            if isinstance(requested, BindFailure):
                return requested
            self._provisions[index] = DynamicProvision(requested, provision.capacity)
        return None

    async def _apply(
        self,
        calls: RetriedCalls,
        write: Callable[..., Awaitable[T]],
        args: tuple[Any, ...],
        read: Callable[[T], Awaitable[T | None]],
        fence: Callable[[T], Awaitable[T | None]],
        is_applied: Callable[[T], bool],
    ) -> T | BindFailure:
        """Make a write to the first argument; if its outcome is unknown, read or fence the object."""
        target: T = args[0]
        try:
            written = await calls.retry(write, *args)
        except InputError as error:
            failed = _failure(str(error), error)
            if not calls.is_uncertain(error):
                return failed
        else:
            self._on_volume(written)
            return written
        fresh = await retry_until_answered(calls.writer, read, target)
        version = target.metadata.resource_version
        if fresh is not None and calls.uncertain and fresh.metadata.resource_version == version:
            fresh = await retry_until_answered(calls.writer, fence, target)
        if fresh is None:
            return failed
        self._on_volume(fresh)
        return fresh if is_applied(fresh) else failed

    async def wait_until_bound(self, timeout_ms: int = VOLUME_TIMEOUT_MS) -> BindFailure | None:
        """Wait until every claim is bound; fail if that was given up, or when the time is over."""
        result = await self._cluster.wait_for(self.volumes, self.check, timeout_ms)
        if result is True:
            return None
        return _failure(f"binding volumes: {result or 'context deadline exceeded'}")

    def check(self) -> bool | str:
        """Return whether all claims are bound, or why they will not be."""
        node = self._cluster.node(self._node)
        if node is None:
            return f'failed to get node "{self._node}": node "{self._node}" not found'
        if not self._cluster.has_pod(self._pod):
            return f'pod does not exist any more: pod "{self._pod.metadata.name}" not found'
        for binding in self._bindings:
            result = self._check_binding(binding, node)
            if result is not True:
                return result
        for provision in self._provisions:
            result = self._check_provision(provision.claim, node)
            if result is not True:
                return result
        return True

    def _check_binding(self, binding: StaticBinding, node: Node) -> bool | str:
        name, claim = binding.volume.metadata.name, binding.claim.metadata
        volume = self._cluster.volume(name)
        if volume is None:
            return f'failed to check binding: persistentvolumes "{name}" not found'
        fresh = self._cluster.volume_claim(*claim.key)
        if fresh is None:
            return f'failed to check binding: persistentvolumeclaims "{claim.full_name}" not found'
        problem = _affinity_problem(volume, node)
        if problem:
            return problem
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            return f'ClaimRef got reset for pv "{name}"'
        return fresh.bound

    def _check_provision(self, claim: PersistentVolumeClaim, node: Node) -> bool | str:
        fresh = self._cluster.volume_claim(*claim.metadata.key)
        if fresh is None:
            return (
                f'failed to check provisioning pvc: persistentvolumeclaims "{claim.metadata.full_name}" '
                "not found"
            )
        if not fresh.metadata.annotations:
            return f'selectedNode annotation reset for PVC "{fresh.metadata.name}"'
        if fresh.selected_node != self._node:  # the provisioner could not create the volume
            return f'provisioning failed for PVC "{fresh.metadata.name}"'
        if fresh.spec.volume_name:
            volume = self._cluster.volume(fresh.spec.volume_name)
            if volume is None:
                return False  # the claim may be known before its volume is
            problem = _affinity_problem(volume, node)
            if problem:
                return problem
        return fresh.bound


class RetriedCalls(Protocol):
    """Calls of a binding that are repeated until there is a response (`BindTransaction`)."""

    writer: BindingWriter

    @property
    def uncertain(self) -> bool:
        """True if a write had no definite response."""

    async def retry(self, call: Callable[..., Awaitable[T]], *args: object) -> T: ...

    def is_uncertain(self, error: InputError) -> bool: ...


def find_volume_targets(
    pods: Sequence[Pod], claims_of: Callable[[Pod], Sequence[PersistentVolumeClaim]]
) -> list[PersistentVolumeClaim]:
    """Return the claims for which a previous leader may still be requesting a volume.

    Writes to volumes are not among them: one that is applied late makes a volume refer to a claim that is
    bound to another one, and the volume controller removes such a reference.
    """
    found: dict[tuple[str, str], PersistentVolumeClaim] = {}
    for pod in pods:
        if pod.spec.node_name or not pod.spec.volumes:
            continue
        for claim in claims_of(pod):
            if not claim.spec.volume_name and claim.selected_node is None:
                found[claim.metadata.key] = claim
    return list(found.values())


def _is_written(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    return reference is not None and volume.is_bound_to(claim) and reference.uid == claim.metadata.uid


def _affinity_problem(volume: PersistentVolume, node: Node) -> str:
    affinity: NodeSelector | None = volume.required_affinity
    unnamed = Node(metadata=ObjectMeta(labels=node.metadata.labels))
    matches = True if affinity is None else selector_matches(affinity, unnamed)
    if matches is True:
        return ""
    name, where = volume.metadata.name, node.metadata.name
    why = "no matching NodeSelectorTerms" if matches is False else matches
    return f'pv "{name}" node affinity doesn\'t match node "{where}": {why}'


def _failure(error: str, cause: InputError | None = None) -> BindFailure:
    return BindFailure(BindStep.VOLUMES, format_bind_error(BindError.VOLUMES, error=error), cause=cause)
