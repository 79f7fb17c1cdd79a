"""Published manifests: `check` and the embedded API server have the verdict of kube-apiserver 1.36.4."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from plimsoll.api.gates import Gates
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.users import ADMIN
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.registry.resources import find_resource_by_kind
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.storage import Store
from plimsoll.tools.check import CheckResult, check_all
from plimsoll.tools.cluster_state.manifests import ParsedObject, read_objects
from tests.cases.cases import case_path

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CREATED = 201
INVALID = 422


def read_rows() -> list[dict[str, Any]]:
    text = gzip.decompress(case_path("real/manifests.jsonl.gz").read_bytes())
    return [json.loads(line) for line in text.splitlines()]


def namespace_of(document: dict[str, Any]) -> str:
    return document["metadata"].get("namespace") or "default"


def check_one(document: dict[str, Any]) -> CheckResult:
    ((_, result),) = check_all([ParsedObject(document, "a file")], NOW, Gates.default()).results
    return result


class Server:
    """Embedded API server in this process."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        context = ApiContext.for_store(
            Store.open(None), now=lambda: NOW, new_uid=lambda: f"u-{next(numbers)}"
        )
        self.api = Api(context)

    async def create(self, document: dict[str, Any], *query: tuple[str, str]) -> ApiResponse:
        group, _, version = document["apiVersion"].rpartition("/")
        resource = find_resource_by_kind(group, version, document["kind"])
        assert resource is not None
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        inner = f"/namespaces/{namespace_of(document)}" if resource.namespaced else ""
        body, header = json.dumps(document).encode(), {"content-type": "application/json"}
        request = ApiRequest("POST", f"{base}{inner}/{resource.plural}", ADMIN, list(query), header, body)
        return await self.api.handle(request)

    async def prepare(self, rows: list[dict[str, Any]]) -> None:
        """Create the namespaces and service accounts that the rows need."""
        accounts = {(row["document"].get("spec") or {}).get("serviceAccountName", "default") for row in rows}
        for namespace in {namespace_of(row["document"]) for row in rows}:
            await self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            for account in accounts:
                meta = {"name": account, "namespace": namespace}
                await self.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


def test_check_has_the_verdict_of_kube_apiserver() -> None:
    rows = read_rows()
    wrong = []
    for row in rows:
        result = check_one(row["document"])
        assert result.known, row["where"]
        if (row["code"] == CREATED) != (not result.problems):
            wrong.append((row["where"], row["code"], result.problems))
        fields = [cause["field"] for cause in row.get("causes", ())]
        if any(not any(text.startswith(f"{field}: ") for text in result.problems) for field in fields):
            wrong.append((row["where"], fields, result.problems))
    assert wrong == []
    assert sum(row["code"] == INVALID for row in rows) == 10


def test_the_server_has_the_verdict_of_kube_apiserver() -> None:
    async def run() -> list[Any]:
        rows = read_rows()
        server = Server()
        await server.prepare(rows)
        wrong: list[Any] = []
        for row in rows:
            query = ("fieldValidation", "Strict"), ("dryRun", "All")
            response = await server.create(row["document"], *query)
            assert isinstance(response.body, bytes)
            body = json.loads(response.body)
            details = body.get("details", {}) if response.status != CREATED else {}
            causes = [(cause["field"], cause["reason"]) for cause in details.get("causes", ())]
            wanted = [(cause["field"], cause["reason"]) for cause in row.get("causes", ())]
            if (response.status, sorted(causes)) != (row["code"], sorted(wanted)):
                wrong.append((row["where"], row["code"], response.status, body.get("message")))
            check = check_one(row["document"])
            sent = response.headers.get("Warning", "")
            if response.status == CREATED and len(check.warnings) != sent.count("299 - "):
                wrong.append((row["where"], check.warnings, sent))
        return wrong

    assert asyncio.run(run()) == []


def test_every_version_before_v1_of_a_dra_kind_is_deprecated() -> None:
    for row in read_rows():
        document = row["document"]
        group, _, version = document["apiVersion"].partition("/")
        if group == "resource.k8s.io" and document["kind"] != "DeviceTaintRule":
            deprecated = any("is deprecated in v1." in text for text in check_one(document).warnings)
            assert deprecated == (version != "v1"), row["where"]


@pytest.mark.parametrize(("value", "refused"), [("true", 0), ("false", 1), (None, 1)])
def test_admin_access_needs_the_label_of_the_namespace_in_the_files(value: str | None, refused: int) -> None:
    found = list(read_objects([case_path("small/admin-namespace.yaml")]))
    (namespace,) = [each for each in found if each.kind == "Namespace"]
    if value is not None:
        namespace.tree["metadata"]["labels"]["resource.kubernetes.io/admin-access"] = value
    report = check_all(found, NOW, Gates.default())
    assert report.refused == refused
    refusals = [each.kind for each, checked in report.results if checked.problems]
    assert refusals == ["ResourceClaimTemplate"] * refused


def test_a_limit_range_without_a_name_gets_one() -> None:
    document = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {}, "spec": {"limits": []}}

    async def run() -> ApiResponse:
        server = Server()
        await server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        return await server.create(document)

    response = asyncio.run(run())
    assert isinstance(response.body, bytes)
    metadata = json.loads(response.body)["metadata"]
    assert (response.status, metadata["name"]) == (CREATED, metadata["uid"])
    assert not check_one(document).problems
