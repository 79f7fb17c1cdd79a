"""kubectl with `plimsoll server`: discovery and permissions."""

from __future__ import annotations

import json
from pathlib import Path

from plimsoll.apiserver.auth.certificates import CertificateAuthority
from plimsoll.apiserver.auth.kubeconfig import write_kubeconfig
from plimsoll.apiserver.auth.users import User
from tests.manifests import config_map, pod
from tests.smoke.kubectl import Kubectl
from tests.smoke.process import ServerProcess


def test_version_and_cluster_info(admin: Kubectl, server: ServerProcess) -> None:
    version = json.loads(admin("version", "-o", "json"))
    assert version["serverVersion"]["major"] == "1"
    assert server.url in admin("cluster-info")
    assert admin("get", "--raw", "/readyz") == "ok"
    assert "[+]etcd ok" in admin("get", "--raw", "/readyz?verbose")


def test_api_resources_and_versions(admin: Kubectl) -> None:
    rows = {line.split()[-1]: line.split() for line in admin("api-resources").splitlines()[1:]}
    assert rows["Pod"][:2] == ["pods", "po"]
    assert rows["ResourceClaim"][1:3] == ["resource.k8s.io/v1", "true"]
    verbs = admin("api-resources", "--api-group=resource.k8s.io", "-o", "wide", "--namespaced=false")
    assert "deletecollection" in verbs
    assert {"v1", "apps/v1", "resource.k8s.io/v1"} <= set(admin("api-versions").split())


def test_explain(admin: Kubectl) -> None:
    assert "FIELD: image <string>" in admin("explain", "pod.spec.containers.image")
    claim = admin("explain", "resourceclaim.spec.devices.requests")
    assert "firstAvailable" in claim
    assert "-required-" in claim
    tree = admin("explain", "resourceslice", "--recursive")
    assert "sharedCounters" in tree
    assert "VERSION:    v1beta2" in admin("explain", "devicetaintrule")
    assert "does not exist" in admin.refused("explain", "pod.spec.nothing")


def test_rights_and_impersonation(admin: Kubectl, kubectl: Kubectl) -> None:
    assert admin("auth", "whoami", "-o", "json").count("system:masters") == 1
    assert admin("auth", "can-i", "create", "pods") == "yes\n"
    someone = ("--as=bob", "--as-group=people")
    assert (
        json.loads(admin("auth", "whoami", *someone, "-o", "json"))["status"]["userInfo"]["username"] == "bob"
    )
    assert kubectl.run("auth", "can-i", "list", "pods", *someone).out == "no\n"
    refusal = kubectl.refused("get", "pods", *someone)
    assert (
        f'User "bob" cannot list resource "pods" in API group "" in the namespace "{kubectl.namespace}"'
        in refusal
    )
    kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--group=people")
    assert kubectl("auth", "can-i", "list", "pods", *someone) == "yes\n"
    assert kubectl("get", "pods", *someone) == ""
    assert "forbidden" in kubectl.refused("create", "configmap", "c", *someone)
    assert "pods" in kubectl("auth", "can-i", "--list", *someone)
    kubectl("create", "role", "writer", "--verb=create", "--resource=configmaps")
    kubectl("create", "rolebinding", "writers", "--role=writer", "--user=bob")
    kubectl("create", "configmap", "c", *someone)


def test_a_token_of_a_service_account(kubectl: Kubectl, server: ServerProcess, tmp_path: Path) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot").strip()
    assert token.count(".") == 2
    authority = (server.data / "ca.crt").read_bytes()
    write_kubeconfig(tmp_path / "robot", server.url, authority=authority, token=token, user="robot")
    robot = kubectl.using(tmp_path / "robot")
    name = f"system:serviceaccount:{kubectl.namespace}:robot"
    assert name in robot("auth", "whoami")
    assert name in robot.refused("get", "pods")
    account = f"--serviceaccount={kubectl.namespace}:robot"
    kubectl("create", "rolebinding", "robots", "--clusterrole=edit", account)
    robot("create", "configmap", "c")
    kubectl("delete", "serviceaccount", "robot")
    assert "Unauthorized" in robot.refused("get", "configmaps") or "logged in" in robot.refused("get", "pods")


def test_a_client_certificate(kubectl: Kubectl, server: ServerProcess, tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(server.data)
    client = authority.issue_client(User("carol", groups=("people",)))
    write_kubeconfig(tmp_path / "carol", server.url, authority=authority.certificate, client=client)
    carol = kubectl.using(tmp_path / "carol")
    shown = json.loads(carol("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert shown["username"] == "carol"
    assert set(shown["groups"]) == {"people", "system:authenticated"}
    assert "forbidden" in carol.refused("get", "configmaps")


def test_an_unknown_user_is_refused(kubectl: Kubectl, server: ServerProcess, tmp_path: Path) -> None:
    authority = (server.data / "ca.crt").read_bytes()
    write_kubeconfig(tmp_path / "bad", server.url, authority=authority, token="not-a-token")
    stranger = kubectl.using(tmp_path / "bad")
    assert "must be logged in" in stranger.refused("get", "pods")


def test_quotas(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=pods=1")
    kubectl("wait", "quota/q", "--for=jsonpath={.status.hard.pods}=1", "--timeout=10s")
    kubectl("create", "-f", "-", given=pod("a"))
    refusal = kubectl.refused("create", "-f", "-", given=pod("b"))
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in refusal


def test_events(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=config_map("c"))
    about = kubectl.get("configmap", "c")["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "c.1", "namespace": kubectl.namespace},
        "involvedObject": {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "name": "c",
            "namespace": kubectl.namespace,
            "uid": about["uid"],
        },
        "type": "Normal",
        "reason": "Tested",
        "message": "it was tested",
        "source": {"component": "smoke"},
        "firstTimestamp": about["creationTimestamp"],
        "lastTimestamp": about["creationTimestamp"],
        "count": 1,
    }
    kubectl("create", "-f", "-", given=event)
    row = kubectl("get", "events").splitlines()[1].split()
    assert row[1:4] == ["Normal", "Tested", "configmap/c"]
    assert "it was tested" in kubectl("events", "--for=configmap/c")
    chosen = kubectl("get", "events.events.k8s.io", "--field-selector=reason=Tested", "-o", "name")
    assert chosen == "event.events.k8s.io/c.1\n"
    assert "it was tested" in kubectl("describe", "configmap", "c")
