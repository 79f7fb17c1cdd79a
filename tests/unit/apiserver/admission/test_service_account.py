"""Tests of the admission plugin ServiceAccount."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.admission.service_account import (
    account_name,
    admit_service_account,
    check_ephemeral_containers,
    mount_token,
)
from tests.coroutines import run_by
from tests.unit.apiserver.build import PODS, ApiHarness, pod, run

Tree = dict[str, Any]

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT: Tree = {"metadata": {"name": "robot"}}
LIMITED: Tree = {
    "metadata": {"name": "robot", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
    "secrets": [{"name": "listed"}],
    "imagePullSecrets": [{"name": "pull"}],
}


def _pod(**spec: Any) -> Tree:
    containers = {"containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": {**containers, **spec}}


def _name(prefix: str) -> str:
    return prefix + "abcde"


def _mounts(tree: Tree, field: str = "containers") -> list[list[str]]:
    return [[each["mountPath"] for each in c.get("volumeMounts", ())] for c in tree["spec"][field]]


def test_the_default_account_need_not_exist() -> None:
    assert account_name(_pod()) == "default"
    admitted = admit_service_account(_pod(), None)
    assert admitted.refusal == ""
    assert admitted.tree["spec"]["serviceAccountName"] == admitted.tree["spec"]["serviceAccount"] == "default"


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_another_account_must_exist(field: str) -> None:
    refusal = 'error looking up service account n/robot: serviceaccount "robot" not found'
    assert admit_service_account(_pod(**{field: "robot"}), None).refusal == refusal
    assert check_ephemeral_containers(_pod(**{field: "robot"}), None) == refusal
    spec = admit_service_account(_pod(**{field: "robot"}), ACCOUNT).tree["spec"]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "robot"


def test_every_container_and_init_container_mounts_the_token() -> None:
    given = _pod(initContainers=[{"name": "i"}], ephemeralContainers=[{"name": "e"}])
    tree = mount_token(given, None, _name)
    assert tree["spec"]["volumes"] == [
        {
            "name": "kube-api-access-abcde",
            "projected": {
                "defaultMode": 0o644,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                    {
                        "downwardAPI": {
                            "items": [
                                {
                                    "path": "namespace",
                                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                }
                            ]
                        }
                    },
                ],
            },
        }
    ]
    mount = {"name": "kube-api-access-abcde", "readOnly": True, "mountPath": PATH}
    assert tree["spec"]["containers"][0]["volumeMounts"] == [mount]
    assert tree["spec"]["initContainers"][0]["volumeMounts"] == [mount]
    assert "volumeMounts" not in tree["spec"]["ephemeralContainers"][0]
    assert "volumes" not in given["spec"]
    assert "volumeMounts" not in given["spec"]["containers"][0]
    assert mount_token(tree, None, _name) is tree


@pytest.mark.parametrize(
    ("of_pod", "of_account", "mounted"),
    [
        (None, None, True),
        (None, False, False),
        (None, True, True),
        (False, True, False),
        (True, False, True),
        (False, None, False),
    ],
)
def test_pod_and_account_decide_in_this_order(
    of_pod: bool | None, of_account: bool | None, mounted: bool
) -> None:
    given = _pod() if of_pod is None else _pod(automountServiceAccountToken=of_pod)
    account = ACCOUNT if of_account is None else {**ACCOUNT, "automountServiceAccountToken": of_account}
    assert ("volumes" in mount_token(given, account, _name)["spec"]) is mounted


def test_own_mounts_and_volumes_are_kept() -> None:
    own = {"name": "own", "volumeMounts": [{"name": "mine", "mountPath": PATH}]}
    volumes = [{"name": "mine", "emptyDir": {}}]
    given = _pod(containers=[own], volumes=volumes)
    assert mount_token(given, None, _name) is given
    tree = mount_token(_pod(containers=[own, {"name": "other"}], volumes=volumes), None, _name)
    assert _mounts(tree) == [[PATH], [PATH]]
    assert [volume["name"] for volume in tree["spec"]["volumes"]] == ["mine", "kube-api-access-abcde"]
    dumped = _pod(volumes=[{"name": "kube-api-access-zzzzz", "projected": {}}])
    tree = mount_token(dumped, None, _name)
    assert tree["spec"]["volumes"] == dumped["spec"]["volumes"]
    assert tree["spec"]["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-zzzzz"


def test_pull_secrets_of_the_account() -> None:
    account = {**ACCOUNT, "imagePullSecrets": [{"name": "a"}, {"name": "b"}]}
    assert admit_service_account(_pod(serviceAccountName="robot"), account).tree["spec"][
        "imagePullSecrets"
    ] == [{"name": "a"}, {"name": "b"}]
    own = _pod(serviceAccountName="robot", imagePullSecrets=[{"name": "own"}])
    assert admit_service_account(own, account).tree["spec"]["imagePullSecrets"] == [{"name": "own"}]


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({}, ""),
        ({"serviceAccountName": "x"}, "a mirror pod may not reference service accounts"),
        ({"imagePullSecrets": [{"name": "x"}]}, "a mirror pod may not reference secrets"),
        ({"volumes": [{"secret": {"secretName": "x"}}]}, "a mirror pod may not reference secrets"),
        (
            {"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
def test_mirror_pods_are_not_changed(spec: Tree, refusal: str) -> None:
    mirror = _pod(**spec)
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    admitted = admit_service_account(mirror, None)
    assert admitted.tree is mirror
    assert admitted.refusal == refusal
    assert mount_token(mirror, None, _name) is mirror


_VARIABLE = {"name": "V", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}
_REASON = "is not allowed because service account robot does not reference that"


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"volumes": [{"name": "v", "secret": {"secretName": "listed"}}]}, ""),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "other"}}]},
            f'volume with secret.secretName="other" {_REASON} secret',
        ),
        (
            {"containers": [{"name": "c", "env": [_VARIABLE]}]},
            f'container c with envVar V referencing secret.secretName="other" {_REASON} secret',
        ),
        (
            {"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "other"}}]}]},
            f'init container i with envFrom referencing secret.secretName="other" {_REASON} secret',
        ),
        (
            {"imagePullSecrets": [{"name": "pull"}, {"name": "other"}]},
            f'imagePullSecrets[1].name="other" {_REASON} imagePullSecret',
        ),
    ],
)
def test_an_account_limits_the_secrets_of_its_pods(spec: Tree, refusal: str) -> None:
    assert admit_service_account(_pod(serviceAccountName="robot", **spec), LIMITED).refusal == refusal
    assert admit_service_account(_pod(serviceAccountName="robot", **spec), ACCOUNT).refusal == ""


def test_an_account_limits_the_secrets_of_ephemeral_containers() -> None:
    given = _pod(serviceAccountName="robot", ephemeralContainers=[{"name": "e", "env": [_VARIABLE]}])
    refusal = f'ephemeral container e with envVar V referencing secret.secretName="other" {_REASON} secret'
    assert check_ephemeral_containers(given, LIMITED) == refusal
    assert check_ephemeral_containers(given, ACCOUNT) == ""
    assert check_ephemeral_containers(_pod(), None) == ""


@pytest.mark.parametrize("tree", [{}, {"spec": None}, {"spec": []}, {"spec": "x"}, []])
def test_what_is_not_a_pod_is_not_changed(tree: Any) -> None:
    assert admit_service_account(tree, None).tree is tree
    assert mount_token(tree, None, _name) is tree


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": 5},
        {"volumes": [None, {"name": 5}]},
        {"containers": None},
        {"containers": [None, {"volumeMounts": 5}, {"volumeMounts": [None]}]},
        {"serviceAccountName": 5},
        {"imagePullSecrets": "x"},
        {"initContainers": {"env": [_VARIABLE]}},
    ],
)
def test_malformed_pods_cause_no_errors(spec: Tree) -> None:
    for account in (None, ACCOUNT, LIMITED):
        mount_token(admit_service_account(_pod(**spec), account).tree, account, _name)
        check_ephemeral_containers(_pod(**spec), account)


# -- through the API


@run_by(run)
async def test_created_pods_have_a_token(harness: ApiHarness) -> None:
    code, made = await harness.request("POST", PODS, pod())
    assert code == 201
    assert _mounts(made) == [[PATH]]
    volume = made["spec"]["volumes"][0]
    assert volume["name"].startswith("kube-api-access-")
    assert len(volume["name"]) == 21
    # No manager owns what admission added, as upstream.
    assert "kube-api-access" not in str(made["metadata"]["managedFields"])
    assert (await harness.request("GET", f"{PODS}/{made['metadata']['name']}"))[1] == made
    # The prepared pod is a fixed point of preparation.
    assert (await harness.request("PUT", f"{PODS}/{made['metadata']['name']}", made))[1] == made


@run_by(run)
async def test_an_account_that_does_not_exist_or_wants_no_token(harness: ApiHarness) -> None:
    code, status = await harness.request("POST", PODS, pod("p", serviceAccountName="robot"))
    expected = (
        'pods "p" is forbidden: error looking up service account default/robot: '
        'serviceaccount "robot" not found'
    )
    assert (code, status["message"]) == (403, expected)
    tree = {"metadata": {"name": "robot"}, "automountServiceAccountToken": False}
    assert (await harness.request("POST", ACCOUNTS, tree))[0] == 201
    code, made = await harness.request("POST", PODS, pod("p", serviceAccountName="robot"))
    assert code == 201
    assert "volumes" not in made["spec"]


@run_by(run)
async def test_an_applied_pod_keeps_its_token_when_it_is_applied_again(harness: ApiHarness) -> None:
    tree = {"apiVersion": "v1", "kind": "Pod", **pod("p")}
    query = [("fieldManager", "m"), ("force", "true")]
    for label in ("a", "b"):
        tree["metadata"]["labels"] = {"label": label}
        code, made = await harness.request(
            "PATCH", f"{PODS}/p", tree, query=query, content_type="application/apply-patch+yaml"
        )
        assert code in (200, 201)
        assert _mounts(made) == [[PATH]]
        assert len(made["spec"]["volumes"]) == 1
    assert made["metadata"]["labels"] == {"label": "b"}


@run_by(run)
async def test_mutating_policies_see_the_volume(harness: ApiHarness) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'volumes': string(size(object.spec.volumes))}}}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "metadata": {"name": "x"},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
            ],
        },
    }
    assert (await harness.request("POST", POLICIES, policy))[0] == 201
    binding = {"metadata": {"name": "x"}, "spec": {"policyName": "x"}}
    assert (await harness.request("POST", BINDINGS, binding))[0] == 201
    code, made = await harness.request("POST", PODS, pod("p"))
    assert code == 201, made
    assert made["metadata"]["labels"]["volumes"] == "1"
    assert len(made["spec"]["volumes"]) == 1
    assert _mounts(made) == [[PATH]]
