"""Workloads: defaults, selectors and immutable fields."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.generic_objects import (
    LABELS,
    created,
    edit,
    field_errors,
    minimal,
    write,
)

APPS = ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet")
FILLED_POD = {
    "containers": [
        {
            "name": "c",
            "image": "img",
            "imagePullPolicy": "Always",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ],
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": FILLED_POD}
SELECTOR = {"matchLabels": LABELS}


def _template(kind: str) -> str:
    return "template" if kind == "PodTemplate" else "spec.template"


# -- defaults


def test_a_deployment_gets_its_defaults() -> None:
    tree = created("Deployment", {"spec.template.metadata.creationTimestamp": None})
    assert tree["spec"] == {
        "selector": SELECTOR,
        "template": TEMPLATE,
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
    }
    assert (tree["status"], tree["metadata"]["generation"]) == ({}, 1)
    assert created("Deployment", {"spec.strategy": {"type": "Recreate"}})["spec"]["strategy"] == {
        "type": "Recreate"
    }
    kept = {"replicas": 0, "revisionHistoryLimit": 0, "progressDeadlineSeconds": 7}
    spec = created("Deployment", {f"spec.{name}": value for name, value in kept.items()})["spec"]
    assert kept.items() <= spec.items()


def test_a_replica_set_gets_its_defaults() -> None:
    tree = created("ReplicaSet")
    assert tree["spec"] == {"selector": SELECTOR, "template": TEMPLATE, "replicas": 1}
    assert tree["status"] == {"replicas": 0}


def test_a_daemon_set_gets_its_defaults() -> None:
    tree = created("DaemonSet")
    assert tree["spec"] == {
        "selector": SELECTOR,
        "template": TEMPLATE,
        "revisionHistoryLimit": 10,
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
    }
    assert tree["status"]["desiredNumberScheduled"] == 0
    leisurely = created("DaemonSet", {"spec.updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}})
    assert leisurely["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 0}


def test_the_template_of_a_daemon_set_is_counted() -> None:
    key = "deprecated.daemonset.template.generation"
    first = created("DaemonSet")
    assert first["metadata"]["annotations"] == {key: "1"}
    assert created("DaemonSet", {"metadata.annotations": {key: "7"}})["metadata"]["annotations"][key] == "7"
    assert created("DaemonSet", {"metadata.annotations": {key: "x"}})["metadata"]["annotations"][key] == "1"
    changed = edit(first, {"spec.minReadySeconds": 3, "metadata.annotations": {key: "9"}})
    assert write(changed, first).tree["metadata"]["annotations"] == {key: "1"}
    renewed = write(edit(first, {"spec.template.spec.containers.0.image": "new"}), first).tree["metadata"]
    assert (renewed["annotations"], renewed["generation"]) == ({key: "2"}, 2)


def test_a_stateful_set_gets_its_defaults() -> None:
    claim = {
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    }
    tree = created("StatefulSet", {"spec.volumeClaimTemplates": [claim]})
    filled = tree["spec"].pop("volumeClaimTemplates")[0]
    assert tree["spec"] == {
        "selector": SELECTOR,
        "template": TEMPLATE,
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "serviceName": "",
        "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    }
    assert (filled["kind"], filled["apiVersion"]) == ("PersistentVolumeClaim", "v1")
    assert (filled["spec"]["volumeMode"], filled["status"]) == ("Filesystem", {"phase": "Pending"})
    assert filled["spec"]["resources"]["requests"]["storage"] == "1Gi"
    plain = created("StatefulSet", {"spec.updateStrategy": {"type": "RollingUpdate"}})
    assert plain["spec"]["updateStrategy"] == {"type": "RollingUpdate"}


def test_a_replication_controller_takes_the_labels_of_its_pods() -> None:
    tree = created("ReplicationController")
    assert (tree["spec"]["selector"], tree["metadata"]["labels"]) == (LABELS, LABELS)
    assert (tree["spec"]["replicas"], tree["spec"]["template"]) == (1, TEMPLATE)
    own = created("ReplicationController", {"metadata.labels": {"a": "b"}})
    assert own["metadata"]["labels"] == {"a": "b"}


def test_templates_leave_pod_defaults_open() -> None:
    """Requests that default to limits, host ports and a negative grace period are not set in templates."""
    container = {
        "name": "c",
        "image": "img:1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1000m"}},
    }
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": -5, "containers": [container]}
    for kind in (*APPS, "ReplicationController", "PodTemplate"):
        tree = created(kind, {f"{_template(kind)}.spec": spec})
        pod = (tree["template"] if kind == "PodTemplate" else tree["spec"]["template"])["spec"]
        assert pod["terminationGracePeriodSeconds"] == -5
        assert "enableServiceLinks" not in pod
        assert pod["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
        assert pod["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


# -- selectors


@pytest.mark.parametrize("kind", APPS)
@pytest.mark.parametrize(
    ("selector", "errors"),
    [
        (None, ["spec.selector Required", "spec.template.metadata.labels Invalid"]),
        ({}, ["spec.selector Invalid"]),
        ({"matchLabels": {"app": "other"}}, ["spec.template.metadata.labels Invalid"]),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]}, []),
        (
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
            ["spec.template.metadata.labels Invalid"],
        ),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, []),
        (
            {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
            ["spec.template.metadata.labels Invalid"],
        ),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, []),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}]}, []),
    ],
)
def test_selectors_pick_the_pods_of_the_template(kind: str, selector: Any, errors: list[str]) -> None:
    if kind == "DaemonSet" and selector is None:
        errors = errors[1:]
    assert field_errors(minimal(kind, {"spec.selector": selector})) == errors


@pytest.mark.parametrize("kind", APPS)
def test_selectors_are_immutable(kind: str) -> None:
    old = created(kind)
    both = {"spec.selector": {"matchLabels": {"a": "b"}}, "spec.template.metadata.labels": {"a": "b"}}
    errors = field_errors(edit(old, both), old)
    assert errors == (["spec Forbidden"] if kind == "StatefulSet" else ["spec.selector Invalid"])
    more = edit(old, {"spec.template.metadata.labels": {**LABELS, "b": "c"}})
    assert field_errors(more, old) == []
    assert field_errors(edit(old, {"spec.template.metadata.labels": {"b": "c"}}), old) == [
        "spec.template.metadata.labels Invalid"
    ]


def test_selectors_that_cannot_be_read() -> None:
    bad = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    for kind in APPS:
        errors = ["spec.selector.matchExpressions[0].operator Invalid"]
        if kind != "DaemonSet":
            errors = ["spec.selector Invalid", *errors]
        assert field_errors(minimal(kind, {"spec.selector": bad})) == errors


def test_a_replication_controller_selects_its_own_pods() -> None:
    assert field_errors(minimal("ReplicationController", {"spec.selector": {"a": "b"}})) == [
        "spec.template.metadata.labels Invalid"
    ]
    assert field_errors(minimal("ReplicationController", {"spec": {}})) == [
        "spec.selector Required",
        "spec.template Required",
    ]


# -- templates


@pytest.mark.parametrize("kind", [*APPS, "ReplicationController", "PodTemplate"])
@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec": {}}, ["spec.containers Required"]),
        ({"metadata.labels": {**LABELS, "x": "?"}}, ["labels Invalid"]),
        ({"metadata.annotations": {"?": "x"}}, ["annotations Invalid"]),
        ({"spec.containers.0.name": "?"}, ["spec.containers[0].name Invalid"]),
        (
            {"spec.containers.0.resources": {"claims": [{"name": "gpu"}]}},
            ["spec.containers[0].resources.claims[0] NotFound"],
        ),
        (
            {"spec.ephemeralContainers": [{"name": "e", "image": "i"}]},
            ["spec.ephemeralContainers Forbidden"],
        ),
        (
            {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}},
            ["annotations[kubernetes.io/config.mirror] Invalid"],
        ),
    ],
)
def test_invalid_pod_templates(kind: str, changes: dict[str, Any], errors: list[str]) -> None:
    path = _template(kind)
    tree = minimal(kind, {f"{path}.{name}": value for name, value in changes.items()})
    assert [error for error in field_errors(tree) if error.startswith(path)] == [
        f"{path}.{error}" for error in errors
    ]


@pytest.mark.parametrize("kind", [*APPS, "ReplicationController"])
def test_workload_pods_restart_always(kind: str) -> None:
    changes = {"spec.template.spec.restartPolicy": "Never", "spec.template.spec.activeDeadlineSeconds": 5}
    assert field_errors(minimal(kind, changes)) == [
        "spec.template.spec.activeDeadlineSeconds Forbidden",
        "spec.template.spec.restartPolicy NotSupported",
    ]


def test_stored_templates_keep_their_exceptions() -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    twice = {**spread, "labelSelector": {"matchLabels": {"a": "%"}}}
    tree = minimal("Deployment", {"spec.template.spec.topologySpreadConstraints": [twice]})
    assert field_errors(tree) != []
    old = write(tree).tree
    assert field_errors(edit(old, {"spec.replicas": 3}), old) == []


# -- updates


@pytest.mark.parametrize(
    ("strategy", "errors"),
    [
        ({"type": "Recreate", "rollingUpdate": {}}, [".rollingUpdate Forbidden"]),
        ({"type": "Sometimes"}, [" NotSupported"]),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}, [".rollingUpdate.maxUnavailable Invalid"]),
        (
            {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "0%"}},
            [".rollingUpdate.maxUnavailable Invalid"],
        ),
        ({"rollingUpdate": {"maxUnavailable": "101%"}}, [".rollingUpdate.maxUnavailable Invalid"]),
        ({"rollingUpdate": {"maxUnavailable": "half"}}, [".rollingUpdate.maxUnavailable Invalid"]),
        ({"rollingUpdate": {"maxSurge": "1000%"}}, []),
        ({"rollingUpdate": {"maxSurge": -1}}, [".rollingUpdate.maxSurge Invalid"]),
    ],
)
def test_strategies_of_deployments(strategy: Any, errors: list[str]) -> None:
    tree = minimal("Deployment", {"spec.strategy": strategy})
    assert field_errors(tree) == [f"spec.strategy{error}" for error in errors]


@pytest.mark.parametrize(
    ("strategy", "errors"),
    [
        ({"type": "OnDelete"}, []),
        ({"type": "Sometimes"}, [" NotSupported"]),
        ({"rollingUpdate": {"maxSurge": 1}}, [".rollingUpdate.maxSurge Invalid"]),
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, []),
        ({"rollingUpdate": {"maxUnavailable": 0}}, [".rollingUpdate.maxUnavailable Required"]),
        ({"rollingUpdate": {"maxUnavailable": "30%"}}, []),
    ],
)
def test_strategies_of_daemon_sets(strategy: Any, errors: list[str]) -> None:
    tree = minimal("DaemonSet", {"spec.updateStrategy": strategy})
    assert field_errors(tree) == [f"spec.updateStrategy{error}" for error in errors]


@pytest.mark.parametrize(
    ("strategy", "errors"),
    [
        ({"type": "OnDelete"}, []),
        ({"type": "OnDelete", "rollingUpdate": {}}, [".rollingUpdate Invalid"]),
        ({"type": "Sometimes"}, [" Invalid"]),
        ({"rollingUpdate": {"partition": -1}}, [".rollingUpdate.partition Invalid"]),
        ({"rollingUpdate": {"maxUnavailable": 0}}, [".rollingUpdate.maxUnavailable Invalid"]),
        ({"rollingUpdate": {"maxUnavailable": "101%"}}, [".rollingUpdate.maxUnavailable Invalid"]),
        ({"rollingUpdate": {"maxUnavailable": 2}}, []),
    ],
)
def test_strategies_of_stateful_sets(strategy: Any, errors: list[str]) -> None:
    tree = minimal("StatefulSet", {"spec.updateStrategy": strategy})
    assert field_errors(tree) == [f"spec.updateStrategy{error}" for error in errors]


def test_numbers_are_not_negative() -> None:
    numbers = {f"spec.{name}": -1 for name in ("replicas", "minReadySeconds")}
    for kind in (*APPS, "ReplicationController"):
        errors = ["spec.minReadySeconds Invalid", "spec.replicas Invalid"]
        wanted = errors[:1] if kind == "DaemonSet" else errors
        assert field_errors(minimal(kind, numbers)) == wanted
    assert field_errors(
        minimal("Deployment", {"spec.progressDeadlineSeconds": 5, "spec.minReadySeconds": 5})
    ) == ["spec.progressDeadlineSeconds Invalid"]


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.strategy": {"rollingUpdate": {"maxSurge": 1.5}}},
        {"spec.strategy": {"rollingUpdate": {"maxSurge": 2**31}}},
        {"spec.replicas": "3"},
        {"spec.template": []},
        {"spec.template.spec.containers": {}},
    ],
)
def test_wrong_types_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        write(minimal("Deployment", changes))


# -- StatefulSet


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec.replicas": 3}, []),
        ({"spec.template.spec.containers.0.image": "new"}, []),
        ({"spec.updateStrategy": {"type": "OnDelete"}}, []),
        ({"spec.ordinals": {"start": 4}}, []),
        ({"spec.minReadySeconds": 4}, []),
        ({"spec.revisionHistoryLimit": 4}, []),
        ({"spec.persistentVolumeClaimRetentionPolicy.whenScaled": "Delete"}, []),
        ({"spec.serviceName": "t"}, ["spec Forbidden"]),
        ({"spec.podManagementPolicy": "Parallel"}, ["spec Forbidden"]),
        ({"spec.volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]}, ["spec Forbidden"]),
    ],
)
def test_immutable_stateful_set_fields(changes: dict[str, Any], errors: list[str]) -> None:
    old = created("StatefulSet", {"spec.serviceName": "s"})
    assert field_errors(edit(old, changes), old) == errors


def test_pods_of_a_stateful_set_have_volumes_and_names_of_their_own() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    changes = {
        "spec.volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": claim}],
        "spec.template.spec.hostname": "NOT A NAME",
        "spec.template.spec.containers.0.volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    assert field_errors(minimal("StatefulSet", changes)) == []
    without = {**changes, "spec.volumeClaimTemplates": []}
    assert field_errors(minimal("StatefulSet", without)) == [
        "spec.template.spec.containers[0].volumeMounts[0].name NotFound"
    ]


def test_invalid_stateful_sets() -> None:
    changes = {
        "spec.podManagementPolicy": "Random",
        "spec.serviceName": "No_Label",
        "spec.ordinals": {"start": -1},
        "spec.persistentVolumeClaimRetentionPolicy": {"whenScaled": "Lend"},
        "spec.volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}],
    }
    assert field_errors(minimal("StatefulSet", changes)) == [
        "spec.ordinals.start Invalid",
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled NotSupported",
        "spec.podManagementPolicy Invalid",
        "spec.serviceName Invalid",
        "spec.volumeClaimTemplates[0].spec.accessModes Required",
        "spec.volumeClaimTemplates[0].spec.resources[storage] Required",
    ]


def test_an_empty_spec_is_refused() -> None:
    for kind in APPS:
        assert "spec.template.spec.containers Required" in field_errors(minimal(kind, {"spec": {}}))
