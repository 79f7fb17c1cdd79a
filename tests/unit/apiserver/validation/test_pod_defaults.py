"""Defaulting of pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.pod.images import is_latest
from plimsoll.apiserver.validation.schema_defaults import set_schema_defaults
from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.objects import NOW_TEXT, Tree, edit, field_errors, run


def _pod(**changes: Any) -> Tree:
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"containers": [{"name": "a", "image": "nginx:1.27"}]},
    }
    return edit(tree, {name.replace("__", "."): value for name, value in changes.items()})


def test_a_bare_pod() -> None:
    prepared = run(_pod())
    assert prepared.errors == ()
    assert prepared.tree["spec"] == {
        "containers": [
            {
                "name": "a",
                "image": "nginx:1.27",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    assert prepared.tree["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_pod_defaulting_is_idempotent() -> None:
    tree = run(_pod(spec__volumes=[{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}])).tree
    again = run(edit(tree, {"metadata.resourceVersion": "1"}), edit(tree, {"metadata.resourceVersion": "1"}))
    assert again.tree["spec"] == tree["spec"]


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "latest"),
    [
        ("nginx", True),
        ("nginx:latest", True),
        ("example.com:5000/a/b", True),
        ("localhost/x", True),
        ("[fd00::1]:5000/x", True),
        ("a/b/c_d__e--f.g", True),
        (f"nginx:latest@{DIGEST}", True),
        ("nginx:1", False),
        (f"nginx@{DIGEST}", False),
        ("nginx@sha256:0", False),
        ("example.com/Upper", False),
        ("Upper", False),
        ("0" * 64, False),
        ("nginx:" + "x" * 129, False),
        ("a//b", False),
        ("", False),
        ("-", False),
        ("x" * 5000, False),
    ],
)
def test_images_without_a_tag_are_pulled_always(image: str, latest: bool) -> None:
    assert is_latest(image) is latest
    container = run(_pod(spec__containers=[{"name": "a", "image": image}])).tree["spec"]["containers"][0]
    assert container["imagePullPolicy"] == ("Always" if latest else "IfNotPresent")


def test_limits_are_requested() -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    tree = run(_pod(spec__containers=[{"name": "a", "image": "x", "resources": {"limits": limits}}])).tree
    assert tree["spec"]["containers"][0]["resources"]["requests"] == limits
    some = {"limits": limits, "requests": {"cpu": "500m"}}
    tree = run(_pod(spec__containers=[{"name": "a", "image": "x", "resources": some}])).tree
    assert tree["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_pod_level_requests_default_to_container_requests() -> None:
    container = {"name": "a", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    limits = {"cpu": "4", "memory": "4Gi"}
    tree = run(_pod(spec__containers=[container], spec__resources={"limits": limits})).tree
    assert tree["spec"]["resources"]["requests"] == {"cpu": "1", "memory": "4Gi"}
    pages = {"cpu": "1", "hugepages-2Mi": "2Mi"}
    container = {"name": "a", "image": "x", "resources": {"limits": pages}}
    tree = run(_pod(spec__containers=[container], spec__resources={"limits": {"cpu": "4"}})).tree
    assert tree["spec"]["resources"]["limits"] == {"cpu": "4", "hugepages-2Mi": "2Mi"}
    assert tree["spec"]["resources"]["requests"] == {"cpu": "1", "hugepages-2Mi": "2Mi"}
    off = run(_pod(spec__resources={"limits": limits}), gates={"PodLevelResources": False}).tree
    assert "resources" not in off["spec"]


def test_amounts_are_stored_in_thousandths() -> None:
    requests = {"cpu": "100u", "memory": "0.5"}
    tree = run(_pod(spec__containers=[{"name": "a", "image": "x", "resources": {"requests": requests}}])).tree
    assert tree["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1m", "memory": "500m"}


@given(st.sampled_from(["n", "u", "m", "", "k", "Ki", "Gi"]), st.integers(-(10**12), 10**12))
def test_rounding_up_to_thousandths(suffix: str, number: int) -> None:
    before = Quantity.parse(f"{number}{suffix}")
    amounts = {"cpu": str(before)}
    set_schema_defaults("core.v1.ResourceRequirements", {"limits": amounts})
    after = Quantity.parse(amounts["cpu"])
    assert after.nano % 10**6 == 0
    assert abs(after.nano - before.nano) < 10**6
    assert abs(after.nano) >= abs(before.nano)


def test_ports_on_the_network_of_the_node() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]
    containers = [{"name": "a", "image": "x", "ports": ports}]
    tree = run(_pod(spec__hostNetwork=True, spec__containers=containers)).tree
    assert [port["hostPort"] for port in tree["spec"]["containers"][0]["ports"]] == [80, 81]
    assert {port["protocol"] for port in tree["spec"]["containers"][0]["ports"]} == {"TCP"}


def test_probes_have_numbers() -> None:
    probe = {"httpGet": {"port": 80}}
    containers = [{"name": "a", "image": "x", "livenessProbe": probe, "startupProbe": {"grpc": {"port": 1}}}]
    container = run(_pod(spec__containers=containers)).tree["spec"]["containers"][0]
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert container["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        **numbers,
    }
    assert container["startupProbe"] == {"grpc": {"port": 1, "service": ""}, **numbers}


@pytest.mark.parametrize("port", [1.5, True, [], {}, 2**31])
def test_a_port_is_a_number_or_a_name(port: Any) -> None:
    containers = [{"name": "a", "image": "x", "livenessProbe": {"tcpSocket": {"port": port}}}]
    with pytest.raises(DecodeError):
        run(_pod(spec__containers=containers))


def test_volumes() -> None:
    given_volumes: list[Tree] = [
        {"name": "a"},
        {"name": "b", "configMap": {"name": "x"}},
        {"name": "c", "hostPath": {"path": "/x"}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "e", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "f", "image": {"reference": "x"}},
    ]
    volumes = run(_pod(spec__volumes=given_volumes, spec__serviceAccountName="s")).tree["spec"]["volumes"]
    assert volumes[0] == {"name": "a", "emptyDir": {}}
    assert volumes[1]["configMap"]["defaultMode"] == 420
    assert volumes[2]["hostPath"]["type"] == ""
    assert volumes[3]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600
    assert volumes[4]["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"
    assert volumes[5]["image"]["pullPolicy"] == "Always"


def test_legacy_fields_are_normalized() -> None:
    tree = run(
        _pod(
            spec__terminationGracePeriodSeconds=-5,
            spec__serviceAccount="robot",
            metadata__annotations={"pod.beta.kubernetes.io/init-containers": "[]", "a": "b"},
        )
    ).tree
    assert tree["spec"]["terminationGracePeriodSeconds"] == 1
    assert tree["spec"]["serviceAccountName"] == tree["spec"]["serviceAccount"] == "robot"
    assert tree["metadata"]["annotations"] == {"a": "b"}


def test_addresses_of_a_pod() -> None:
    old = edit(run(_pod()).tree, {"metadata.resourceVersion": "1"})
    tree = run(edit(old, {"status.podIP": "10.0.0.1"}), old, "status").tree
    assert tree["status"]["podIPs"] == [{"ip": "10.0.0.1"}]
    tree = run(edit(old, {"status.podIPs": [{"ip": "10.0.0.2"}]}), old, "status").tree
    assert tree["status"]["podIP"] == "10.0.0.2"


def test_a_gated_pod_has_a_condition() -> None:
    tree = run(_pod(spec__schedulingGates=[{"name": "g"}])).tree
    (condition,) = tree["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )
    assert condition["lastTransitionTime"] == NOW_TEXT


def test_label_keys_become_part_of_the_selector() -> None:
    term = {"labelSelector": {"matchLabels": {"x": "y"}}, "topologyKey": "zone", "matchLabelKeys": ["app"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["app", "missing"],
    }
    tree = run(
        _pod(
            metadata__labels={"app": "web"},
            spec__affinity={"podAffinity": required},
            spec__topologySpreadConstraints=[spread],
        )
    ).tree
    wanted = [{"key": "app", "operator": "In", "values": ["web"]}]
    (kept,) = tree["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert kept["labelSelector"]["matchExpressions"] == wanted
    assert tree["spec"]["topologySpreadConstraints"][0]["labelSelector"] == {"matchExpressions": wanted}


def test_alpha_fields_are_dropped() -> None:
    containers = [
        {"name": "a", "image": "x", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {}}}}
    ]
    tree = run(_pod(spec__containers=containers)).tree
    assert "stopSignal" not in tree["spec"]["containers"][0]["lifecycle"]


def test_privileged_containers_are_allowed() -> None:
    containers = [{"name": "a", "image": "x", "securityContext": {"privileged": True}}]
    assert field_errors(_pod(spec__containers=containers)) == []
