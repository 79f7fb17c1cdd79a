"""Objects as clients create them, for controllers on an API in memory."""

from __future__ import annotations

from typing import Any


def template(name: str = "t") -> dict[str, Any]:
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}
    return {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}


def claim(name: str = "c") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": template()["spec"]["spec"]}


def pod(name: str, entries: dict[str, dict[str, str]], **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": entry} for entry in entries]}}
    claims = [{"name": entry, **source} for entry, source in entries.items()]
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": claims, **spec},
    }


def published(*taints: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "w",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "x", "taints": list(taints)}],
        },
    }
