"""Resources by their store keys, such as `pods` or `resourceclaims.resource.k8s.io`."""

from __future__ import annotations

from plimsoll.apiserver.registry.resources import RESOURCES

RESOURCE_BY_KEY = {row.key: row for row in RESOURCES}
