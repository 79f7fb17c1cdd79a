"""kubectl with `plimsoll server`: admission policies, tokens bound to pods, priority and fairness."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from plimsoll.apiserver.auth.kubeconfig import write_kubeconfig
from tests.manifests import Tree, config_map, node, pod, resource_slice
from tests.smoke.kubectl import Kubectl
from tests.smoke.process import ServerProcess

DRIVER = Path(__file__).parents[2] / "deploy" / "manifests" / "cpu-driver" / "driver.yaml"
POLICY = "plimsoll-cpu-driver-own-node"


def policy(name: str, namespace: str) -> list[Tree]:
    """Return a policy for config maps of one namespace, and its binding."""
    group = {"apiVersion": "admissionregistration.k8s.io/v1"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [
            {
                "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
                "messageExpression": "'config map ' + object.metadata.name + ' needs the label team'",
            }
        ],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {**group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {**group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding},
    ]


@pytest.fixture
def policy_name(admin: Kubectl) -> Iterator[str]:
    name = f"p-{secrets.token_hex(4)}"
    yield name
    admin("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", name, "--ignore-not-found")


def test_a_policy_denies_and_stops_when_its_binding_is_deleted(kubectl: Kubectl, policy_name: str) -> None:
    kubectl("apply", "-f", "-", given=policy(policy_name, kubectl.namespace))
    refusal = kubectl.refused("create", "configmap", "c")
    assert f"ValidatingAdmissionPolicy '{policy_name}' with binding '{policy_name}' denied request" in refusal
    assert "config map c needs the label team" in refusal
    assert "needs the label team" in kubectl.refused("create", "configmap", "c", "--dry-run=server")
    kubectl("apply", "-f", "-", given=config_map("c", {"team": "a"}))
    listed = kubectl("get", "validatingadmissionpolicy", policy_name, "--no-headers")
    assert listed.split()[:2] == [policy_name, "1"]
    kubectl("delete", "validatingadmissionpolicybinding", policy_name)
    kubectl("create", "configmap", "d")


def test_a_policy_that_does_not_compile_is_refused(kubectl: Kubectl, policy_name: str) -> None:
    broken, _ = policy(policy_name, kubectl.namespace)
    broken["spec"]["validations"][0]["expression"] = "object.metadata.name =="
    refusal = kubectl.refused("create", "-f", "-", given=broken)
    assert "spec.validations[0].expression" in refusal
    assert "<input>:1:" in refusal


def test_a_driver_with_a_token_bound_to_its_pod_writes_slices_of_its_own_node_only(
    admin: Kubectl, server: ServerProcess, tmp_path: Path
) -> None:
    """The token that kubelets request for pods names the node, which the CPU driver's policy compares."""
    system, names = admin.within("kube-system"), [f"n-{secrets.token_hex(4)}" for _ in range(2)]
    driver = f"pod-{secrets.token_hex(4)}"
    account = "plimsoll-cpu-driver"
    manifests = [tree for tree in yaml.safe_load_all(DRIVER.read_text()) if tree["kind"] != "DaemonSet"]
    system("apply", "-f", "-", given=manifests)
    try:
        admin("create", "-f", "-", given=[node(name) for name in names])
        system("create", "-f", "-", given=pod(driver, node=names[0], serviceAccountName=account))

        def as_driver(*bound: str) -> Kubectl:
            token = system("create", "token", account, *bound).strip()
            path = tmp_path / f"driver-{len(bound)}"
            authority = (server.data / "ca.crt").read_bytes()
            write_kubeconfig(path, server.url, authority=authority, token=token, user=account)
            return admin.using(path)

        bound = as_driver("--bound-object-kind=Pod", f"--bound-object-name={driver}")
        shown = [line.split() for line in bound("auth", "whoami").splitlines()]
        assert ["Extra:", "authentication.kubernetes.io/node-name", f"[{names[0]}]"] in shown
        slices = [resource_slice(name, name) for name in names]
        for each in slices:
            each["spec"]["driver"] = "dra.cpu"
        bound("create", "-f", "-", given=slices[0])
        refusal = bound.refused("create", "-f", "-", given=slices[1])
        assert f"a driver on node {names[0]} may not write slices of node {names[1]}" in refusal
        unbound = as_driver()
        refusal = unbound.refused("create", "-f", "-", given=slices[1])
        assert "the token does not contain a node name" in refusal
        admin("create", "-f", "-", given=slices[1])
        assert "may not write slices of node" in bound.refused("delete", "resourceslice", names[1])
        bound("delete", "resourceslice", names[0])
    finally:
        admin("delete", "resourceslice", *names, "--ignore-not-found")
        system("delete", "pod", driver, "--ignore-not-found", "--force")
        admin("delete", "node", *names, "--ignore-not-found")
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            admin("delete", kind, POLICY)


def test_priority_and_fairness_objects(admin: Kubectl) -> None:
    rows = {
        line.split()[0]: line.split() for line in admin("get", "flowschemas", "--no-headers").splitlines()
    }
    assert rows["global-default"][:4] == ["global-default", "global-default", "9900", "ByUser"]
    assert rows["exempt"][2:4] == ["1", "<none>"]
    levels = admin("get", "prioritylevelconfigurations", "workload-low", "--no-headers").split()
    assert levels[:6] == ["workload-low", "Limited", "100", "128", "6", "50"]
    refusal = admin.refused("patch", "flowschema", "exempt", "--type=merge", "-p", '{"spec":{"rules":[]}}')
    assert "spec of 'exempt' must equal the fixed value" in refusal
