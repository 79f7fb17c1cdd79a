"""The official Python client and lightkube with `plimsoll server`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import kubernetes
import lightkube
import pytest
from lightkube.codecs import from_dict, load_all_yaml
from lightkube.core.exceptions import ApiError
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Namespace, Pod
from lightkube.resources.resource_v1 import ResourceClaim
from lightkube.types import CascadeType, PatchType

from tests.manifests import DRIVER, claim, config_map, device_class, pod
from tests.smoke.process import ServerProcess

#: Versions of the official client differ in what they say about their types.
k8s: Any = kubernetes
ApiException: type[Any] = k8s.client.exceptions.ApiException


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[Any]:
    """Return the official client's ApiClient."""
    config = k8s.client.Configuration()
    k8s.config.load_kube_config(str(server.kubeconfig), client_configuration=config)
    with k8s.client.ApiClient(config) as client:
        yield client


@pytest.fixture
def namespace(api: Any) -> str:
    name = f"py-{uuid4().hex[:8]}"
    core = k8s.client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": name}})
    return name


class TestOfficial:
    """kubernetes, the official client."""

    def test_create_read_replace_patch_delete(self, api: Any, namespace: str) -> None:
        core = k8s.client.CoreV1Api(api)
        made = core.create_namespaced_pod(namespace, pod("p", labels={"app": "x"}))
        assert made.spec.restart_policy == "Always"
        with pytest.raises(ApiException) as refused:
            core.create_namespaced_pod(namespace, pod("p"))
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")
        read = core.read_namespaced_pod("p", namespace)
        read.metadata.labels["b"] = "1"
        core.replace_namespaced_pod("p", namespace, read)
        with pytest.raises(ApiException):
            core.replace_namespaced_pod("p", namespace, read)
        patched = core.patch_namespaced_pod("p", namespace, {"metadata": {"labels": {"b": None, "c": "2"}}})
        assert patched.metadata.labels == {"app": "x", "c": "2"}
        status = {"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}
        assert core.patch_namespaced_pod_status("p", namespace, status).status.pod_ip == "10.0.0.1"
        core.delete_namespaced_pod("p", namespace)
        assert core.list_namespaced_pod(namespace).items == []

    def test_lists_select_and_page(self, api: Any, namespace: str) -> None:
        core = k8s.client.CoreV1Api(api)
        for number in range(5):
            core.create_namespaced_config_map(
                namespace, config_map(f"c{number}", {"even": str(number % 2 == 0)})
            )
        found = core.list_namespaced_config_map(namespace, label_selector="even=True")
        assert [item.metadata.name for item in found.items] == ["c0", "c2", "c4"]
        paged = partial(core.list_namespaced_config_map, namespace, label_selector="even", limit=2)
        page = paged()
        names = [item.metadata.name for item in page.items]
        while page.metadata._continue:
            page = paged(_continue=page.metadata._continue)
            names += [item.metadata.name for item in page.items]
        assert names == [f"c{number}" for number in range(5)]
        one = core.list_config_map_for_all_namespaces(
            field_selector=f"metadata.name=c3,metadata.namespace={namespace}"
        )
        assert len(one.items) == 1

    def test_watch(self, api: Any, namespace: str) -> None:
        core = k8s.client.CoreV1Api(api)
        since = core.list_namespaced_config_map(namespace).metadata.resource_version

        def work() -> None:
            core.create_namespaced_config_map(namespace, config_map("c", a="1"))
            core.patch_namespaced_config_map("c", namespace, {"data": {"a": "2"}})
            core.delete_namespaced_config_map("c", namespace)

        worker = threading.Timer(0.05, work)
        worker.start()
        seen = []
        watch = k8s.watch.Watch()
        for event in watch.stream(
            core.list_namespaced_config_map, namespace, resource_version=since, timeout_seconds=10
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                watch.stop()
        worker.join()
        assert seen == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]

    def test_claims_and_their_status(self, api: Any, namespace: str) -> None:
        resources = k8s.client.ResourceV1Api(api)
        made = resources.create_namespaced_resource_claim(namespace, claim("c", DRIVER))
        assert made.spec.devices.requests[0].exactly.allocation_mode == "ExactCount"
        result = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [result]}}}
        body = {"status": status, "metadata": {"resourceVersion": made.metadata.resource_version}}
        after = resources.patch_namespaced_resource_claim_status("c", namespace, body)
        assert after.status.allocation.devices.results[0].device == "gpu-0"

    def test_scale_and_apply(self, api: Any, namespace: str) -> None:
        apps = k8s.client.AppsV1Api(api)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("")["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
        apps.create_namespaced_deployment(namespace, tree)
        apps.patch_namespaced_deployment_scale("d", namespace, {"spec": {"replicas": 4}})
        assert apps.read_namespaced_deployment("d", namespace).spec.replicas == 4
        k8s.utils.create_from_dict(api, config_map("made"), namespace=namespace)
        core = k8s.client.CoreV1Api(api)
        assert core.read_namespaced_config_map("made", namespace).metadata.uid

    def test_server_side_apply(self, api: Any, namespace: str) -> None:
        core = k8s.client.CoreV1Api(api)

        def apply(manager: str, force: bool = False, **data: str) -> Any:
            options: dict[str, Any] = {
                "field_manager": manager,
                "_content_type": "application/apply-patch+yaml",
            }
            if force:
                options["force"] = True
            return core.patch_namespaced_config_map("c", namespace, config_map("c", None, **data), **options)

        apply("one", a="1", b="1")
        with pytest.raises(ApiException) as refused:
            apply("two", a="2")
        assert refused.value.status == 409
        assert apply("two", force=True, a="2").data == {"a": "2", "b": "1"}
        assert apply("one", b="2").data == {"a": "2", "b": "2"}, "what another owns stays"

    def test_the_dynamic_client(self, api: Any, namespace: str) -> None:
        dynamic = k8s.dynamic.DynamicClient(api)
        claims = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
        claims.create(body=claim("c", DRIVER), namespace=namespace)
        assert claims.get(name="c", namespace=namespace).spec.devices.requests[0].name == "gpu"
        assert [item.metadata.name for item in claims.get(namespace=namespace).items] == ["c"]
        events = claims.watch(namespace=namespace, timeout=1)
        assert [event["type"] for event in events] == ["ADDED"]
        claims.delete(name="c", namespace=namespace)
        classes = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="DeviceClass")
        name = f"class-{namespace}"
        classes.create(body=device_class(name))
        assert classes.server_side_apply(body=device_class(name), field_manager="me").metadata.name == name
        classes.delete(name=name)

    def test_a_lease_held_by_one(self, api: Any, namespace: str) -> None:
        """Leader election as client libraries do it: the first write under the version that was read wins."""
        coordination = k8s.client.CoordinationV1Api(api)
        now = datetime.now(UTC)
        spec = k8s.client.V1LeaseSpec(
            holder_identity="", lease_duration_seconds=15, renew_time=now, lease_transitions=0
        )
        metadata = k8s.client.V1ObjectMeta(name="lock")
        coordination.create_namespaced_lease(namespace, k8s.client.V1Lease(metadata=metadata, spec=spec))
        copies = [coordination.read_namespaced_lease("lock", namespace) for _ in range(3)]
        winners = []
        for number, lease in enumerate(copies):
            lease.spec.holder_identity = f"candidate-{number}"
            lease.spec.renew_time = now + timedelta(seconds=number)
            try:
                coordination.replace_namespaced_lease("lock", namespace, lease)
                winners.append(number)
            except ApiException as error:
                assert error.status == 409  # noqa: PT017 - that is the loser's lot
        assert winners == [0]
        held = coordination.read_namespaced_lease("lock", namespace).spec
        assert (held.holder_identity, held.renew_time) == ("candidate-0", now)

    def test_versions_and_rights(self, api: Any) -> None:
        assert k8s.client.VersionApi(api).get_code().major == "1"
        groups = k8s.client.ApisApi(api).get_api_versions().groups
        assert "resource.k8s.io" in {group.name for group in groups}
        authorization = k8s.client.AuthorizationV1Api(api)
        spec = {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}
        review = authorization.create_self_subject_access_review({"spec": spec})
        assert review.status.allowed


@pytest.fixture
def light(server: ServerProcess, namespace: str) -> Iterator[lightkube.Client]:
    config = lightkube.KubeConfig.from_file(str(server.kubeconfig))
    with lightkube.Client(config, namespace=namespace, field_manager="light", trust_env=False) as client:
        yield client


class TestLightkube:
    """lightkube, a typed client on another HTTP library."""

    def test_create_get_list_patch_delete(self, light: lightkube.Client) -> None:
        made = light.create(
            Pod(
                metadata=ObjectMeta(name="p", labels={"app": "x"}),
                spec=PodSpec(containers=[Container(name="main", image="example.org/main:1")]),
            )
        )
        assert made.spec is not None
        assert made.spec.restartPolicy == "Always"
        assert [found.metadata.name for found in light.list(Pod, labels={"app": "x"}) if found.metadata] == [
            "p"
        ]
        patched = light.patch(Pod, "p", {"metadata": {"labels": {"b": "1"}}}, patch_type=PatchType.MERGE)
        assert patched.metadata is not None
        assert patched.metadata.labels == {"app": "x", "b": "1"}
        operations: Any = [{"op": "remove", "path": "/metadata/labels/b"}]
        light.patch(Pod, "p", operations, patch_type=PatchType.JSON)
        light.delete(Pod, "p", grace_period=0)
        with pytest.raises(ApiError) as missing:
            light.get(Pod, "p")
        assert missing.value.status.reason == "NotFound"

    def test_apply_and_replace(self, light: lightkube.Client) -> None:
        first = light.apply(ConfigMap(metadata=ObjectMeta(name="c"), data={"a": "1", "b": "1"}))
        assert first.data == {"a": "1", "b": "1"}
        assert light.apply(ConfigMap(metadata=ObjectMeta(name="c"), data={"a": "2"})).data == {"a": "2"}
        stale = light.get(ConfigMap, "c")
        light.patch(ConfigMap, "c", {"data": {"z": "1"}})
        with pytest.raises(ApiError) as conflict:
            light.replace(stale)
        assert conflict.value.status.code == 409

    def test_watch_and_wait(self, light: lightkube.Client) -> None:
        light.create(from_dict(pod("p")))
        worker = threading.Timer(
            0.05,
            light.patch,
            (
                Pod.Status,
                "p",
                {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
            ),
        )
        worker.start()
        ready = light.wait(Pod, "p", for_conditions=["Ready"], raise_for_conditions=["Failed"])
        worker.join()
        assert ready.status is not None
        assert ready.status.phase == "Running"
        for kind, seen in light.watch(Pod, server_timeout=5):
            assert (kind, seen.metadata.name if seen.metadata else "") == ("ADDED", "p")
            break

    def test_yaml_scale_and_cascades(self, light: lightkube.Client) -> None:
        text = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 1
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: main, image: example.org/main:1}]}
"""
        for found in load_all_yaml(text):
            light.create(found)
        light.patch(Deployment.Scale, "d", {"spec": {"replicas": 2}})
        deployment = light.get(Deployment, "d")
        assert deployment.spec is not None
        assert deployment.spec.replicas == 2
        light.delete(Deployment, "d", cascade=CascadeType.FOREGROUND)

    def test_claims_leases_and_namespaces(self, light: lightkube.Client, namespace: str) -> None:
        light.create(from_dict(claim("c", DRIVER)))
        found = light.get(ResourceClaim, "c")
        assert found.spec is not None
        lease = light.create(
            Lease(
                metadata=ObjectMeta(name="l"),
                spec=LeaseSpec(holderIdentity="me", renewTime=datetime.now(UTC)),
            )
        )
        assert lease.spec is not None
        assert lease.spec.holderIdentity == "me"
        light.delete(Namespace, namespace)

    def test_async(self, server: ServerProcess, namespace: str) -> None:
        import asyncio  # noqa: PLC0415 - only here

        async def scenario() -> list[str]:
            config = lightkube.KubeConfig.from_file(str(server.kubeconfig))
            client = lightkube.AsyncClient(config, namespace=namespace, trust_env=False)
            await asyncio.gather(
                *(client.create(ConfigMap(metadata=ObjectMeta(name=f"c{n}"))) for n in range(20))
            )
            names = [
                found.metadata.name or ""
                async for found in client.list(ConfigMap, chunk_size=7)
                if found.metadata
            ]
            await client.close()
            return names

        # A controller adds the certificate of the server to every namespace.
        found = [name for name in asyncio.run(scenario()) if name != "kube-root-ca.crt"]
        assert sorted(found) == sorted(f"c{n}" for n in range(20))
