"""Suite `field-dropping`: stored objects after defaulting and dropping of gated fields.

Compares `stored` and `valid`. The two trees are brought to one form first, only where Go's encoder leaves the
form open: null, an empty list, map or text, false and zero are absent (`omitempty`), unless the field is a
pointer upstream, where zero means something. Of pods only the DRA fields are compared.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.api_rows import NOW_TEXT, prepare_row

#: Fields for which false, zero and "" are values of their own.
_POINTERS = frozenset(
    (
        "adminAccess",
        "allNodes",
        "allowMultipleAllocations",
        "bindsToNode",
        "bool",
        "capacityKey",
        "distinctAttribute",
        "extendedResourceName",
        "int",
        "matchAttribute",
        "nodeName",
        "perDeviceNodeSelection",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "shareID",
        "string",
        "tolerationSeconds",
        "version",
    )
)

_CHARGES = ("extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses")


def check(row: dict[str, Any]) -> str | None:
    prepared = prepare_row(row)
    stored, wanted = prepared.tree, row["stored"]
    if row["kind"] == "Pod":
        stored, wanted = _dra_parts(stored), _dra_parts(wanted)
    difference = _differ("", _settle(wanted), _settle(stored))
    if difference is not None:
        return difference
    if (not prepared.errors) != row["valid"]:
        return f"valid {not prepared.errors}, wanted {row['valid']}: {list(map(str, prepared.errors))}"
    return None


def _dra_parts(pod: dict[str, Any]) -> dict[str, Any]:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    return {
        "generation": pod["metadata"].get("generation"),
        "resourceClaims": spec.get("resourceClaims"),
        "claims": [
            [container.get("resources", {}).get("claims") or None for container in spec.get(group, ())]
            for group in ("containers", "initContainers")
        ],
        "resourceClaimStatuses": status.get("resourceClaimStatuses"),
        # Here the claim's name is no pointer upstream, so "" and absent are one.
        **{name: _drop_empty_names(status.get(name)) for name in _CHARGES},
    }


def _drop_empty_names(value: Any) -> Any:
    if isinstance(value, list):
        return [_drop_empty_names(item) for item in value]
    if isinstance(value, dict) and not value.get("resourceClaimName"):
        return {name: item for name, item in value.items() if name != "resourceClaimName"}
    return value


def _settle(value: Any, key: str = "") -> Any:
    """Return a tree with one spelling for equal values."""
    if isinstance(value, dict):
        settled = {name: _settle(item, name) for name, item in value.items()}
        return {
            name: item
            for name, item in settled.items()
            if not (item is None or item in ([], {}) or (not item and name not in _POINTERS))
        }
    if isinstance(value, list):
        return [_settle(item, key) for item in value]
    return NOW_TEXT if value == "<now>" else value


def _differ(path: str, wanted: Any, found: Any) -> str | None:
    """Return the first difference between two trees."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in sorted(wanted.keys() | found.keys()):
            difference = _differ(f"{path}.{name}", wanted.get(name), found.get(name))
            if difference is not None:
                return difference
        return None
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        texts = (_differ(f"{path}[{place}]", a, b) for place, (a, b) in pairs)
        return next((text for text in texts if text is not None), None)
    return None if wanted == found else f"{path.lstrip('.')} is {found!r}, wanted {wanted!r}"
