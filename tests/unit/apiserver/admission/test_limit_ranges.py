"""LimitRange admission: defaults, limits of containers, pods and volume claims, and its tree functions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.build import ApiHarness, pod, run

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def limit_range(*items: Any, name: str = "limits") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name},
        "spec": {"limits": list(items)},
    }


def container(name: Any = "c", **resources: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": resources}


def claim(storage: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
    }


def send(*ranges: Any, body: Any, path: str = PODS) -> tuple[int, Any]:
    async def play(harness: ApiHarness) -> tuple[int, Any]:
        for number, items in enumerate(ranges):
            tree = limit_range(*items, name=f"r{number}")
            code, answer = await harness.request("POST", "/api/v1/namespaces/default/limitranges", tree)
            assert code == 201, answer
        return await harness.request("POST", path, body)

    return run(play)


def denial(*ranges: Any, body: Any, path: str = PODS) -> str:
    code, answer = send(*ranges, body=body, path=path)
    assert (code, answer["reason"]) == (403, "Forbidden"), answer
    text: str = answer["message"].partition(" is forbidden: ")[2]
    return text


def test_containers_get_default_requests_and_limits() -> None:
    items = [
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "1Gi"},
            "defaultRequest": {"cpu": "100m", "memory": "512Mi"},
        }
    ]
    body = pod(
        containers=[container(), container("own", requests={"cpu": "200m"}, limits={"memory": "2Gi"})],
        initContainers=[container("init")],
    )
    code, made = send(items, body=body)
    assert code == 201
    first, own = (each["resources"] for each in made["spec"]["containers"])
    assert first == {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    # A limit is the default of its request, before limit ranges are considered.
    assert own == {"requests": {"cpu": "200m", "memory": "2Gi"}, "limits": {"cpu": "500m", "memory": "2Gi"}}
    assert made["spec"]["initContainers"][0]["resources"] == first
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c; "
        "cpu limit for container own; "
        "cpu, memory request for init container init; cpu, memory limit for init container init"
    )
    assert made["status"]["qosClass"] == "Burstable"


def test_the_defaults_are_charged_to_quotas() -> None:
    async def play(harness: ApiHarness) -> str:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q"},
            "spec": {"hard": {"requests.cpu": "150m"}},
        }
        quotas = "/api/v1/namespaces/default/resourcequotas"
        assert (await harness.request("POST", quotas, quota))[0] == 201
        status = {"hard": quota["spec"]["hard"], "used": {"requests.cpu": "0"}}  # type: ignore[index]
        assert (await harness.request("PUT", f"{quotas}/q/status", {**quota, "status": status}))[0] == 200
        item = {"type": "Container", "defaultRequest": {"cpu": "100m"}}
        tree = limit_range(item)
        assert (await harness.request("POST", "/api/v1/namespaces/default/limitranges", tree))[0] == 201
        assert (await harness.request("POST", PODS, pod("a")))[0] == 201
        _, answer = await harness.request("POST", PODS, pod("b"))
        text: str = answer["message"]
        return text

    assert "requested: requests.cpu=100m, used: requests.cpu=100m, limited: requests.cpu=150m" in run(play)


@pytest.mark.parametrize(
    ("item", "resources", "message"),
    [
        (
            {"min": {"cpu": "100m"}},
            {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}},
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        ({"min": {"memory": "1Gi"}}, {}, ""),  # a minimum is the default request
        (
            {"max": {"cpu": "1"}},
            {"requests": {"cpu": "500m"}, "limits": {"cpu": "1500m"}},
            "maximum cpu usage per Container is 1, but limit is 1500m",
        ),
        ({"max": {"cpu": "1"}}, {}, ""),  # a maximum is the default limit
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {},
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            {"min": {"cpu": "200m"}, "max": {"cpu": "1", "memory": "1Gi"}},
            {"requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
            "[minimum cpu usage per Container is 200m, but request is 100m, "
            "maximum cpu usage per Container is 1, but limit is 2, "
            "maximum memory usage per Container is 1Gi, but limit is 2Gi]",
        ),
    ],
)
def test_limits_of_containers(item: Any, resources: Any, message: str) -> None:
    body = pod(containers=[container(**resources)])
    items = [{"type": "Container", **item}]
    if message:
        assert denial(items, body=body) == message
    else:
        assert send(items, body=body)[0] == 201


def test_limits_of_pods_count_sidecars_init_containers_and_pod_level_resources() -> None:
    items = [{"type": "Pod", "max": {"cpu": "1"}}]
    half = {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}
    most = {"requests": {"cpu": "900m"}, "limits": {"cpu": "900m"}}
    assert (
        send(items, body=pod(containers=[container(**half)], initContainers=[container("i", **most)]))[0]
        == 201
    )
    sidecar = {**container("s", **half), "restartPolicy": "Always"}
    two = pod(containers=[container(**half)], initContainers=[sidecar, container("i", **most)])
    assert denial(items, body=two) == "maximum cpu usage per Pod is 1, but limit is 1400m"
    whole = pod(containers=[container()], resources={"limits": {"cpu": "2"}})
    assert denial(items, body=whole) == "maximum cpu usage per Pod is 1, but limit is 2"
    assert denial(items, body=pod()) == "maximum cpu usage per Pod is 1.  No limit is specified"


def test_limits_of_volume_claims() -> None:
    items = [{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}}]
    assert send(items, body=claim("2Gi"), path=CLAIMS)[0] == 201
    assert denial(items, body=claim("6Gi"), path=CLAIMS) == (
        "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"
    )
    assert denial(items, body=claim("1Mi"), path=CLAIMS) == (
        "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"
    )


def test_violations_of_all_limit_ranges_are_reported() -> None:
    body = pod(containers=[container(requests={"cpu": "2"}, limits={"cpu": "2"})])
    message = denial(
        [{"type": "Container", "max": {"cpu": "1"}}], [{"type": "Pod", "max": {"cpu": "1500m"}}], body=body
    )
    assert message == (
        "[maximum cpu usage per Container is 1, but limit is 2, "
        "maximum cpu usage per Pod is 1500m, but limit is 2]"
    )


def test_a_resized_pod_is_limited_too() -> None:
    async def play(harness: ApiHarness) -> tuple[int, Any]:
        given = pod(containers=[container(requests={"cpu": "1"}, limits={"cpu": "1"})])
        assert (await harness.request("POST", PODS, given))[0] == 201
        tree = limit_range({"type": "Container", "max": {"cpu": "2"}})
        assert (await harness.request("POST", "/api/v1/namespaces/default/limitranges", tree))[0] == 201
        larger = {"spec": {"containers": [container(requests={"cpu": "3"}, limits={"cpu": "3"})]}}
        return await harness.request(
            "PATCH", f"{PODS}/p/resize", larger, content_type="application/strategic-merge-patch+json"
        )

    code, answer = run(play)
    assert code == 403
    assert "maximum cpu usage per Container is 2, but limit is 3" in answer["message"]


@pytest.mark.parametrize(
    ("item", "field", "message"),
    [
        (
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            "min[cpu]",
            "min value 2 is greater",
        ),
        (
            {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
            "defaultRequest[cpu]",
            "default request value 2 is greater than default limit value 1",
        ),
        ({"type": "Pod", "default": {"cpu": "1"}}, "default", "may not be specified when `type` is 'Pod'"),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
            "maxLimitRequestRatio[cpu]",
            "ratio 500m is less than 1",
        ),
        ({"type": "PersistentVolumeClaim"}, "limits", "either minimum or maximum storage value is required"),
    ],
)
def test_invalid_limit_ranges_are_rejected(item: Any, field: str, message: str) -> None:
    async def play(harness: ApiHarness) -> tuple[int, Any]:
        return await harness.request("POST", "/api/v1/namespaces/default/limitranges", limit_range(item))

    code, answer = run(play)
    assert code == 422
    causes = {cause["field"]: cause["message"] for cause in answer["details"]["causes"]}
    assert message in causes[f"spec.limits[0].{field}"]
