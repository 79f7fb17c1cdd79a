"""Probe of the fields that an API server stores: fields behind a disabled feature gate are dropped silently.

Nothing is written. The status of an existing pod is patched in a dry run with a charge of a claim that the
pod does not have: a server that stores charges refuses the entry by name, or returns it; one that drops them
accepts the patch and returns none. A claim created in a dry run answers for consumable capacity. Then the
server's metrics are asked, where they may be read, and then devices that exist. A fact that nothing shows is
None, for unknown.

Gates change when an API server restarts, so callers repeat the probe, once a minute: it takes one or two
requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.forms import device_forms, status_form
from plimsoll.api.resource import ResourceSlice
from plimsoll.client.client import Client
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, UnreachableError

#: Gate of claim charges in pod statuses and of mappings of devices: a server stores both or neither.
CHARGES_GATE = "DRANodeAllocatableResources"
#: Gate of devices that several claims share by amounts.
CONSUMABLE_GATE = "DRAConsumableCapacity"
#: Seconds after which a caller repeats the probe.
PROBE_SECONDS = 60.0

_FIELD = "nodeAllocatableResourceClaimStatuses"
#: Pods that are tried: one may be gone, or in use by what refuses the request.
_MAX_PODS = 3
_NAME = "plimsoll-probe"
_GATE_METRIC = re.compile(rb'^kubernetes_feature_enabled\{name="(\w+)",[^}]*\} ([01])$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StoredFields:
    """Fields that an API server stores (True) or drops (False); None if nothing shows it."""

    #: Charges of claims in the statuses of pods.
    charges: bool | None = None
    #: Mappings of devices in slices to resources of their nodes.
    mappings: bool | None = None
    #: Amounts that claims draw from shared devices (DRAConsumableCapacity).
    consumable_capacity: bool | None = None

    def updated(self, found: StoredFields) -> StoredFields:
        """Return the facts of a later probe, and these where that one shows nothing."""
        return StoredFields(
            _first_known(found.charges, self.charges),
            _first_known(found.mappings, self.mappings),
            _first_known(found.consumable_capacity, self.consumable_capacity),
        )


async def probe_stored_fields(
    client: Client, pods: Iterable[Pod], slices: Iterable[ResourceSlice] = ()
) -> StoredFields:
    """Return the fields that a server stores, given the pods and slices that it has.

    Raises UnreachableError without a server; a refused request leaves a field unknown.
    """
    devices = [device for each in slices for device in each.spec.devices or ()]
    charges = await _probe_charges(client, pods)
    consumable = await _probe_consumable_capacity(client)
    if charges is None or consumable is None:
        gates = await read_feature_gates(client)
        if gates:  # a gate that is not listed is of a later release
            charges = _first_known(charges, gates.get(CHARGES_GATE, False))
            consumable = _first_known(consumable, gates.get(CONSUMABLE_GATE, False))
    # What an object has was stored once; a gate may have been disabled since.
    mappings = charges
    if mappings is None and any(map(device_forms, devices)):
        mappings = True
    if consumable is None and any(device.allow_multiple_allocations for device in devices):
        consumable = True
    return StoredFields(charges, mappings, consumable)


async def read_feature_gates(client: Client) -> Mapping[str, bool]:
    """Return the feature gates in the metrics of an API server; empty if they may not be read."""
    try:
        reply = await client.call("GET", "/metrics", accept="text/plain")
    except UnreachableError:
        raise
    except ApiError:
        return {}
    return {name.decode(): value == b"1" for name, value in _GATE_METRIC.findall(reply.body)}


async def _probe_charges(client: Client, pods: Iterable[Pod]) -> bool | None:
    # A server keeps the field of a pod that has it, whatever its gate.
    candidates = (pod for pod in pods if status_form(pod.status) is None)
    for pod in islice(candidates, _MAX_PODS):
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": {_FIELD: [_charge(pod)]}}
        try:
            stored = await client.patch(
                PODS, meta.name, patch, meta.namespace, subresource="status", dry_run=True
            )
        except UnreachableError:
            raise
        except ApiError as error:
            if _names_field(error, f"status.{_FIELD}"):
                return True
            continue
        return bool((stored.get("status") or {}).get(_FIELD))
    return None


def _charge(pod: Pod) -> dict[str, Any]:
    """Return an entry in the forms of 1.36 and 1.37 at once; servers ignore fields that they do not know."""
    containers = [each.name for each in pod.spec.containers[:1]]
    mapping = [{"name": "cpu", "quantity": "1m"}]
    return {
        "resourceClaimName": _NAME,
        "containers": containers,
        "resources": {"cpu": "1m"},
        "mapping": mapping,
    }


async def _probe_consumable_capacity(client: Client) -> bool | None:
    request = {"deviceClassName": _NAME, "capacity": {"requests": {"probe": "1"}}}
    claim = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {"generateName": f"{_NAME}-"},
        "spec": {"devices": {"requests": [{"name": "probe", "exactly": request}]}},
    }
    try:
        stored = await client.create(RESOURCE_CLAIMS, claim, dry_run=True)
        (kept,) = stored["spec"]["devices"]["requests"]
    except UnreachableError:
        raise
    except (ApiError, LookupError, TypeError, ValueError):
        return None
    return bool((kept.get("exactly") or {}).get("capacity"))


def _first_known(fact: bool | None, other: bool | None) -> bool | None:
    return other if fact is None else fact


def _names_field(error: ApiError, path: str) -> bool:
    """Return whether a validation error names a field."""
    causes = error.details.get("causes")
    if error.code != 422 or not isinstance(causes, list):
        return False
    return any(isinstance(cause, dict) and str(cause.get("field", "")).startswith(path) for cause in causes)
