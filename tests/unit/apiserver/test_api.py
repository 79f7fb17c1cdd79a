"""API verbs, one scenario each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import ADMIN, User, driver_user
from plimsoll.apiserver.request import ApiRequest
from tests.coroutines import run_by
from tests.unit.apiserver.build import MAPS, PODS, ApiHarness, config_map, pod, run

MERGE = "application/merge-patch+json"


@run_by(run)
async def test_create_fills_in_what_the_server_knows(harness: ApiHarness) -> None:
    code, made = await harness.request("POST", PODS, pod())
    assert code == 201
    assert made["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert made["metadata"]["uid"]
    assert made["metadata"]["namespace"] == "default"
    assert int(made["metadata"]["resourceVersion"]) == harness.store.revision
    assert made["status"]["phase"] == "Pending"
    assert (await harness.request("GET", f"{PODS}/p"))[1] == made
    code, status = await harness.request("POST", PODS, pod())
    assert (code, status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'pods "p" already exists'


@run_by(run)
async def test_generated_names_are_new_and_keep_their_prefix(harness: ApiHarness) -> None:
    names = set()
    for _ in range(50):
        tree = config_map()
        tree["metadata"] = {"generateName": "x" * 100}
        code, made = await harness.request("POST", MAPS, tree)
        assert code == 201
        names.add(made["metadata"]["name"])
    assert len(names) == 50
    assert all(len(name) == 63 and name.startswith("x" * 58) for name in names)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"apiVersion": "v2"}, 400),
        ({"kind": "Node"}, 400),
        ({"metadata": []}, 400),
        ({"metadata": {"name": 5}}, 400),
        ({"metadata": {"name": "p", "namespace": "other"}}, 400),
        ({"metadata": {"name": "p", "resourceVersion": "5"}}, 400),
        ({"metadata": {"name": "Bad Name"}}, 422),
        ({"metadata": {}}, 422),
        ({"spec": {"containers": "none"}}, 400),
    ],
)
@run_by(run)
async def test_invalid_objects_are_refused(harness: ApiHarness, *, change: dict[str, Any], code: int) -> None:
    found, status = await harness.request("POST", PODS, {**pod(), **change})
    assert (found, status["kind"], status["code"]) == (code, "Status", code)


@run_by(run)
async def test_objects_need_an_active_namespace(harness: ApiHarness) -> None:
    path = "/api/v1/namespaces/gone/configmaps"
    code, status = await harness.request("POST", path, config_map())
    assert (code, status["message"]) == (404, 'namespaces "gone" not found')
    await harness.request("POST", "/api/v1/namespaces", {"metadata": {"name": "gone"}})
    assert (await harness.request("POST", path, config_map()))[0] == 201
    code, namespace = await harness.request("DELETE", "/api/v1/namespaces/gone")
    assert (code, namespace["status"]["phase"]) == (200, "Terminating")
    assert (await harness.request("POST", path, config_map("d")))[0] == 403


@run_by(run)
async def test_stale_updates_are_conflicts(harness: ApiHarness) -> None:
    _, made = await harness.request("POST", MAPS, config_map())
    changed = {**made, "data": {"a": "2"}}
    code, second = await harness.request("PUT", f"{MAPS}/c", changed)
    assert (code, second["data"]) == (200, {"a": "2"})
    code, status = await harness.request("PUT", f"{MAPS}/c", changed)
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"].startswith('Operation cannot be fulfilled on configmaps "c"')
    other = {**second, "metadata": {**second["metadata"], "uid": "another"}}
    assert (await harness.request("PUT", f"{MAPS}/c", other))[0] == 409
    assert (await harness.request("PUT", f"{MAPS}/d", config_map("d")))[0] == 404
    assert (await harness.request("PUT", f"{MAPS}/c", config_map("d")))[0] == 400
    code, free = await harness.request("PUT", f"{MAPS}/c", config_map())
    assert (code, free["metadata"]["uid"]) == (200, made["metadata"]["uid"])


@run_by(run)
async def test_an_update_that_changes_nothing_makes_no_version(harness: ApiHarness) -> None:
    _, made = await harness.request("POST", PODS, pod())
    harness.now += timedelta(minutes=1)
    revision = harness.store.revision
    assert await harness.request("PUT", f"{PODS}/p", made) == (200, made)
    assert await harness.request("PATCH", f"{PODS}/p", {}, content_type=MERGE) == (200, made)
    assert harness.store.revision == revision


@run_by(run)
async def test_status_and_spec_are_written_apart(harness: ApiHarness) -> None:
    await harness.request("POST", PODS, pod())
    body = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}
    code, after = await harness.request("PATCH", f"{PODS}/p", body, content_type=MERGE)
    assert (code, after["status"]["phase"], after["metadata"]["labels"]["x"]) == (200, "Pending", "y")
    body = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "z"}}}
    code, after = await harness.request("PATCH", f"{PODS}/p/status", body, content_type=MERGE)
    assert (code, after["status"]["phase"]) == (200, "Running")


@run_by(run)
async def test_dry_runs_leave_nothing_behind(harness: ApiHarness) -> None:
    dry = [("dryRun", "All")]
    revision = harness.store.revision
    code, made = await harness.request("POST", PODS, pod(), query=dry)
    assert (code, made["status"]["phase"]) == (201, "Pending")
    assert harness.store.revision == revision
    await harness.request("POST", PODS, pod())
    revision = harness.store.revision
    patch = {"metadata": {"labels": {"x": "y"}}}
    code, after = await harness.request("PATCH", f"{PODS}/p", patch, query=dry, content_type=MERGE)
    assert (code, after["metadata"]["labels"]["x"]) == (200, "y")
    assert (await harness.request("DELETE", f"{PODS}/p", query=dry))[0] == 200
    assert (await harness.request("DELETE", PODS, query=dry))[0] == 200
    assert harness.store.revision == revision


@run_by(run)
async def test_unknown_fields_are_kept_reported_or_rejected_as_requested(harness: ApiHarness) -> None:
    tree = {**config_map(), "colour": "red"}
    strict = [("fieldValidation", "Strict")]
    code, status = await harness.request("POST", MAPS, tree, query=strict)
    assert code == 400
    assert status["message"].endswith('strict decoding error: unknown field "colour"')
    code, made = await harness.request("POST", MAPS, tree)
    assert (code, made["colour"]) == (201, "red")


@run_by(run)
async def test_lists_are_selected_ordered_and_paged(harness: ApiHarness) -> None:
    for name in ("b", "a", "d", "c"):
        await harness.request("POST", PODS, pod(name))
    code, listed = await harness.request("GET", PODS)
    names = [item["metadata"]["name"] for item in listed["items"]]
    assert (code, listed["kind"], names) == (200, "PodList", ["a", "b", "c", "d"])
    _, listed = await harness.request("GET", "/api/v1/pods", query=[("labelSelector", "app in (a,c)")])
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "c"]
    _, listed = await harness.request("GET", PODS, query=[("fieldSelector", "metadata.name!=a")])
    assert len(listed["items"]) == 3
    assert (await harness.request("GET", PODS, query=[("fieldSelector", "spec.x=a")]))[0] == 400
    _, first = await harness.request("GET", PODS, query=[("limit", "3")])
    assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (3, 1)
    await harness.request("POST", PODS, pod("e"))
    await harness.request("DELETE", f"{PODS}/d")
    token = first["metadata"]["continue"]
    _, second = await harness.request("GET", PODS, query=[("limit", "3"), ("continue", token)])
    assert [item["metadata"]["name"] for item in second["items"]] == ["d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert (await harness.request("GET", PODS, query=[("continue", "bad")]))[0] == 400
    future = [("resourceVersion", "999999"), ("resourceVersionMatch", "NotOlderThan")]
    assert (await harness.request("GET", PODS, query=future))[0] == 504


@run_by(run)
async def test_watches_deliver_objects_that_start_or_stop_matching(harness: ApiHarness) -> None:
    since = str(harness.store.revision)
    await harness.request("POST", PODS, pod("a"))
    for value in ("x", "y"):
        patch = {"metadata": {"labels": {"app": value}}}
        await harness.request("PATCH", f"{PODS}/a", patch, content_type=MERGE)
    await harness.request("DELETE", f"{PODS}/a")
    everything = await harness.watch(PODS, 4, resourceVersion=since)
    assert [event["type"] for event in everything] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    selected = await harness.watch(PODS, 2, resourceVersion=since, labelSelector="app=x")
    assert [event["type"] for event in selected] == ["ADDED", "DELETED"]
    assert selected[1]["object"]["metadata"]["labels"]["app"] == "x"
    versions = [event["object"]["metadata"]["resourceVersion"] for event in selected]
    assert versions == [event["object"]["metadata"]["resourceVersion"] for event in everything[1:3]]


@run_by(run)
async def test_a_watch_may_begin_with_the_state(harness: ApiHarness) -> None:
    for name in ("a", "b"):
        await harness.request("POST", PODS, pod(name))
    events = await harness.watch(PODS, 2)
    assert [event["object"]["metadata"]["name"] for event in events] == ["a", "b"]
    events = await harness.watch(
        PODS, 3, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    )
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    (event,) = await harness.watch(
        PODS, 1, resourceVersion="1", timeoutSeconds="5", fieldSelector="metadata.name=b"
    )
    assert event["object"]["metadata"]["name"] == "b"


@run_by(run)
async def test_finalizers_hold_an_object_until_they_are_gone(harness: ApiHarness) -> None:
    await harness.request("POST", MAPS, config_map(finalizers=["example.com/hold"]))
    code, held = await harness.request("DELETE", f"{MAPS}/c")
    assert (code, held["metadata"]["deletionTimestamp"]) == (200, "2026-01-02T03:04:05Z")
    again = (await harness.request("DELETE", f"{MAPS}/c"))[1]
    assert again == held
    patch = {"metadata": {"finalizers": None}}
    assert (await harness.request("PATCH", f"{MAPS}/c", patch, content_type=MERGE))[0] == 200
    assert (await harness.request("GET", f"{MAPS}/c"))[0] == 404


@run_by(run)
async def test_deletion_has_preconditions_and_propagation(harness: ApiHarness) -> None:
    _, made = await harness.request("POST", MAPS, config_map())
    for condition in ({"uid": "x"}, {"resourceVersion": "1"}):
        assert (await harness.request("DELETE", f"{MAPS}/c", {"preconditions": condition}))[0] == 409
    code, held = await harness.request("DELETE", f"{MAPS}/c", {"propagationPolicy": "Foreground"})
    assert (code, held["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    code, status = await harness.request("DELETE", f"{MAPS}/c", {"propagationPolicy": "Background"})
    assert (code, status["status"], status["details"]["uid"]) == (200, "Success", made["metadata"]["uid"])
    assert (await harness.request("DELETE", f"{MAPS}/c"))[0] == 404


@run_by(run)
async def test_pods_on_a_node_end_with_grace(harness: ApiHarness) -> None:
    await harness.request("POST", PODS, pod(nodeName="n"))
    code, ending = await harness.request("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 7})
    assert (code, ending["metadata"]["deletionGracePeriodSeconds"]) == (200, 7)
    assert ending["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:12Z"
    assert (await harness.request("GET", f"{PODS}/p"))[0] == 200
    assert (await harness.request("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0}))[0] == 200
    assert (await harness.request("GET", f"{PODS}/p"))[0] == 404
    await harness.request("POST", PODS, pod("q"))
    await harness.request("DELETE", f"{PODS}/q")
    assert (await harness.request("GET", f"{PODS}/q"))[0] == 404


@run_by(run)
async def test_a_collection_is_deleted_by_selector(harness: ApiHarness) -> None:
    for name in "abc":
        await harness.request("POST", MAPS, config_map(name, labels={"keep": str(name == "b")}))
    code, listed = await harness.request("DELETE", MAPS, query=[("labelSelector", "keep=False")])
    assert (code, len(listed["items"])) == (200, 2)
    _, left = await harness.request("GET", MAPS)
    assert [item["metadata"]["name"] for item in left["items"]] == ["b"]


@run_by(run)
async def test_pods_are_bound_once(harness: ApiHarness) -> None:
    await harness.request("POST", PODS, pod())
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}
    assert (await harness.request("POST", f"{PODS}/p/binding", {**binding, "metadata": {"name": "p"}}))[
        0
    ] == 201
    _, bound = await harness.request("GET", f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    code, status = await harness.request("POST", f"{PODS}/p/binding", binding)
    assert (code, status["reason"]) == (409, "Conflict")
    path = "/api/v1/namespaces/default/bindings"
    await harness.request("POST", PODS, pod("q"))
    assert (await harness.request("POST", path, {**binding, "metadata": {"name": "q"}}))[0] == 201
    assert (await harness.request("POST", path, binding))[0] == 400


@run_by(run)
async def test_evictions_respect_budgets(harness: ApiHarness) -> None:
    await harness.request("POST", PODS, pod(nodeName="n"))
    patch = {"status": {"phase": "Running"}}
    await harness.request("PATCH", f"{PODS}/p/status", patch, content_type=MERGE)
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
    }
    await harness.request("POST", budgets, budget)
    status = {"status": {"disruptionsAllowed": 0, "observedGeneration": 1, "desiredHealthy": 1}}
    await harness.request("PATCH", f"{budgets}/b/status", status, content_type=MERGE)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    code, refused = await harness.request("POST", f"{PODS}/p/eviction", eviction)
    assert (code, refused["reason"]) == (429, "TooManyRequests")
    status["status"]["disruptionsAllowed"] = 1
    await harness.request("PATCH", f"{budgets}/b/status", status, content_type=MERGE)
    assert (await harness.request("POST", f"{PODS}/p/eviction", eviction))[0] == 201
    _, ending = await harness.request("GET", f"{PODS}/p")
    assert ending["metadata"]["deletionTimestamp"]
    _, spent = await harness.request("GET", f"{budgets}/b")
    assert spent["status"]["disruptionsAllowed"] == 0
    assert list(spent["status"]["disruptedPods"]) == ["p"]


@run_by(run)
async def test_scales_are_read_and_written(harness: ApiHarness) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    tree = {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod()["spec"]},
        },
    }
    assert (await harness.request("POST", path, tree))[0] == 201
    code, scale = await harness.request("GET", f"{path}/d/scale")
    assert (code, scale["spec"]["replicas"], scale["status"]["selector"]) == (200, 2, "app=d")
    scale["spec"]["replicas"] = 5
    assert (await harness.request("PUT", f"{path}/d/scale", scale))[1]["spec"]["replicas"] == 5
    patch = {"spec": {"replicas": 1}}
    assert (await harness.request("PATCH", f"{path}/d/scale", patch, content_type=MERGE))[0] == 200
    assert (await harness.request("GET", f"{path}/d"))[1]["spec"]["replicas"] == 1
    assert (await harness.request("PUT", f"{path}/d/scale", {"spec": {"replicas": -1}}))[0] == 400


@run_by(run)
async def test_versions_of_a_group_show_the_same_object(harness: ApiHarness) -> None:
    old, new = ("/apis/resource.k8s.io/v1beta2/deviceclasses", "/apis/resource.k8s.io/v1/deviceclasses")
    code, made = await harness.request("POST", old, {"metadata": {"name": "c"}, "spec": {}})
    assert (code, made["apiVersion"]) == (201, "resource.k8s.io/v1beta2")
    _, seen = await harness.request("GET", f"{new}/c")
    assert seen == {**made, "apiVersion": "resource.k8s.io/v1"}
    _, listed = await harness.request("GET", old)
    assert (listed["apiVersion"], listed["items"][0]["spec"]) == ("resource.k8s.io/v1beta2", {})
    (event,) = await harness.watch(old, 1)
    assert event["object"] == made


@run_by(run)
async def test_events_are_served_in_both_groups(harness: ApiHarness) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Failed",
        "message": "no room",
        "type": "Warning",
        "count": 3,
        "source": {"component": "me"},
    }
    assert (await harness.request("POST", "/api/v1/namespaces/default/events", event))[0] == 201
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    code, other = await harness.request("GET", f"{path}/e")
    assert (code, other["note"], other["deprecatedCount"]) == (200, "no room", 3)
    _, listed = await harness.request("GET", path, query=[("fieldSelector", "regarding.name=p")])
    assert [item["regarding"]["name"] for item in listed["items"]] == ["p"]


@run_by(run)
async def test_no_write_without_permission(harness: ApiHarness) -> None:
    someone = User("jane", groups=("system:authenticated",))
    code, status = await harness.request("POST", PODS, pod(), user=someone)
    assert (code, status["reason"]) == (403, "Forbidden")
    expected = (
        'pods is forbidden: User "jane" cannot create resource "pods" in API group "" '
        'in the namespace "default"'
    )
    assert status["message"] == expected
    assert (await harness.request("GET", "/version", user=someone))[0] == 200


@run_by(run)
async def test_health_is_reported(harness: ApiHarness) -> None:
    for path in ("/healthz", "/readyz", "/livez", "/readyz/etcd"):
        assert await harness.request("GET", path) == (200, b"ok")
    code, text = await harness.request("GET", "/readyz", query=[("verbose", "")])
    assert (code, text[:24]) == (200, b"[+]ping ok\n[+]log ok\n[+]")
    assert text.endswith(b"[+]shutdown ok\nreadyz check passed\n")
    assert (await harness.request("GET", "/healthz/nothing"))[0] == 404


@run_by(run)
async def test_creating_by_update_or_apply_needs_the_create_verb(harness: ApiHarness) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["update", "patch"]}
    await harness.request("POST", roles, {"metadata": {"name": "changer"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "changer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "changer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    }
    code, _ = await harness.request("POST", f"{roles.removesuffix('s')}bindings", binding)
    assert code == 201
    jane = User("jane", groups=("system:authenticated",))
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "jane"}}
    code, status = await harness.request("PUT", f"{leases}/l", lease, user=jane)
    assert (code, "cannot create" in status["message"]) == (403, True)
    code, _ = await harness.request(
        "PATCH",
        f"{MAPS}/c",
        config_map(),
        query=[("fieldManager", "jane")],
        user=jane,
        content_type="application/apply-patch+yaml",
    )
    assert code == 403
    code, made = await harness.request("PUT", f"{leases}/l", lease)
    assert code == 201
    assert (await harness.request("PUT", f"{leases}/l", made, user=jane))[0] == 200


@run_by(run)
async def test_a_driver_deletes_its_own_slices_only(harness: ApiHarness) -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    for driver in ("a.example.com", "b.example.com"):
        spec = {
            "driver": driver,
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        }
        code, _ = await harness.request("POST", slices, {"metadata": {"name": driver}, "spec": spec})
        assert code == 201
    driver_a = driver_user("a.example.com")
    assert (await harness.request("DELETE", slices, user=driver_a))[0] == 403
    assert len((await harness.request("GET", slices))[1]["items"]) == 2
    own = [("fieldSelector", "spec.driver=a.example.com")]
    assert (await harness.request("DELETE", slices, query=own, user=driver_a))[0] == 200
    assert len((await harness.request("GET", slices))[1]["items"]) == 1


@run_by(run)
async def test_others_can_verify_tokens_of_service_accounts(harness: ApiHarness) -> None:
    code, keys = await harness.request("GET", "/openid/v1/jwks")
    assert (code, len(keys["keys"])) == (200, 1)
    code, about = await harness.request("GET", "/.well-known/openid-configuration")
    assert (code, about["id_token_signing_alg_values_supported"]) == (200, [keys["keys"][0]["alg"]])


@run_by(run)
async def test_requests_for_deprecated_versions_get_a_warning(harness: ApiHarness) -> None:
    """Every verb gets it, also if the request fails."""
    beta = "/apis/resource.k8s.io/v1beta1/deviceclasses"
    text = '299 - "resource.k8s.io/v1beta1 DeviceClass is deprecated in v1.35+, unavailable in v1.38+"'
    for method, path in (("GET", beta), ("GET", f"{beta}/x"), ("POST", beta)):
        response = await harness.api.handle(ApiRequest(method, path, ADMIN, body=b"{}"))
        assert response.headers["Warning"] == text
    response = await harness.api.handle(ApiRequest("GET", beta.replace("v1beta1", "v1"), ADMIN))
    assert "Warning" not in response.headers


@run_by(run)
async def test_duplicate_fields_are_reported_on_request(harness: ApiHarness) -> None:
    body = b'{"metadata":{"name":"c"},"data":{"a":"1"},"data":{"a":"2"}}'
    code, status = await harness.request("POST", MAPS, body, query=[("fieldValidation", "Strict")])
    assert (code, 'duplicate field "data"' in status["message"]) == (400, True)
    assert (await harness.request("POST", MAPS, body))[0] == 201


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%b"])
@run_by(run)
async def test_every_object_has_a_name_that_fits_into_a_path(harness: ApiHarness, *, name: str) -> None:
    event = {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}
    code, status = await harness.request("POST", "/api/v1/namespaces/default/events", event)
    assert code == 422, status
    assert status["details"]["causes"][0]["field"] == "metadata.name"


@run_by(run, in_virtual_time=True)
async def test_a_watch_ends_in_time_with_a_bookmark(
    harness: ApiHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.apiserver.handlers.watch.BOOKMARK_SECONDS", 0.3)
    since = str(harness.store.revision)
    await harness.request("POST", MAPS, config_map())
    events = await harness.watch(
        PODS, 99, resourceVersion=since, timeoutSeconds="1", allowWatchBookmarks="true"
    )
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert len(events) == 4  # three, and one at the end
    last = events[-1]["object"]
    assert (last["kind"], last["metadata"]["resourceVersion"]) == ("Pod", str(harness.store.revision))
    assert await harness.watch(PODS, 99, resourceVersion=since, timeoutSeconds="1") == []


@run_by(run)
async def test_null_means_absent(harness: ApiHarness) -> None:
    tree = {**config_map(labels=None), "binaryData": None, "data": {"a": "1", "b": None}}
    code, made = await harness.request("POST", MAPS, tree)
    assert (code, made["data"]) == (201, {"a": "1", "b": ""})
    assert "binaryData" not in made
    assert "labels" not in made["metadata"]


@run_by(run)
async def test_patches_cannot_change_the_identity_of_an_object(harness: ApiHarness) -> None:
    await harness.request("POST", MAPS, config_map())

    async def patch(body: Any, kind: str = MERGE) -> tuple[int, list[str]]:
        code, status = await harness.request("PATCH", f"{MAPS}/c", body, content_type=kind)
        causes = status.get("details", {}).get("causes", [])
        return code, [cause["field"] for cause in causes]

    whole = [{"op": "replace", "path": "", "value": {}}]
    assert (await patch(whole, "application/json-patch+json"))[0] == 400
    assert (await patch({"metadata": {"name": "d"}}))[0] == 400
    assert (await patch({"metadata": {"namespace": "d"}}))[0] == 400
    assert await patch({"metadata": {"uid": "d"}}) == (422, ["metadata.uid"])
    assert await patch({"data": {"y": 2}}) == (422, ["patch"])
    assert await patch({"kind": "Secret"}) == (422, ["patch"])
    assert (await patch({"metadata": {"finalizers": ["x"]}}))[0] == 422


@run_by(run)
async def test_an_apply_that_creates_takes_no_version_and_no_owners(harness: ApiHarness) -> None:
    async def apply(**metadata: Any) -> int:
        tree = config_map(**metadata)
        query = [("fieldManager", "m")]
        kind = "application/apply-patch+yaml"
        return (await harness.request("PATCH", f"{MAPS}/c", tree, query=query, content_type=kind))[0]

    assert await apply(managedFields=[]) == 400
    assert await apply(resourceVersion="1") == 201
    assert await apply(resourceVersion="1") == 409


@run_by(run)
async def test_objects_are_made_and_deleted_in_one_namespace_at_a_time(harness: ApiHarness) -> None:
    assert (await harness.request("POST", "/api/v1/pods", pod()))[0] == 405
    assert (await harness.request("DELETE", "/api/v1/pods"))[0] == 405
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert (await harness.request("DELETE", f"{classes}/system-node-critical"))[0] == 403


@run_by(run)
async def test_events_follow_the_rules_of_the_requested_group(harness: ApiHarness) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    code, status = await harness.request("POST", path, {"metadata": {"name": "e"}, "reason": "R"})
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert (code, "eventTime" in fields) == (422, True)
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R",
        "note": "n",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "Do",
    }
    assert (await harness.request("POST", path, event))[0] == 201
    _, core = await harness.request("GET", "/api/v1/namespaces/default/events/e")
    assert (core["message"], core["involvedObject"]["name"]) == ("n", "p")
    assert (await harness.request("PATCH", f"{path}/e", {"note": "other"}, content_type=MERGE))[0] == 422


@run_by(run)
async def test_the_status_of_a_pod_that_is_ending_can_be_written(harness: ApiHarness) -> None:
    await harness.request("POST", PODS, pod(nodeName="n"))
    _, ending = await harness.request("DELETE", f"{PODS}/p")
    status = {"status": {"phase": "Failed"}}
    code, after = await harness.request("PATCH", f"{PODS}/p/status", status, content_type=MERGE)
    assert (code, after["status"]["phase"]) == (200, "Failed")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        assert after["metadata"][name] == ending["metadata"][name]


@pytest.mark.parametrize("kind", ["podtemplates", "pods", "configmaps"])
@run_by(run)
async def test_null_among_items_is_an_object_without_fields(harness: ApiHarness, *, kind: str) -> None:
    owners = {"name": "n", "ownerReferences": [None], "managedFields": [None, {"manager": "m"}]}
    spec = {"containers": [None], "volumes": [None]}
    tree = {"metadata": owners, "spec": spec, "template": {"metadata": owners, "spec": spec}}
    if kind == "configmaps":
        del tree["spec"]
    code, answer = await harness.request("POST", f"/api/v1/namespaces/default/{kind}", tree)
    assert code in (201, 400, 422), answer


@run_by(run)
async def test_an_object_has_a_largest_size(harness: ApiHarness) -> None:
    large = {"metadata": {"name": "e"}, "spec": {"holderIdentity": "x"}, "unknown": "y" * (3 << 19)}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    revision = harness.store.revision
    code, status = await harness.request("POST", leases, large)
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
    assert harness.store.revision == revision


def test_an_unwritable_store_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: ApiHarness) -> None:
        await harness.request("POST", MAPS, config_map())
        await harness.store.close()
        for name in ("a", "b"):
            code, status = await harness.request("POST", MAPS, config_map(name))
            assert (code, status["message"]) == (503, "the store is closed")
            assert status["details"]["retryAfterSeconds"] == 1
        assert (await harness.request("GET", f"{MAPS}/c"))[0] == 200

    run(scenario)
    assert [record.message for record in caplog.records] == ["the store is closed"]
