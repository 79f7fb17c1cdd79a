"""Validation of the slices and classes that a device file produces.

Drivers do not validate; this check reports mistakes when the file is read rather than when the API server
rejects the objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from plimsoll.api.forms import Form
from plimsoll.drivers.fake.devices import make_devices
from plimsoll.drivers.fake.plan import DriverPlan
from plimsoll.drivers.plugin import DevicePool
from plimsoll.drivers.plugin.slices import PoolError, build_slices
from plimsoll.errors import ConfigError
from plimsoll.tools.check import check_object


def check_plan(plan: DriverPlan, form: Form | None = Form.V1_37) -> tuple[str, ...]:
    """Return all validation errors of a driver's slices and classes."""
    now = datetime.now(UTC)
    return tuple(
        dict.fromkeys(
            str(problem)
            for tree in (*slice_trees(plan, "node", form), *plan.device_classes())
            for problem in check_object(tree, now).problems
        )
    )


def require_valid_plan(plan: DriverPlan, form: Form | None = Form.V1_37) -> None:
    """Raise ConfigError if the API server would reject what the driver publishes."""
    problems = check_plan(plan, form)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{plan.where}: the API server would reject its objects: {problems[0]}{more}")


def slice_trees(plan: DriverPlan, node: str, form: Form | None) -> Iterator[dict[str, Any]]:
    """Yield the slices of a driver on a node as first published."""
    inventory = make_devices(plan, node, form)
    devices = [device.tree for device in inventory.devices.values()]
    parts = build_slices(DevicePool(inventory.pool, devices, inventory.counter_trees()))
    if isinstance(parts, PoolError):
        raise ConfigError(f"{plan.where}: {parts}")
    for part in parts:
        pool = {"name": inventory.pool, "generation": 1, "resourceSliceCount": len(parts)}
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{plan.name}-{part.index}"},
            "spec": {"driver": plan.name, "nodeName": node, "pool": pool, **part.content},
        }
