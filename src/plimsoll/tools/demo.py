"""The first thing a newcomer sees: one node, two books, and what they add up to.

Owns the story that `plimsoll demo` tells over the objects in `demo.yaml`. Every number in it is computed from
those objects by the parts that exist: the dump reader, the wire forms, the ledger, the selector compiler and
the validator.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from importlib.resources import files

from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import Form, device_forms, read_device
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import Device, ResourceClaim, ResourceSlice
from plimsoll.cluster.dump import Found, parse_objects
from plimsoll.ledger.claims import Bill, Pricing
from plimsoll.ledger.devices import DeviceIndex
from plimsoll.ledger.judge import price_claims
from plimsoll.ledger.node import NodeLedger
from plimsoll.ledger.units import quantity_of
from plimsoll.tools.check import check_object
from plimsoll.tools.columns import lay_out
from plimsoll.tools.select import select_devices
from plimsoll.tools.views import views_of

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


def _tell_books(objects: list[Found]) -> Iterator[str]:
    (node,) = views_of(objects, Node)
    ledger = _book(objects, node)
    line = node.status.allocatable["cpu"]
    rows: list[tuple[str, ...]] = [("POD", "BY REQUESTS", "BY CLAIMS", "TOGETHER", "BECAUSE OF")]
    by_requests = by_claims = ZERO
    for entry in ledger.entries.values():
        lines = [found for found in entry.lines if found.resource == "cpu"]
        requested = sum((found.amount for found in lines if not found.claim), ZERO)
        claimed = sum((found.amount for found in lines if found.claim), ZERO)
        reasons = [f"{key.device} of {key.driver}" for found in lines for key in found.devices]
        by_requests += requested
        by_claims += claimed
        amounts = (requested, claimed, requested + claimed)
        rows.append((entry.pod.metadata.name, *map(_cpus, amounts), ", ".join(reasons)))
    together = quantity_of("cpu", ledger.requested["cpu"])
    rows.append(("all", *map(_cpus, (by_requests, by_claims, together)), ""))
    yield f"{node.metadata.name} may carry {_cpus(line)} CPUs: that is its line."
    yield ""
    yield from lay_out(rows)
    yield ""
    left = (_cpus(line - by_requests), _cpus(line - by_claims))
    yield f"The book of requests has {left[0]} CPUs left, the book of claims {left[1]}."
    yield f"One book says: {_cpus(together - line)} CPUs past the line."


def _book(objects: list[Found], node: Node) -> NodeLedger:
    """The node's ledger with every pod on it, whether it fits or not."""
    claims = {claim.metadata.name: claim for claim in views_of(objects, ResourceClaim)}
    pricing = Pricing(DeviceIndex(views_of(objects, ResourceSlice)), node)
    ledger = NodeLedger(node)
    for pod in views_of(objects, Pod):
        priced = price_claims(pod, claims, {}, pricing)
        ledger.add(pod, [bill for bill in priced if isinstance(bill, Bill)])
    return ledger


def _devices(objects: list[Found]) -> dict[tuple[str, str, str], Device]:
    return {
        (piece.spec.driver, piece.spec.pool.name, device.name): device
        for piece in views_of(objects, ResourceSlice)
        for device in piece.spec.devices or ()
    }


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
