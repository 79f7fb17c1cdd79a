"""Metrics of the API server: names, labels and values."""

from __future__ import annotations

import asyncio
from itertools import count

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.apiserver.auth.users import ADMIN, User
from plimsoll.apiserver.metrics import RequestMetrics
from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.storage import Store
from plimsoll.apiserver.time_slices import SLICE_SECONDS, EventLoopShare
from tests.coroutines import run_by
from tests.unit.apiserver.build import PODS, ApiHarness, pod, run

NODES = "/api/v1/nodes"


async def scrape(harness: ApiHarness) -> dict[str, float]:
    """Return the page as Prometheus reads it, without empty labels."""
    code, page = await harness.request("GET", "/metrics")
    assert code == 200
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if value)
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def labels(verb: str, scope: str, code: int = 0, resource: str = "pods", more: str = "") -> str:
    shown = f"code={code}," if code else ""
    return f"{{{shown}component=apiserver,{more}resource={resource},scope={scope},verb={verb},version=v1}}"


@run_by(run)
async def test_requests_are_counted_by_verb_resource_and_code(harness: ApiHarness) -> None:
    await harness.request("POST", PODS, pod())
    await harness.request("POST", PODS, pod())
    await harness.request("POST", PODS, pod("dry"), query=[("dryRun", "All")])
    await harness.request("GET", f"{PODS}/p")
    await harness.request("GET", f"{PODS}/missing")
    await harness.request("GET", PODS)
    await harness.request("GET", "/api/v1/pods")
    await harness.request("GET", "/apis/nothing/v1/things")
    page = await scrape(harness)
    total = "apiserver_request_total"
    assert page[total + labels("POST", "resource", 201)] == 1
    assert page[total + labels("POST", "resource", 409)] == 1
    assert page[total + labels("POST", "resource", 201, more="dry_run=All,")] == 1
    assert page[total + labels("GET", "resource", 200)] == 1
    assert page[total + labels("GET", "resource", 404)] == 1
    assert page[total + labels("LIST", "namespace", 200)] == 1
    assert page[total + labels("LIST", "cluster", 200)] == 1
    assert page[total + "{code=404,component=apiserver,verb=GET}"] == 1
    assert page["apiserver_request_duration_seconds_count" + labels("GET", "resource")] == 2
    assert page["apiserver_storage_objects{resource=pods}"] == 1
    assert page["apiserver_current_inflight_requests{request_kind=readOnly}"] == 1, "the scrape"


@run_by(run)
async def test_applies_and_patches_have_different_verbs(harness: ApiHarness) -> None:
    path, query = f"{PODS}/p", [("fieldManager", "test")]
    kind = "application/apply-patch+yaml"
    code, _ = await harness.request("PATCH", path, pod(), query=query, content_type=kind)
    assert code == 201
    merge = {"metadata": {"labels": {"a": "b"}}}
    await harness.request("PATCH", path, merge, content_type="application/merge-patch+json")
    page = await scrape(harness)
    assert page["apiserver_request_total" + labels("APPLY", "resource", 201)] == 1
    assert page["apiserver_request_total" + labels("PATCH", "resource", 200)] == 1


@run_by(run)
async def test_watches_count_while_they_are_open(harness: ApiHarness) -> None:
    await harness.request("POST", PODS, pod())
    name = "apiserver_longrunning_requests" + labels("WATCH", "namespace")
    answer = await harness.api.handle(ApiRequest("GET", PODS, ADMIN, [("watch", "1")]))
    assert not isinstance(answer.body, bytes)
    await anext(answer.body)
    assert (await scrape(harness))[name] == 1
    other = await harness.api.handle(ApiRequest("GET", PODS, ADMIN, [("watch", "1")]))
    assert not isinstance(other.body, bytes)
    async for frame in other.body:
        assert b'"ADDED"' in frame
        break
    assert (await scrape(harness))[name] == 2
    for _ in range(2):
        await other.body.aclose()
        assert (await scrape(harness))[name] == 1
    await answer.body.aclose()
    page = await scrape(harness)
    assert page[name] == 0
    assert page["apiserver_request_total" + labels("WATCH", "namespace", 200)] == 2
    assert page["apiserver_current_inflight_requests{request_kind=mutating}"] == 0


@run_by(run)
async def test_the_page_needs_permission(harness: ApiHarness) -> None:
    code, _ = await harness.request("GET", "/metrics", user=User("jane"))
    assert code == 403


@run_by(run)
async def test_service_level_indicators_are_the_health_checks(harness: ApiHarness) -> None:
    code, page = await harness.request("GET", "/metrics/slis")
    assert code == 200
    (family,) = text_string_to_metric_families(page.decode())
    found = {(each.labels["type"], each.labels["name"]): each.value for each in family.samples}
    assert family.name == "kubernetes_healthcheck"
    assert found["livez", "ping"] == found["readyz", "etcd-readiness"] == 1


def fill(metrics: RequestMetrics) -> None:
    """Add samples of many different requests."""
    for number in range(70):
        metrics.requests.add("GET", "", "", "v1", f"r{number}", "", "cluster", "apiserver", "200")
        metrics.duration.at("GET", "", "", "v1", f"r{number}", "", "cluster", "apiserver").observe(number)


def naive_page(metrics: RequestMetrics) -> bytes:
    """Render all families at once."""
    pages: dict[str, str] = {}
    for part in metrics.collect():
        pages[part.name] = pages.get(part.name, "") + part.render(is_continued=part.name in pages)
    return "".join(pages.values()).encode()


async def test_a_page_rendered_in_parts_is_the_page_rendered_at_once() -> None:
    metrics = RequestMetrics(Store.open(None))
    for _ in range(2):  # without and with samples
        with EventLoopShare().start_slice("u") as time_slice:
            page = await metrics.expose(time_slice)
        assert page.startswith(naive_page(metrics)), "the process's own metrics follow"
        fill(metrics)


@run_by(run)
async def test_other_requests_are_served_while_a_page_is_rendered(harness: ApiHarness) -> None:
    fill(harness.api.metrics)
    readings = count()
    harness.api.loop_share.clock = lambda: next(readings) * SLICE_SECONDS  # every slice is used up
    scrape = asyncio.create_task(harness.api.handle(ApiRequest("GET", "/metrics", ADMIN)))
    await asyncio.sleep(0)
    for _ in range(10):
        assert (await harness.request("GET", NODES))[0] == 200
    assert not scrape.done()
    assert b"r69" in (await scrape).body  # type: ignore[operator]  # no stream
