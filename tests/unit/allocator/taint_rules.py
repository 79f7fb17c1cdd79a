"""DeviceTaintRules of tests."""

from __future__ import annotations

from plimsoll.api.codec import convert
from plimsoll.api.resource import DeviceTaintRule


def taint_rule(**selector: str) -> DeviceTaintRule:
    spec = {"taint": {"key": "sick", "effect": "NoSchedule"}, "deviceSelector": selector}
    return convert({"spec": spec}, DeviceTaintRule)
