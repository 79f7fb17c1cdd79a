"""The first thing a newcomer sees: one node, two books, and what they add up to.

Owns the story that `plimsoll demo` tells over the objects in `demo.yaml`. Every number in it is computed from
those objects by the parts that exist: the dump reader, the wire forms, exact quantities, the selector
compiler and the validator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib.resources import files
from typing import TypeVar

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import DeviceRule, Form, device_forms, read_device
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import AllocationDevice, Device, ResourceClaim, ResourceSlice
from plimsoll.cluster.dump import Found, parse_objects
from plimsoll.tools.check import check_object
from plimsoll.tools.columns import lay_out
from plimsoll.tools.select import select_devices

T = TypeVar("T")

SELECTOR = (
    'device.driver == "gpu.example.com" && '
    'device.attributes["gpu.example.com"].model == "a100" && '
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
)
BROKEN_CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: wrong, namespace: default}
spec:
  devices:
    requests:
    - name: GPU
      exactly:
        deviceClassName: gpu.example.com
        allocationMode: Sometimes
        selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].memory >= "40Gi" + 1'}}]
"""


def tell(now: datetime) -> Iterator[str]:
    """The story, line by line."""
    text = files("plimsoll.tools").joinpath("demo.yaml").read_text(encoding="utf-8")
    objects = list(parse_objects(text, "demo.yaml"))
    yield from _tell_books(objects)
    yield ""
    yield from _tell_forms(objects)
    yield ""
    yield from _tell_selector(objects)
    yield ""
    yield from _tell_validation(now)


def _views(objects: Iterable[Found], view: type[T]) -> list[T]:
    """The objects of one kind."""
    return [codec.convert(found.tree, view) for found in objects if found.kind == view.__name__]


def _tell_books(objects: list[Found]) -> Iterator[str]:
    (node,) = _views(objects, Node)
    line = node.status.allocatable["cpu"]
    devices = _devices(objects)
    claims = {claim.metadata.name: claim for claim in _views(objects, ResourceClaim)}
    rows: list[tuple[str, ...]] = [("POD", "BY REQUESTS", "BY CLAIMS", "TOGETHER", "BECAUSE OF")]
    by_requests = by_claims = ZERO
    for pod in _views(objects, Pod):
        requested = sum((c.resources.requests.get("cpu", ZERO) for c in pod.spec.containers), ZERO)
        claimed, reasons = ZERO, []
        for reference in pod.spec.resource_claims:
            for result in _results(claims[reference.resource_claim_name or ""]):
                rule = read_device(devices[result.driver, result.pool, result.device]).get("cpu")
                if rule is not None:
                    claimed += _amount(rule, result)
                    reasons.append(f"{result.device} of {result.driver}")
        by_requests += requested
        by_claims += claimed
        rows.append(
            (pod.metadata.name, *map(_cpus, (requested, claimed, requested + claimed)), ", ".join(reasons))
        )
    together = by_requests + by_claims
    rows.append(("all", *map(_cpus, (by_requests, by_claims, together)), ""))
    yield f"{node.metadata.name} may carry {_cpus(line)} CPUs: that is its line."
    yield ""
    yield from lay_out(rows)
    yield ""
    left = (_cpus(line - by_requests), _cpus(line - by_claims))
    yield f"The book of requests has {left[0]} CPUs left, the book of claims {left[1]}."
    yield f"One book says: {_cpus(together - line)} CPUs past the line."


def _devices(objects: list[Found]) -> dict[tuple[str, str, str], Device]:
    return {
        (piece.spec.driver, piece.spec.pool.name, device.name): device
        for piece in _views(objects, ResourceSlice)
        for device in piece.spec.devices or ()
    }


def _results(claim: ResourceClaim) -> tuple[AllocationDevice, ...]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def _amount(rule: DeviceRule, result: AllocationDevice) -> Quantity:
    multiplier = Quantity.of(1) if rule.multiplier is None else rule.multiplier
    if rule.capacity_key is None:
        return multiplier
    return result.consumed_capacity.get(rule.capacity_key, ZERO).multiply(multiplier)


def _cpus(amount: Quantity) -> str:
    whole, milli = divmod(amount.milli(), 1000)
    return f"{whole}.{milli:03d}".rstrip("0").rstrip(".") if milli else str(whole)


def _tell_forms(objects: list[Found]) -> Iterator[str]:
    yield "The three drivers write their charges in three forms; they are read as one:"
    yield ""
    rows = [("DEVICE", "FORM", "CHARGES PER ALLOCATION")]
    fields = {
        Form.V1_36: "nodeAllocatableResourceMappings",
        Form.V1_37: "nodeAllocatableResources",
        Form.DRAFT: "nativeResourceMappings",
    }
    for (driver, _, name), device in _devices(objects).items():
        (form,) = device_forms(device)
        charges = [
            f"{resource}: {rule.multiplier or 1}"
            + (f" x consumed {rule.capacity_key}" if rule.capacity_key else "")
            for resource, rule in read_device(device).items()
        ]
        rows.append((f"{driver}/{name}", f"{form.value} ({fields[form]})", ", ".join(charges)))
    yield from lay_out(rows)


def _tell_selector(objects: list[Found]) -> Iterator[str]:
    yield "A selector, compiled, over all devices:"
    yield f"  {SELECTOR}"
    yield ""
    rows = [("DEVICE", "ANSWER")]
    for answer in select_devices(SELECTOR, objects):
        rows.append((answer.device, answer.text))
    yield from lay_out(rows)


def _tell_validation(now: datetime) -> Iterator[str]:
    yield "A claim with three mistakes, refused field by field:"
    yield ""
    (found,) = parse_objects(BROKEN_CLAIM, "claim")
    for problem in check_object(found.tree, now).problems:
        yield f"  {problem}"
