"""ResourcePoolStatusRequest: defaults, validation, and a status that is written once."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.gates import Gates
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

PATH = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"
MERGE = "application/merge-patch+json"


def request(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "spec": {"driver": "gpu.example.com", **spec}}


@run_by(run)
async def test_a_new_request_has_a_limit_and_no_status(harness: ApiHarness) -> None:
    code, made = await harness.request("POST", PATH, {**request(), "status": {"poolCount": 3}})
    assert (code, made["spec"]) == (201, {"driver": "gpu.example.com", "limit": 100})
    assert "status" not in made
    assert "generation" not in made["metadata"]


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"driver": ""}, "spec.driver", "FieldValueRequired"),
        ({"driver": "a_b"}, "spec.driver", "FieldValueInvalid"),
        ({"limit": 0}, "spec.limit", "FieldValueInvalid"),
        ({"limit": 1001}, "spec.limit", "FieldValueInvalid"),
        ({"poolName": ""}, "spec.poolName", "FieldValueInvalid"),
        ({"poolName": "a//b"}, "spec.poolName", "FieldValueInvalid"),
    ],
)
@run_by(run)
async def test_invalid_requests(
    harness: ApiHarness, *, spec: dict[str, Any], field: str, reason: str
) -> None:
    code, status = await harness.request("POST", PATH, request(**spec))
    found = [(cause["field"], cause["reason"]) for cause in status["details"]["causes"]]
    assert (code, found) == (422, [(field, reason)])


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ({}, ["status.poolCount"]),
        ({"poolCount": -1}, ["status.poolCount"]),
        (
            {"poolCount": 1, "pools": [{}]},
            [f"status.pools[0].{name}" for name in ("driver", "poolName", "generation")],
        ),
        (
            {
                "poolCount": 1,
                "pools": [
                    {
                        "driver": "Some.Driver",
                        "poolName": "p",
                        "generation": -1,
                        "resourceSliceCount": 0,
                        "totalDevices": -1,
                        "nodeName": "A_",
                        "validationError": "x" * 257,
                    }
                ],
            },
            [
                f"status.pools[0].{name}"
                for name in (
                    "generation",
                    "resourceSliceCount",
                    "totalDevices",
                    "nodeName",
                    "validationError",
                )
            ],
        ),
    ],
)
@run_by(run)
async def test_invalid_statuses(harness: ApiHarness, *, status: dict[str, Any], fields: list[str]) -> None:
    await harness.request("POST", PATH, request())
    code, answer = await harness.request("PATCH", f"{PATH}/r/status", {"status": status}, content_type=MERGE)
    assert (code, [cause["field"] for cause in answer["details"]["causes"]]) == (422, fields)


@run_by(run)
async def test_a_request_is_answered_once(harness: ApiHarness) -> None:
    await harness.request("POST", PATH, request())
    code, _ = await harness.request("PATCH", f"{PATH}/r", {"spec": {"limit": 5}}, content_type=MERGE)
    assert code == 422
    code, made = await harness.request(
        "PATCH", f"{PATH}/r/status", {"status": {"poolCount": 0}}, content_type=MERGE
    )
    assert (code, made["status"]) == (200, {"poolCount": 0})
    for other in (None, {"poolCount": 1}):
        code, answer = await harness.request(
            "PATCH", f"{PATH}/r/status", {"status": other}, content_type=MERGE
        )
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "status")
    labels = {"metadata": {"labels": {"a": "b"}}}
    code, made = await harness.request("PATCH", f"{PATH}/r", labels, content_type=MERGE)
    assert (code, made["status"]) == (200, {"poolCount": 0})


def test_pool_status_requests_need_their_gate() -> None:
    async def scenario(harness: ApiHarness) -> None:
        code, status = await harness.request("POST", PATH, request())
        assert (code, status["reason"]) == (422, "Invalid")

    run(scenario, Gates.parse("DRAResourcePoolStatus=false"))
