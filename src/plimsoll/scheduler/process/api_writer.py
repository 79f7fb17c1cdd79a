"""API writes of the scheduler, as small patches.

`ApiWriter` implements the `BindingWriter` interface of `scheduler/binding/writer.py` and the status patches
of pending pods. Only changed fields are sent, so that unknown fields are preserved. Each write has the UID
and, unless it only adds something, the resourceVersion as preconditions. A call is made once; `bind_pod`
repeats it if necessary.

Fencing: an annotation with a new value gives an object a new resourceVersion, so that every conditional write
sent before is refused, however late it arrives.

Pods that share a claim do not write it one by one: their reservations are collected (`shared_claims.py`).
Charges of claims are written by `charge_writer.py`, volumes by `volume_writer.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar
from uuid import uuid4

from msgspec.structs import replace as with_fields

from plimsoll.api import codec
from plimsoll.api.core import ExtendedResourceClaimStatus, Pod
from plimsoll.api.forms import ClaimCharge
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from plimsoll.api.timestamps import format_time
from plimsoll.client.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS, Endpoint
from plimsoll.client.retries import Backoff
from plimsoll.client.transport import Reply
from plimsoll.errors import ApiError
from plimsoll.scheduler.binding.writer import FINALIZER
from plimsoll.scheduler.process.charge_writer import ChargeForm, ChargeWriter
from plimsoll.scheduler.process.claim_waiters import ClaimWaiters
from plimsoll.scheduler.process.shared_claims import MERGE, STRATEGIC, SharedClaims, preconditions
from plimsoll.scheduler.process.volume_writer import VolumeApiWriter

LOG = logging.getLogger("plimsoll.scheduler")

T = TypeVar("T")
_JSON = "application/json"
_BACKOFF = Backoff(first=0.05, most=5.0)
#: Suffixes of generated names, as the API server makes them.
_NAME_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_GENERATED_NAME_MAX = 63
#: Annotation whose change gives claims and pods a new resourceVersion.
FENCE_KEY = "plimsoll.dev/write-fence"


class ApiWriter:
    """Writer with one client."""

    def __init__(
        self,
        client: Client,
        charge_form: ChargeForm = ChargeForm.AUTO,
        *,
        claims: Endpoint = RESOURCE_CLAIMS,
        claim_waiters: ClaimWaiters | None = None,
        reads_new_form: Callable[[str], bool] = lambda node: False,
        sets_timestamps: bool = True,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.requests = 0  #: number of calls made
        #: Called with whether the creation of a claim for extended resources succeeded.
        self.on_claim_creation: Callable[[bool], None] = lambda succeeded: None
        self.client = client
        self._claims = claims
        self._random = random or Random()
        self._sleep = sleep
        self._now = now
        self._new_id = new_id
        self._reads_new_form = reads_new_form
        self._sets_timestamps = sets_timestamps
        #: Called when the server turns out to drop charges.
        self.on_charges_dropped: Callable[[], None] = lambda: None
        self._charges = ChargeWriter(
            charge_form, self._patch_pod_status, on_dropped=lambda: self.on_charges_dropped()
        )
        #: Writer of volumes and volume claims.
        self.volumes = VolumeApiWriter(self._call, FENCE_KEY, new_id)
        self._shared_claims = SharedClaims(self._patch_claim, self.find_claim, FENCE_KEY, new_id)
        self.claim_waiters = claim_waiters or ClaimWaiters(self.read_claim, now=now)

    # -- claims

    def name_claim(self, claim: ResourceClaim) -> ResourceClaim:
        meta = claim.metadata
        suffix = "".join(self._random.choices(_NAME_CHARACTERS, k=_SUFFIX_LENGTH))
        name = meta.generate_name[: _GENERATED_NAME_MAX - _SUFFIX_LENGTH] + suffix
        return with_fields(claim, metadata=with_fields(meta, name=name, uid="", finalizers=(FINALIZER,)))

    async def create_claim(self, claim: ResourceClaim) -> ResourceClaim:
        tree = {**codec.to_tree(claim), "apiVersion": self._claims.api_version, "kind": self._claims.kind}
        tree = self.client.to_served(self._claims, tree)
        path = self.client.served_endpoint(self._claims).path(claim.metadata.namespace)
        try:
            reply = await self._call("POST", path, codec.encode(tree), _JSON)
        except ApiError:
            self.on_claim_creation(False)
            raise
        self.on_claim_creation(True)
        return self._read_claim(reply)

    async def find_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        try:
            return self._read_claim(await self._call("GET", self._claim_path(claim), None, ""))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        rest = [each for each in claim.metadata.finalizers if each != FINALIZER]
        body = {"metadata": {**preconditions(claim), "finalizers": rest}}
        return await self._patch_claim(claim, body, MERGE)

    async def delete_claim(self, claim: ResourceClaim) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": claim.metadata.uid}}
        await self._call("DELETE", self._claim_path(claim), codec.encode(body), _JSON)

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        body = {"metadata": {"uid": claim.metadata.uid, "finalizers": [FINALIZER]}}
        return await self._patch_claim(claim, body, STRATEGIC)

    async def write_allocation(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ResourceClaimConsumerReference
    ) -> ResourceClaim:
        """Write allocation and reservation in one patch.

        The timestamp is set as by kube-scheduler: on every allocation while the gates of binding conditions
        are enabled. DIFF: a reservation does not add it to an allocation of others that has none
        (test_a_reservation_does_not_change_the_allocation); upstream tries to, and is refused because an
        allocation is immutable.
        """
        if self._sets_timestamps and allocation.allocation_timestamp is None:
            now = format_time(self._now().timestamp())
            allocation = with_fields(allocation, allocation_timestamp=now)
        body = {
            "metadata": preconditions(claim),
            "status": {"allocation": allocation, "reservedFor": [consumer]},
        }
        return await self._patch_claim(claim, body, STRATEGIC, "/status")

    async def reserve(self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> ResourceClaim:
        return await self._shared_claims.reserve(claim, consumer)

    async def unreserve(
        self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference, *, deallocate: bool = False
    ) -> ResourceClaim:
        if not deallocate:
            return await self._shared_claims.unreserve(claim, consumer)
        cleared = {"allocation": None, "reservedFor": None, "devices": None}
        return await self._patch_claim(
            claim, {"metadata": preconditions(claim), "status": cleared}, MERGE, "/status"
        )

    async def fence_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        return await self._shared_claims.fence(claim)

    async def read_claim(self, claim: ResourceClaim) -> ResourceClaim | None:
        return await self._shared_claims.read(claim)

    async def wait_for(
        self, claim: ResourceClaim, predicate: Callable[[ResourceClaim], bool], timeout_ms: int
    ) -> ResourceClaim | None:
        return await self.claim_waiters.wait_for(claim, predicate, timeout_ms)

    # -- pods

    async def write_charges(self, pod: Pod, entries: Sequence[ClaimCharge], node: str) -> Pod:
        return await self._charges.write(pod, entries, newest_first=self._reads_new_form(node))

    async def write_claim_status(self, pod: Pod, status: ExtendedResourceClaimStatus | None) -> Pod:
        tree = None if status is None else codec.to_tree(status)
        reply = await self._patch_pod_status(pod, {}, {"extendedResourceClaimStatus": tree})
        return codec.decode(reply.body, Pod)

    async def clear_charges(self, pod: Pod) -> Pod:
        return await self._charges.clear(pod)

    async def fence_pod(self, pod: Pod) -> Pod | None:
        """Fence through the status subresource: schedulers may not patch pods."""
        meta = {"uid": pod.metadata.uid, "annotations": {FENCE_KEY: self._new_id()}}
        try:
            reply = await self._patch_pod(pod, {"metadata": meta}, STRATEGIC, "/status")
        except ApiError as error:
            if error.code == 404 or (error.code == 409 and await self.read_pod(pod) is None):
                return None
            raise
        return codec.decode(reply.body, Pod)

    async def bind(self, pod: Pod, node: str, entries: Sequence[ClaimCharge]) -> None:
        meta = pod.metadata
        head: dict[str, Any] = {"name": meta.name, "namespace": meta.namespace, **preconditions(pod)}
        annotations = self._charges.annotate_binding(pod, entries)
        if annotations:
            head["annotations"] = annotations
        body = codec.encode(
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": head,
                "target": {"kind": "Node", "name": node},
            }
        )
        await self._call("POST", _pod_path(pod) + "/binding", body, _JSON)

    async def read_pod(self, pod: Pod) -> Pod | None:
        fresh = await self._read(_pod_path(pod), Pod)
        return fresh if fresh is not None and fresh.metadata.uid == pod.metadata.uid else None

    async def patch_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Apply a patch of `plan_condition`, if the pod is unchanged."""
        await self._patch_pod(pod, {**patch, "metadata": preconditions(pod)}, STRATEGIC, "/status")

    async def _patch_pod_status(self, pod: Pod, metadata: dict[str, Any], status: dict[str, Any]) -> Reply:
        body = {"metadata": {**preconditions(pod), **metadata}, "status": status}
        return await self._patch_pod(pod, body, STRATEGIC, "/status")

    # -- calls

    async def gather(self, jobs: Sequence[Awaitable[T]]) -> list[T]:
        done = await asyncio.gather(*jobs, return_exceptions=True)
        found: list[T] = []
        for each in done:
            if isinstance(each, BaseException):
                raise each
            found.append(each)
        return found

    async def pause(self, attempt: int, error: ApiError) -> None:
        if attempt in (1, 5) or attempt % 20 == 0:
            LOG.warning("retrying a write (attempt %d): %s", attempt + 1, error)
        await self._sleep(_BACKOFF.delay(attempt, self._random))

    def _claim_path(self, claim: ResourceClaim) -> str:
        served = self.client.served_endpoint(self._claims)
        return f"{served.root}/namespaces/{claim.metadata.namespace}/{served.plural}/{claim.metadata.name}"

    def _read_claim(self, reply: Reply) -> ResourceClaim:
        return codec.decode(self.client.from_served(self._claims, reply.body), ResourceClaim)

    async def _patch_claim(
        self, claim: ResourceClaim, body: Any, kind: str, subresource: str = ""
    ) -> ResourceClaim:
        path = self._claim_path(claim) + subresource
        return self._read_claim(await self._call("PATCH", path, codec.encode(body), kind))

    def _patch_pod(self, pod: Pod, body: Any, kind: str, subresource: str) -> Coroutine[Any, Any, Reply]:
        return self._call("PATCH", _pod_path(pod) + subresource, codec.encode(body), kind)

    async def _read(self, path: str, view: type[T]) -> T | None:
        try:
            return codec.decode((await self._call("GET", path, None, "")).body, view)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _call(self, method: str, path: str, body: bytes | None, kind: str) -> Reply:
        self.requests += 1
        try:
            return await self.client.call(method, path, body=body, content_type=kind, harmless=False)
        except ApiError as error:
            if error.code == 422 and _is_uid_mismatch(error):
                raise ApiError(409, "Conflict", error.message, error.details) from None
            raise


def _is_uid_mismatch(error: ApiError) -> bool:
    """Return whether a patch was refused because another object has the name now."""
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(each, dict) and each.get("field") == "metadata.uid" for each in causes
    )


def _pod_path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
