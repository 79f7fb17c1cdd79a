"""Validation of pods except claims, of annotations and of the status."""

from __future__ import annotations

import pytest

from tests.unit.apiserver.validation.full_objects import PREFERRED, REQUIRED, SELECTOR, live_pod, make_pod
from tests.unit.apiserver.validation.objects import Tree, edit, field_errors, run, stored

MAIN = "spec.containers[0]"


def _check(pod: Tree, *errors: str) -> None:
    assert field_errors(pod) == sorted(errors)


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"containers": []}, ["containers Required"]),
        ({"restartPolicy": "x"}, ["restartPolicy NotSupported"]),
        ({"dnsPolicy": "x"}, ["dnsPolicy NotSupported"]),
        ({"dnsPolicy": "None"}, ["dnsConfig Required"]),
        (
            {"dnsConfig": {"nameservers": ["x"], "searches": ["A"], "options": [{}]}},
            [
                "dnsConfig.nameservers[0] Invalid",
                "dnsConfig.options[0] Required",
                "dnsConfig.searches[0] Invalid",
            ],
        ),
        ({"activeDeadlineSeconds": 0}, ["activeDeadlineSeconds Invalid"]),
        ({"serviceAccountName": "A"}, ["serviceAccountName Invalid"]),
        ({"nodeName": "A"}, ["nodeName Invalid"]),
        ({"hostname": "a.b"}, ["hostname Invalid"]),
        ({"subdomain": "A"}, ["subdomain Invalid"]),
        (
            {"hostnameOverride": "A" * 65, "hostNetwork": True},
            ["hostnameOverride Forbidden", "hostnameOverride Invalid", "hostnameOverride TooLong"],
        ),
        (
            {"hostAliases": [{"ip": "010.0.0.1", "hostnames": ["A"]}]},
            ["hostAliases[0].hostnames[0] Invalid", "hostAliases[0].ip Invalid"],
        ),
        (
            {"priorityClassName": "A", "preemptionPolicy": "x"},
            ["preemptionPolicy NotSupported", "priorityClassName Invalid"],
        ),
        ({"runtimeClassName": ""}, ["runtimeClassName Invalid"]),
        ({"overhead": {"foo": "1"}}, ["overhead.limits[foo] Invalid"] * 2),
        ({"readinessGates": [{"conditionType": "a b"}]}, ["readinessGates[0].conditionType Invalid"]),
        (
            {"schedulingGates": [{"name": "g"}, {"name": "g"}], "nodeName": "n"},
            ["nodeName Forbidden", "schedulingGates[1] Duplicate"],
        ),
        ({"nodeSelector": {"a b": "c d"}}, ["nodeSelector Invalid"] * 2),
        ({"tolerations": [{"key": "k", "operator": "Odd"}]}, ["tolerations[0].operator NotSupported"]),
        ({"tolerations": [{"value": "v"}]}, ["tolerations[0].operator Invalid"]),
        (
            {
                "tolerations": [
                    {"key": "k", "operator": "Exists", "value": "v", "tolerationSeconds": 1, "effect": "x"}
                ]
            },
            [
                "tolerations[0].effect Invalid",
                "tolerations[0].effect NotSupported",
                "tolerations[0].operator Invalid",
            ],
        ),
        (
            {"hostUsers": False, "hostPID": True, "hostNetwork": True},
            ["HostPID Forbidden", "hostNetwork Forbidden"],
        ),
        ({"os": {"name": "plan9"}}, ["os NotSupported"]),
        (
            {"os": {"name": "windows"}, "hostPID": True, "securityContext": {"fsGroup": 1}},
            ["hostPID Forbidden", "securityContext.fsGroup Forbidden"],
        ),
        (
            {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}},
            ["securityContext.windowsOptions Forbidden"],
        ),
        ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, ["hostNetwork Invalid"]),
        (
            {
                "securityContext": {"sysctls": [{"name": "net.x"}, {"name": "A"}, {"name": "net.x"}]},
                "hostNetwork": True,
            },
            [
                "securityContext.sysctls[0].name Invalid",
                "securityContext.sysctls[1].name Invalid",
                "securityContext.sysctls[2].name Duplicate",
                "securityContext.sysctls[2].name Invalid",
            ],
        ),
        ({"shareProcessNamespace": True, "hostPID": True}, ["securityContext.shareProcessNamespace Invalid"]),
        (
            {"securityContext": {"supplementalGroups": [-1], "seLinuxChangePolicy": "MountOption"}},
            [
                "securityContext.seLinuxChangePolicy NotSupported",
                "securityContext.supplementalGroups[0] Invalid",
            ],
        ),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {}}}},
            [f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms Required"],
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"matchLabelKeys": ["a"]}]}}},
            [
                f"affinity.podAffinity.{REQUIRED}[0].matchLabelKeys Forbidden",
                *[f"affinity.podAffinity.{REQUIRED}[0].topologyKey Invalid"] * 2,
                f"affinity.podAffinity.{REQUIRED}[0].topologyKey Required",
            ],
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        PREFERRED: [
                            {
                                "weight": 101,
                                "podAffinityTerm": {
                                    "topologyKey": "z",
                                    "labelSelector": {"matchExpressions": [{"key": "k", "operator": "In"}]},
                                },
                            }
                        ]
                    }
                }
            },
            [
                f"affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector"
                ".matchExpressions[0].values Required",
                f"affinity.podAntiAffinity.{PREFERRED}[0].weight Invalid",
            ],
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "whenUnsatisfiable": "x", "minDomains": 0}]},
            [
                "topologySpreadConstraints[0].maxSkew Invalid",
                "topologySpreadConstraints[0].minDomains Invalid",
                "topologySpreadConstraints[0].minDomains Invalid",
                "topologySpreadConstraints[0].topologyKey Required",
                "topologySpreadConstraints[0].whenUnsatisfiable NotSupported",
            ],
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
                ]
                * 2
            },
            ["topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable} Duplicate"],
        ),
        (
            {
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "z",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {**SELECTOR, "matchLabels": {"app": "x"}},
                        "matchLabelKeys": ["app"],
                    }
                ]
            },
            ["topologySpreadConstraints[0][0] Invalid"],
        ),
        ({"initContainers": [{"name": "main", "image": "x"}]}, ["initContainers[0].name Duplicate"]),
        (
            {"initContainers": [{"name": "i", "image": "x", "livenessProbe": {}}]},
            ["initContainers[0].livenessProbe Forbidden"],
        ),
        (
            {
                "initContainers": [
                    {
                        "name": "i",
                        "image": "x",
                        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                    }
                ]
            },
            ["initContainers[0].resizePolicy[0].restartPolicy Invalid"],
        ),
        (
            {
                "ephemeralContainers": [
                    {
                        "name": "main",
                        "image": "x",
                        "ports": [{"containerPort": 1}],
                        "targetContainerName": "y",
                    }
                ]
            },
            [
                "ephemeralContainers Forbidden",
                "ephemeralContainers[0].name Duplicate",
                "ephemeralContainers[0].ports Forbidden",
                "ephemeralContainers[0].targetContainerName NotFound",
            ],
        ),
    ],
)
def test_specs(spec: Tree, errors: list[str]) -> None:
    _check(make_pod(**spec), *(f"spec.{error}" for error in errors))


@pytest.mark.parametrize(
    ("name", "value", "errors"),
    [
        ("controller.kubernetes.io/pod-deletion-cost", "-5", []),
        ("controller.kubernetes.io/pod-deletion-cost", "+5", ["[{}] Invalid"]),
        ("controller.kubernetes.io/pod-deletion-cost", "05", ["[{}] Invalid"]),
        ("controller.kubernetes.io/pod-deletion-cost", str(2**31), ["[{}] Invalid"]),
        ("container.apparmor.security.beta.kubernetes.io/main", "x", ["[{}] Invalid"]),
        ("container.apparmor.security.beta.kubernetes.io/other", "unconfined", ["[{}] Invalid"]),
        ("seccomp.security.alpha.kubernetes.io/pod", "x", [".{} Invalid"]),
        ("container.seccomp.security.alpha.kubernetes.io/main", "localhost/..", [".{} Invalid"]),
        ("scheduler.alpha.kubernetes.io/tolerations", "x", [" Invalid"]),
        ("scheduler.alpha.kubernetes.io/tolerations", '[{"value": "v"}]', [".{}[0].operator Invalid"]),
    ],
)
def test_annotations(name: str, value: str, errors: list[str]) -> None:
    pod = edit(make_pod(), {"metadata.annotations": {name: value}})
    _check(pod, *(f"metadata.annotations{error.format(name)}" for error in errors))


def test_profiles_in_annotations_and_fields() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/main"
    pod = edit(make_pod(), {"metadata.annotations": {key: "localhost/x"}})
    container = run(pod).tree["spec"]["containers"][0]
    profile = {"type": "Localhost", "localhostProfile": "x"}
    assert container["securityContext"]["appArmorProfile"] == profile
    other = edit(pod, {"spec.containers.0.securityContext": {"appArmorProfile": {"type": "Unconfined"}}})
    _check(other, f"{MAIN}.securityContext.appArmorProfile.type Forbidden")
    old = stored(run(pod).tree)
    assert field_errors(edit(old, {"metadata.annotations": {}}), old) == [
        f"metadata.annotations[{key}] Forbidden"
    ]


# -- stored pods


@pytest.mark.parametrize(
    "spec",
    [
        {
            "containers": [
                {"name": "main", "image": "x", "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}}
            ]
        },
        {"tolerations": [{"key": "k", "operator": "Lt", "value": "5"}]},
        {"securityContext": {"sysctls": [{"name": "net.x"}]}, "hostNetwork": True},
        {"securityContext": {"seLinuxChangePolicy": "MountOption"}},
        {"hostUsers": False, "hostNetwork": True},
        {
            "serviceAccountName": "s",
            "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "../t"}}]}}],
        },
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a b"]}]}
                        ]
                    }
                }
            }
        },
        {
            "affinity": {
                "podAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": "z",
                            "labelSelector": {
                                "matchExpressions": [{"key": "k", "operator": "In", "values": ["a b"]}]
                            },
                        }
                    ]
                }
            }
        },
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "z",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b c"}},
                }
            ]
        },
        {
            "initContainers": [
                {
                    "name": "i",
                    "image": "x",
                    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                }
            ]
        },
    ],
)
def test_stored_pods_keep_their_exceptions(spec: Tree) -> None:
    pod = make_pod(**spec)
    assert field_errors(pod) != []
    old = stored(pod)
    assert field_errors(edit(old, {"metadata.labels.new": "x"}), old) == []


# -- ephemeral containers and the status


def test_ephemeral_containers_are_only_added() -> None:
    old = stored(live_pod())
    more = [*old["spec"]["ephemeralContainers"], {"name": "more", "image": "y"}]
    added = run(
        edit(old, {"spec.ephemeralContainers": more, "spec.hostname": "x"}), old, "ephemeralcontainers"
    )
    assert added.errors == ()
    assert [c["name"] for c in added.tree["spec"]["ephemeralContainers"]] == ["look", "more"]
    assert "hostname" not in added.tree["spec"]
    assert added.tree["metadata"]["generation"] == 2
    for changed in ([], [{"name": "look", "image": "other"}]):
        tree = edit(old, {"spec.ephemeralContainers": changed})
        assert field_errors(tree, old, "ephemeralcontainers") == ["spec.ephemeralContainers Forbidden"]
    mirror = edit(old, {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}})
    assert field_errors(mirror, mirror, "ephemeralcontainers") == ["[] Forbidden"]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"observedGeneration": -1}, ["observedGeneration Invalid"]),
        ({"qosClass": "Guaranteed"}, ["qosClass Invalid"]),
        ({"conditions.0.observedGeneration": -1}, ["conditions[0].observedGeneration Invalid"]),
        ({"conditions.0.type": "a b"}, ["conditions[0].Type Invalid"]),
        ({"nominatedNodeName": "N"}, ["nominatedNodeName Forbidden", "nominatedNodeName Invalid"]),
        ({"podIPs.1.ip": "10.0.0.3"}, ["podIPs Invalid"]),
        ({"podIPs.1.ip": "x"}, ["podIPs InternalError", "podIPs Invalid", "podIPs[1] Invalid"]),
        ({"hostIP": "10.0.0.9"}, ["hostIPs[0].ip Invalid"]),
        ({"containerStatuses.0.user.linux.uid": -1}, ["containerStatuses[0].user.linux.uid Invalid"]),
        (
            {
                "containerStatuses.0.allocatedResourcesStatus": [
                    {"name": "cpu", "resources": [{"health": "x"}]}
                ]
            },
            [
                "containerStatuses[0].allocatedResourcesStatus[0].name Invalid",
                "containerStatuses[0].allocatedResourcesStatus[0].resources[0].health NotSupported",
            ],
        ),
        (
            {"ephemeralContainerStatuses.0.allocatedResourcesStatus": [{"name": "cpu"}]},
            ["ephemeralContainerStatuses[0].allocatedResourcesStatus Forbidden"],
        ),
        (
            {"ephemeralContainerStatuses.0.state": {"running": {}}},
            ["ephemeralContainerStatuses[0].state Forbidden"],
        ),
    ],
)
def test_statuses(changes: Tree, errors: list[str]) -> None:
    old = stored(live_pod())
    tree = edit(old, {f"status.{name}": value for name, value in changes.items()})
    assert field_errors(tree, old, "status") == [f"status.{error}" for error in errors]


@pytest.mark.parametrize(
    ("policy", "code", "container", "fine"),
    [
        ("Always", 0, {}, True),
        ("Never", 1, {}, False),
        ("OnFailure", 0, {}, False),
        ("OnFailure", 1, {}, True),
        ("Never", 1, {"restartPolicy": "Always"}, True),
        (
            "Never",
            7,
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [7]}}],
            },
            True,
        ),
        (
            "Never",
            7,
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [7]}}
                ],
            },
            False,
        ),
    ],
)
def test_terminated_containers(policy: str, code: int, container: Tree, fine: bool) -> None:
    pod = make_pod(restartPolicy=policy, containers=[{"name": "main", "image": "x", **container}])
    old = stored(
        edit(
            pod, {"status.containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code}}}]}
        )
    )
    running = edit(old, {"status.containerStatuses.0.state": {"running": {}}})
    assert field_errors(running, old, "status") == (
        [] if fine else ["status.containerStatuses[0].state Forbidden"]
    )


@pytest.mark.parametrize(
    ("name", "valid", "wrong", "suffix"),
    [
        ("controller.kubernetes.io/pod-deletion-cost", "5", "+5", "[{}] Invalid"),
        ("scheduler.alpha.kubernetes.io/tolerations", "[]", "x", " Invalid"),
        ("seccomp.security.alpha.kubernetes.io/pod", "unconfined", "x", ".{} Invalid"),
    ],
)
def test_annotations_of_a_status_write(name: str, valid: str, wrong: str, suffix: str) -> None:
    """An update of the status may change annotations; an invalid deletion cost that is stored is kept."""
    error = [f"metadata.annotations{suffix.format(name)}"]
    old = stored(live_pod())
    fine, bad = (edit(old, {"metadata.annotations": {name: value}}) for value in (valid, wrong))
    assert field_errors(fine, old, "status") == []
    assert field_errors(bad, old, "status") == error
    assert field_errors(bad, bad, "status") == ([] if "deletion-cost" in name else error)


def test_generations_of_a_status_are_kept() -> None:
    old = stored(live_pod())
    status = run(
        edit(old, {"status.observedGeneration": 0, "status.conditions": [{"type": "Ready"}]}), old, "status"
    )
    assert status.tree["status"]["observedGeneration"] == 3
    assert status.tree["status"]["conditions"][0]["observedGeneration"] == 2


def test_a_name_that_is_no_label_warns() -> None:
    (warning,) = run(edit(make_pod(), {"metadata.name": "a.b"})).warnings
    assert warning.startswith("metadata.name: this is used in the Pod's hostname")
