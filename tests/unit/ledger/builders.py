"""Builders of nodes, slices, claims and pods for tests of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import PlacementCheck, check_placement
from plimsoll.ledger.profile import AccountingProfile

DRIVER = "dra.example.com"
NODE = "node-1"


def node(name: str = NODE, **allocatable: str) -> Node:
    """A node of 16 CPUs and 64Gi by default (`hugepages_1Gi="4Gi"` adds more)."""
    line = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    line |= {key.replace("_", "-"): text for key, text in allocatable.items()}
    return codec.convert({"metadata": {"name": name}, "status": {"allocatable": line}}, Node)


def device(name: str, *, shared: bool = False, capacity: Mapping[str, str] | None = None, **maps: Any) -> Any:
    """A device as JSON; `cpu="2"` charges per device, `cpu={...}` is a whole 1.36 mapping.

    Further forms are given as `fields={...}`.
    """
    fields = maps.pop("fields", {})
    mappings = {
        key.replace("_", "-"): {"allocationMultiplier": rule} if isinstance(rule, str) else rule
        for key, rule in maps.items()
    }
    tree: dict[str, Any] = {"name": name, **fields}
    if mappings:
        tree["nodeAllocatableResourceMappings"] = mappings
    if capacity:
        tree["capacity"] = {key: {"value": text} for key, text in capacity.items()}
    if shared:
        tree["allowMultipleAllocations"] = True
    return tree


def pool_device(name: str = "socket0", policy: str = "", **sizes: str) -> Any:
    """A shared device that hands out its capacity: `pool_device(cpu="128")`."""
    sizes = sizes or {"cpu": "128"}
    rules = {key: {"capacityKey": f"{DRIVER}/{key}"} for key in sizes}
    if policy:
        rules = {key: {**rule, "accountingPolicy": policy} for key, rule in rules.items()}
    capacity = {f"{DRIVER}/{key}": text for key, text in sizes.items()}
    return device(name, shared=True, capacity=capacity, **rules)


def resource_slice(
    *devices: Any, driver: str = DRIVER, pool: str = "pool", generation: int = 1, **spec: Any
) -> ResourceSlice:
    """A slice of these devices on the node."""
    where = spec or {"nodeName": NODE}
    of = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    return codec.convert({"spec": {"driver": driver, "pool": of, "devices": devices, **where}}, ResourceSlice)


def result(device: str, driver: str = DRIVER, pool: str = "pool", request: str = "r", **consumed: str) -> Any:
    """One allocation result; `cpu="4"` is what it consumes of the driver's capacity of that name."""
    tree: dict[str, Any] = {"request": request, "driver": driver, "pool": pool, "device": device}
    if consumed:
        tree["consumedCapacity"] = {f"{DRIVER}/{key}": text for key, text in consumed.items()}
    return tree


def claim(
    name: str,
    *results: Any,
    requests: Sequence[Any] = (),
    uid: str | None = None,
    reserved: Sequence[str] = (),
    namespace: str = "default",
) -> ResourceClaim:
    """A claim that is allocated to these results (not allocated if there are none)."""
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": u, "uid": u} for u in reserved]}
    if results:
        status["allocation"] = {"devices": {"results": list(results)}}
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}" if uid is None else uid}
    return codec.convert(
        {"metadata": meta, "spec": {"devices": {"requests": list(requests)}}, "status": status}, ResourceClaim
    )


def device_class(name: str, **spec: Any) -> DeviceClass:
    return codec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def container(name: str, *claims: str, **requests: str) -> Any:
    """A container as JSON that refers to these claims of the pod."""
    amounts = {key.replace("_", "-"): text for key, text in requests.items()}
    return {"name": name, "resources": {"requests": amounts, "claims": [{"name": c} for c in claims]}}


def sidecar(name: str, *claims: str, **requests: str) -> Any:
    return {**container(name, *claims, **requests), "restartPolicy": "Always"}


def pod(
    name: str,
    *containers: Any,
    init: Sequence[Any] = (),
    claims: Sequence[str] | None = None,
    status: Mapping[str, Any] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> Pod:
    """A pod whose claims go by their own names; those its containers refer to unless `claims` says more."""
    everyone = [*init, *containers]
    referred = [c["name"] for one in everyone for c in one.get("resources", {}).get("claims", [])]
    names = dict.fromkeys([*(claims or ()), *referred])
    entries = spec.pop("resourceClaims", [{"name": n, "resourceClaimName": n} for n in names])
    full = {
        "containers": list(containers),
        "initContainers": list(init),
        "resourceClaims": entries,
        **spec,
    }
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return codec.convert({"metadata": meta, "spec": full, "status": dict(status or {})}, Pod)


class LedgerFixture:
    """A node with its slices, claims and classes: what a scheduler sees when it looks at a pod."""

    def __init__(
        self,
        *pieces: ResourceSlice,
        claims: Sequence[ResourceClaim] = (),
        classes: Sequence[DeviceClass] = (),
        profile: AccountingProfile | None = None,
        gates: Gates | None = None,
        **allocatable: str,
    ) -> None:
        self.profile = profile or AccountingProfile.default()
        self.node = node(**allocatable)
        self.ledger = NodeLedger(self.node, gates, self.profile)
        self.claims = {found.metadata.name: found for found in claims}
        index = DeviceIndex(pieces, self.profile)
        self.charge_context = ChargeContext(
            index, self.node, {c.metadata.name: c for c in classes}, self.profile
        )

    def check_placement(self, pod: Pod, *new: str) -> PlacementCheck:
        """Judge a pod; the claims named are taken as allocated just now."""
        allocations = {}
        claims = dict(self.claims)
        for name in new:
            found = claims[name]
            assert found.status.allocation is not None
            allocations[name] = found.status.allocation
            claims[name] = claim(name, uid=found.metadata.uid, namespace=found.metadata.namespace)
        return check_placement(self.ledger, pod, claims, allocations, self.charge_context)

    def place(self, pod: Pod) -> tuple[ChargedClaim, ...]:
        """Check that a pod fits and add it."""
        judged = self.check_placement(pod)
        assert judged.verdict.fits, judged.verdict
        self.ledger.assume(pod, judged.charged_claims or ())
        self.ledger.add(pod, judged.charged_claims or ())
        return judged.charged_claims or ()

    @property
    def cpu(self) -> int:
        """Return what is requested of CPU, in thousandths."""
        return self.ledger.requested.get("cpu", 0)

    def cost(self, pod: Pod) -> int:
        """Return what placing a pod adds to the CPU requested."""
        before = self.cpu
        self.place(pod)
        after = self.cpu
        self.ledger.remove(pod)
        assert self.cpu == before
        return after - before


def policies(**by_resource: str) -> dict[str, str]:
    """Return what a class says under `nodeAllocatableResourceAccountingPolicies`."""
    return {key.replace("_", "-"): policy for key, policy in by_resource.items()}
