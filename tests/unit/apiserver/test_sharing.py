"""Patched objects share parts with the stored object: neither changes through the other."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.apiserver.handlers.write import WriteHandler
from tests.coroutines import run_by
from tests.unit.apiserver.build import MAPS, PODS, ApiHarness, config_map, pod, run

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLAIM = {
    "metadata": {"name": "c", "labels": {"a": "b"}},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}},
}
TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
STATUS = {"conditions": [{"type": "Ready", "status": "True"}]}
CASES = [
    (PODS, pod("x"), "", {"metadata": {"labels": {"new": "x"}, "finalizers": ["example.com/a"]}}),
    (PODS, pod("x"), "", {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}),
    (PODS, pod("x"), "/status", {"status": STATUS}),
    (PODS, pod("x"), "/status", {"metadata": {"ownerReferences": None, "labels": None}, "spec": None}),
    (CLAIMS, {**CLAIM, "metadata": {"name": "x"}}, "", {"metadata": {"finalizers": ["example.com/a"]}}),
    (CLAIMS, {**CLAIM, "metadata": {"name": "x"}}, "/status", {"status": {"devices": None}}),
    (MAPS, config_map("x"), "", {"data": {"b": "2", "a": None}}),
]


@pytest.mark.parametrize("form", ["merge", "strategic", "apply"])
@pytest.mark.parametrize(("path", "tree", "subresource", "patch"), CASES)
@run_by(run)
async def test_handlers_do_not_change_stored_objects(
    harness: ApiHarness,
    *,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    path: str,
    tree: Any,
    subresource: str,
    patch: Any,
) -> None:
    seen: list[tuple[bytes, Any]] = []
    attribute = WriteHandler.track_managed_fields

    def look(self: WriteHandler, job: Any, old: Any, new: Any) -> Any:
        made = attribute(self, job, old, new)
        if old is not None:
            stored = self._store.list(job.info.resource.storage_key, "default").items
            seen.append((stored[0].raw, old))
        return made

    monkeypatch.setattr(WriteHandler, "track_managed_fields", look)
    code, made = await harness.request("POST", path, tree)
    assert code == 201
    query: tuple[tuple[str, str], ...] = ()
    body = patch
    if form == "apply":
        head = {"apiVersion": made["apiVersion"], "kind": made["kind"]}
        body = {**head, **patch, "metadata": {**patch.get("metadata", {}), "name": "x"}}
        query = (("fieldManager", "m"), ("force", "1"))
    target = f"{path}/x{subresource}"
    code, answer = await harness.request("PATCH", target, body, query=query, content_type=TYPES[form])
    assert code == 200, answer
    (raw, old), *_ = seen
    assert old == codec.decode_tree(raw)
