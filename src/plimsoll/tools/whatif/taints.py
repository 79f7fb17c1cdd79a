"""Parsing of taints in kubectl's syntax.

`key=value:effect` for nodes (a trailing hyphen removes the taint) and
`driver=D,pool=P,device=V:key=value:effect` for devices, which becomes a DeviceTaintRule.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import Taint
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from plimsoll.errors import InputError
from plimsoll.tools.node_terms import taint_text
from plimsoll.tools.whatif.manifests import CREATION_TIME

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
DEVICE_EFFECTS = ("NoSchedule", "NoExecute", "None")


def parse_taint(text: str) -> tuple[Taint, bool]:
    """Return the node taint and whether it is to be removed (`key:effect-` or `key-`)."""
    gone = text.endswith("-")
    body = text.removesuffix("-")
    head, colon, effect = body.rpartition(":")
    if not colon:
        head, effect = body, ""
    key, _, value = head.partition("=")
    if not key or (not gone and effect not in EFFECTS) or (gone and effect and effect not in EFFECTS):
        raise InputError(f"{text!r}: invalid taint: use KEY=VALUE:EFFECT, EFFECT one of {', '.join(EFFECTS)}")
    return Taint(key, value, effect, CREATION_TIME if effect == "NoExecute" else None), gone


def change_taints(taints: Sequence[Taint], taint: Taint, gone: bool) -> tuple[Taint, ...]:
    """Return the taints of a node with one added or removed; a key has one taint per effect."""
    kept = [each for each in taints if each.key != taint.key or taint.effect not in ("", each.effect)]
    if gone and len(kept) == len(taints):
        raise InputError(f"taint {taint_text(taint)}: not found")
    return tuple(kept) if gone else (*kept, taint)


def parse_device_taint(text: str, number: int = 0) -> DeviceTaintRule:
    """Return the DeviceTaintRule for `driver=..,pool=..,device=..:key=value:effect`."""
    usage = "use driver=D,pool=P,device=V:KEY=VALUE:EFFECT with at least one of the three"
    selected, colon, rest = text.partition(":")
    head, second, effect = rest.rpartition(":")
    if not colon or not second:
        raise InputError(f"{text!r}: invalid device taint: {usage}")
    fields: dict[str, str] = {}
    for part in selected.split(","):
        name, equals, value = part.partition("=")
        if name not in ("driver", "pool", "device") or not equals or not value or name in fields:
            raise InputError(f"{text!r}: invalid device selector {part!r}: {usage}")
        fields[name] = value
    key, _, value = head.partition("=")
    if not key or effect not in DEVICE_EFFECTS:
        raise InputError(f"{text!r}: the effect must be one of {', '.join(DEVICE_EFFECTS)}: {usage}")
    name = f"whatif-{number}"
    return DeviceTaintRule(
        "resource.k8s.io/v1beta2",
        "DeviceTaintRule",
        ObjectMeta(name=name, uid=f"whatif/DeviceTaintRule/{name}", creation_timestamp=CREATION_TIME),
        DeviceTaintRuleSpec(DeviceTaintSelector(**fields), DeviceTaint(key, value, effect, CREATION_TIME)),
    )
