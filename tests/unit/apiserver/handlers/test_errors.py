"""Errors in the media type that a client accepts."""

from __future__ import annotations

import json

import pytest
import yaml

from plimsoll.apiserver.protobuf import CONTENT_TYPE as PROTOBUF
from plimsoll.apiserver.protobuf import decode_body
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from tests.unit.apiserver.build import ADMIN, MAPS, ApiHarness, run

YAML = "application/yaml"


def missing(accept: str) -> ApiResponse:
    """Return the response to a request for an object that does not exist."""

    async def play(harness: ApiHarness) -> ApiResponse:
        return await harness.api.handle(ApiRequest("GET", f"{MAPS}/none", ADMIN, headers={"accept": accept}))

    return run(play)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        f"{PROTOBUF}, application/json",
        "text/html",
        "application/json;as=Table",
    ],
)
def test_errors_are_json_for_clients_that_accept_it_or_nothing_known(accept: str) -> None:
    response = missing(accept)
    assert response.content_type == "application/json"
    assert isinstance(response.body, bytes)
    assert json.loads(response.body)["reason"] in ("NotFound", "NotAcceptable")


def test_errors_are_yaml_for_clients_that_accept_only_that() -> None:
    response = missing(YAML)
    assert (response.status, response.content_type) == (404, YAML)
    assert isinstance(response.body, bytes)
    assert yaml.safe_load(response.body)["message"] == 'configmaps "none" not found'


def test_errors_are_protobuf_for_clients_that_accept_only_that() -> None:
    response = missing(PROTOBUF)
    assert (response.status, response.content_type) == (404, PROTOBUF)
    assert isinstance(response.body, bytes)
    tree = decode_body(response.body)
    assert (tree["kind"], tree["reason"], tree["code"]) == ("Status", "NotFound", 404)
