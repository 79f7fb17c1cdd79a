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

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from plimsoll.api.core import Node, Pod
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.errors import InputError
from plimsoll.scheduler.binding.attempts import BindAttempts, make_failure
from plimsoll.scheduler.binding.pod_conditions import BindError
from plimsoll.scheduler.binding.result import BindFailure, BindStep
from plimsoll.scheduler.binding.writer import BindingWriter, retry_until_answered
from plimsoll.scheduler.filters.volume_reach import is_reachable
from plimsoll.scheduler.result import Placement, StaticBinding

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)
OnVolume: TypeAlias = Callable[[PersistentVolume | PersistentVolumeClaim], None]


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
        self, names: Collection[tuple[str, str]], check: Callable[[], bool | str], timeout_ms: int
    ) -> bool | str:
        """Return the result of `check` once it is not False, or False when the time is over.

        `names` are the namespaces and names of the volumes and claims whose changes matter.
        """


class VolumeBinder(BindAttempts):
    """Volumes of one pod in the course of its binding."""

    def __init__(
        self,
        placement: Placement,
        writer: BindingWriter,
        volume_writer: VolumeWriter,
        cluster: VolumeCluster,
        on_volume: OnVolume = lambda volume: None,
    ) -> None:
        """Create a binder; `on_volume` receives the volumes and claims in responses."""
        super().__init__(placement.pod_info.stored, writer, lambda claim: None, placement.node)
        self._bindings = list(placement.volumes.static_bindings)
        self._provisions = list(placement.volumes.dynamic_provisions)
        self._timeout_ms = placement.pod_info.profile.volume_timeout_ms
        self._volume_writer = volume_writer
        self._cluster = cluster
        self._on_volume = on_volume

    async def write(self) -> BindFailure | None:
        """Write the chosen volumes and the selected node, in order; the first error ends it.

        What an earlier attempt or another pod with the claim has written is not written again.
        """
        writer = self._volume_writer
        for binding in self._bindings:
            volume, claim = binding.volume, binding.claim
            known = self._cluster.volume(volume.metadata.name)
            if known is not None and _refers_to(known, claim):
                continue
            if known is not None and known.metadata.resource_version == volume.metadata.resource_version:
                volume = known  # without what is assumed
            write, is_written = partial(writer.bind_volume, claim=claim), partial(_refers_to, claim=claim)
            failed = await self._apply(volume, write, is_written, writer.read_volume, writer.fence_volume)
            if failed is not None:
                return failed
        for provision in self._provisions:
            claim = provision.claim
            requested = self._cluster.volume_claim(*claim.metadata.key)
            if requested is not None and requested.selected_node == self.node:
                continue
            failed = await self._apply(
                claim,
                partial(writer.select_node, node=self.node),
                lambda fresh: fresh.selected_node == self.node,
                writer.read_volume_claim,
                writer.fence_volume_claim,
            )
            if failed is not None:
                return failed
        return None

    async def _apply(
        self,
        target: T,
        write: Callable[[T], Awaitable[T]],
        is_written: Callable[[T], bool],
        read: Callable[[T], Awaitable[T | None]],
        fence: Callable[[T], Awaitable[T | None]],
    ) -> BindFailure | None:
        """Make a write; if its outcome is unknown, read or fence the object."""
        try:
            self._on_volume(await self._retry(write, target))
            return None
        except InputError as error:
            failed = make_failure(BindStep.VOLUMES, BindError.VOLUMES, error, problem=error)
            if not self._is_uncertain(error):
                return failed
        fresh = await retry_until_answered(self.writer, read, target)
        version = target.metadata.resource_version
        if fresh is not None and self._uncertain and fresh.metadata.resource_version == version:
            fresh = await retry_until_answered(self.writer, fence, target)
        if fresh is None:
            return failed
        self._on_volume(fresh)
        return None if is_written(fresh) else failed

    async def fence(self) -> None:
        """Fence every volume and claim, so that no write of this binding is applied later."""
        writer = self._volume_writer
        for binding in self._bindings:
            volume = await retry_until_answered(self.writer, writer.fence_volume, binding.volume)
            if volume is not None:
                self._on_volume(volume)
        for provision in self._provisions:
            claim = await retry_until_answered(self.writer, writer.fence_volume_claim, provision.claim)
            if claim is not None:
                self._on_volume(claim)

    async def wait_until_bound(self) -> BindFailure | None:
        """Wait until every claim is bound; fail if that was given up, or when the time is over."""
        names = [binding.volume.metadata.key for binding in self._bindings]
        names += [binding.claim.metadata.key for binding in self._bindings]
        names += [provision.claim.metadata.key for provision in self._provisions]
        result = await self._cluster.wait_for(names, self.check, self._timeout_ms)
        if result is True:
            return None
        problem = f"binding volumes: {result or 'context deadline exceeded'}"
        return make_failure(BindStep.VOLUMES, BindError.VOLUMES, None, problem=problem)

    def check(self) -> bool | str:
        """Return whether all claims are bound, or why they will not be."""
        node, pod = self._cluster.node(self.node), self.pod
        if node is None:
            return f'failed to get node "{self.node}": node "{self.node}" not found'
        if not self._cluster.has_pod(pod):
            return f'pod does not exist any more: pod "{pod.metadata.name}" not found'
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
        if fresh.selected_node != self.node:  # the provisioner could not create the volume
            return f'provisioning failed for PVC "{fresh.metadata.name}"'
        if fresh.spec.volume_name:
            volume = self._cluster.volume(fresh.spec.volume_name)
            if volume is None:
                return False  # the claim may be known before its volume is
            problem = _affinity_problem(volume, node)
            if problem:
                return problem
        return fresh.bound


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


def _refers_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    return reference is not None and volume.is_bound_to(claim) and reference.uid == claim.metadata.uid


def _affinity_problem(volume: PersistentVolume, node: Node) -> str:
    affinity = volume.required_affinity
    if affinity is None or is_reachable(affinity, node):
        return ""
    name, where = volume.metadata.name, node.metadata.name
    return f'pv "{name}" node affinity doesn\'t match node "{where}": no matching NodeSelectorTerms'
