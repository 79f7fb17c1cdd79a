"""kubectl with `plimsoll server`: objects."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

import pytest

from tests.manifests import (
    NODE_STATUS,
    claim,
    claim_template,
    claiming_pod,
    config_map,
    device_class,
    node,
    owned_config_map,
    pod,
    resource_slice,
)
from tests.smoke.kubectl import Kubectl, manifest
from tests.waiting import DEADLINE


@pytest.fixture
def machine(kubectl: Kubectl) -> str:
    """Create a node that is ready."""
    name = f"n-{secrets.token_hex(4)}"
    kubectl("create", "-f", "-", given=node(name))
    status = manifest({"status": NODE_STATUS})
    kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
    return name


# -- writing


def test_apply_creates_changes_and_prunes(kubectl: Kubectl) -> None:
    first, second = config_map("c", {"app": "x"}, a="1", b="2"), config_map("c", {"app": "x"}, a="3")
    assert kubectl("apply", "-f", "-", given=first) == "configmap/c created\n"
    assert kubectl("apply", "-f", "-", given=first) == "configmap/c unchanged\n"
    assert kubectl("apply", "-f", "-", given=second) == "configmap/c configured\n"
    assert kubectl.get("configmap", "c")["data"] == {"a": "3"}


def test_server_side_apply_knows_owners(kubectl: Kubectl) -> None:
    first, second = config_map("c", a="1", b="2"), config_map("c", a="1")
    apply = ("apply", "--server-side", "-f", "-")
    assert kubectl(*apply, given=first) == "configmap/c serverside-applied\n"
    version = kubectl.get("configmap", "c")["metadata"]["resourceVersion"]
    kubectl(*apply, given=first)
    assert kubectl.get("configmap", "c")["metadata"]["resourceVersion"] == version, "nothing had changed"
    refusal = kubectl.refused(*apply, "--field-manager=other", given=config_map("c", a="other"))
    assert 'conflict with "kubectl"' in refusal
    assert ".data.a" in refusal
    kubectl(*apply, "--field-manager=other", "--force-conflicts", given=config_map("c", a="other"))
    assert kubectl.get("configmap", "c")["data"] == {"a": "other", "b": "2"}
    kubectl(*apply, "--force-conflicts", given=second)
    assert kubectl.get("configmap", "c")["data"] == {"a": "1"}, "what is applied no more goes"
    fields = kubectl.get("configmap", "c", "--show-managed-fields")["metadata"]["managedFields"]
    assert {entry["manager"] for entry in fields} == {"kubectl"}


def test_apply_moves_from_client_to_server(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=config_map("c", a="1", b="2"))
    kubectl("apply", "--server-side", "-f", "-", given=config_map("c", a="2"))
    assert kubectl.get("configmap", "c")["data"] == {"a": "2"}


def test_create_refuses_existing_and_invalid_objects(kubectl: Kubectl) -> None:
    assert kubectl("create", "configmap", "c", "--from-literal=a=1") == "configmap/c created\n"
    assert '"c" already exists' in kubectl.refused("create", "configmap", "c")
    wrong = {**pod("p"), "spec": {"containers": [{"name": "Bad Name", "image": "x"}]}}
    refusal = kubectl.refused("create", "-f", "-", given=wrong)
    assert 'The Pod "p" is invalid: spec.containers[0].name: Invalid value: "Bad Name"' in refusal
    unknown = config_map("d")
    unknown["dota"] = {"a": "1"}
    assert 'unknown field "dota"' in kubectl.refused("create", "-f", "-", given=unknown)
    generated = config_map("")
    generated["metadata"] = {"generateName": "made-"}
    assert kubectl("create", "-f", "-", "-o", "name", given=generated).startswith("configmap/made-")


def test_edit(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=config_map("c", word="before"))
    edited = kubectl.run("edit", "configmap", "c", editor="sed -i s/before/after/")
    assert (edited.code, edited.out) == (0, "configmap/c edited\n"), edited
    assert kubectl.get("configmap", "c")["data"] == {"word": "after"}


def test_replace_checks_the_resource_version(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=config_map("c", a="1"))
    read = kubectl.get("configmap", "c")
    read["data"]["a"] = "2"
    assert kubectl("replace", "-f", "-", given=read) == "configmap/c replaced\n"
    assert "the object has been modified" in kubectl.refused("replace", "-f", "-", given=read)
    kubectl("replace", "--force", "-f", "-", given=config_map("c", a="3"))
    again = kubectl.get("configmap", "c")
    assert again["data"] == {"a": "3"}
    assert again["metadata"]["uid"] != read["metadata"]["uid"]


def test_patches_of_all_types(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=pod("p"))
    patch = {"spec": {"containers": [{"name": "main", "image": "example.org/main:2"}]}}
    kubectl("patch", "pod", "p", "-p", manifest(patch))
    containers = kubectl.get("pod", "p")["spec"]["containers"]
    assert [c["image"] for c in containers] == ["example.org/main:2"]
    assert containers[0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    kubectl("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"labels":{"a":"1"}}}')
    operations = (
        '[{"op":"test","path":"/metadata/labels/a","value":"1"},{"op":"remove","path":"/metadata/labels/a"}]'
    )
    kubectl("patch", "pod", "p", "--type=json", "-p", operations)
    assert "labels" not in kubectl.get("pod", "p")["metadata"]
    assert kubectl.refused("patch", "pod", "p", "--type=json", "-p", operations)


def test_labels_and_annotations(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    assert kubectl("label", "configmap", "c", "a=1", "b=2") == "configmap/c labeled\n"
    assert "already has a value" in kubectl.refused("label", "configmap", "c", "a=2")
    kubectl("label", "--overwrite", "configmap", "c", "a=2", "b-")
    kubectl("annotate", "configmap", "c", "note=one two")
    metadata = kubectl.get("configmap", "c")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "2"}, {"note": "one two"})
    kubectl("annotate", "configmap", "c", "note-")
    assert "annotations" not in kubectl.get("configmap", "c")["metadata"]
    assert "invalid" in kubectl.refused("label", "configmap", "c", "a=not/valid")


def test_scale(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=example.org/main:1")
    assert kubectl("scale", "deployment", "d", "--replicas=3") == "deployment.apps/d scaled\n"
    assert kubectl.get("deployment", "d")["spec"]["replicas"] == 3
    assert kubectl.refused("scale", "deployment", "d", "--current-replicas=1", "--replicas=2")
    assert kubectl.run("get", "deployment", "d").out.splitlines()[1].split()[:2] == ["d", "0/3"]


def test_dry_run_and_diff_change_nothing(kubectl: Kubectl) -> None:
    shown = kubectl("create", "-f", "-", "--dry-run=server", "-o", "json", given=pod("p"))
    assert '"restartPolicy": "Always"' in shown, "the server has filled in its defaults"
    assert kubectl.run("get", "pod", "p").code == 1
    kubectl("apply", "-f", "-", given=config_map("c", a="1"))
    kubectl("apply", "-f", "-", "--dry-run=server", given=config_map("c", a="2"))
    kubectl("apply", "--server-side", "-f", "-", "--dry-run=server", given=config_map("c", a="2"))
    difference = kubectl.run("diff", "-f", "-", given=config_map("c", a="2"))
    assert difference.code == 1
    assert '-  a: "1"\n+  a: "2"' in difference.out
    assert kubectl.run("diff", "-f", "-", given=config_map("c", a="1")).code == 0
    kubectl("delete", "configmap", "c", "--dry-run=server")
    assert kubectl.get("configmap", "c")["data"] == {"a": "1"}


# -- reading


def test_get_in_all_its_forms(kubectl: Kubectl, machine: str) -> None:
    objects = [pod("a", node=machine, labels={"app": "x"}), pod("b", labels={"app": "y"}), pod("c")]
    kubectl("create", "-f", "-", given=objects)
    kubectl(
        "patch", "pod", "a", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Running"}}'
    )
    head, *rows = kubectl("get", "pods").splitlines()
    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row.split()[:4] for row in rows] == [
        ["a", "0/1", "Running", "0"],
        ["b", "0/1", "Pending", "0"],
        ["c", "0/1", "Pending", "0"],
    ]
    wide = kubectl("get", "pods", "-o", "wide").splitlines()
    assert machine in wide[1].split()
    assert "NODE" in wide[0]
    assert kubectl("get", "pods", "-o", "name", "-l", "app in (x,y)") == "pod/a\npod/b\n"
    assert kubectl("get", "pods", "-o", "name", "-l", "!app") == "pod/c\n"
    assert kubectl("get", "pods", "-o", "name", "--field-selector", f"spec.nodeName={machine}") == "pod/a\n"
    selected = kubectl("get", "pods", "-o", "name", "--field-selector", "status.phase!=Running")
    assert selected == "pod/b\npod/c\n"
    assert len(kubectl("get", "pods", "--chunk-size=1").splitlines()) == 4
    names = kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}", "--sort-by=.metadata.name")
    assert names == "a b c"
    assert "kind: Pod\n" in kubectl("get", "pod", "a", "-o", "yaml")
    assert kubectl.namespace in kubectl("get", "pods", "-A")
    columns = kubectl("get", "pods", "-o", "custom-columns=N:.metadata.name,P:.status.phase")
    assert columns.splitlines()[1].split() == ["a", "Running"]
    everything = kubectl("get", "all,nodes,configmaps")
    assert f"node/{machine}" in everything
    assert "pod/a" in everything


def test_get_follows_changes(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c")
    others = "--field-selector=metadata.name!=kube-root-ca.crt"
    watch = kubectl.start("get", "configmaps", "-w", "--output-watch-events", "--no-headers", others)
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:2] == ["ADDED", "c"]
        kubectl("label", "configmap", "c", "a=1")
        kubectl("delete", "configmap", "c")
        kubectl("create", "configmap", "d")
        assert watch.stdout.readline().split()[:2] == ["MODIFIED", "c"]
        assert watch.stdout.readline().split()[:2] == ["DELETED", "c"]
        assert watch.stdout.readline().split()[:2] == ["ADDED", "d"]
    finally:
        watch.kill()
        watch.communicate()


def test_describe_and_tables_of_device_kinds(kubectl: Kubectl, machine: str) -> None:
    family = f"gpu-{machine}"
    objects = [device_class(family), resource_slice(family, machine, 2), claim("c", family)]
    objects += [claim_template("t", family), claiming_pod("p", "t"), pod("q", node=machine)]
    kubectl("apply", "-f", "-", given=objects)
    described = kubectl("describe", "pod", "q")
    assert f"{machine}/" in described.partition("Node:")[2].splitlines()[0]
    assert "example.org/main:1" in described
    assert "q " in kubectl("describe", "node", machine).partition("Non-terminated Pods")[2]
    assert "Device Class Name:  " + family in kubectl("describe", "resourceclaim", "c")
    assert "Driver:       gpu.example.com" in kubectl("describe", "resourceslice", family)
    assert "Expression:" in kubectl("describe", "deviceclass", family)
    row = kubectl("get", "resourceslice", family).splitlines()[1].split()
    assert row[:4] == [family, machine, "gpu.example.com", machine]
    kubectl("wait", "pod/p", "--for=jsonpath={.status.resourceClaimStatuses[0].name}", "--timeout=10s")
    claims = kubectl("get", "resourceclaims").splitlines()
    assert claims[0].split() == ["NAME", "STATE", "AGE"]
    assert sorted(row.split()[1] for row in claims[1:]) == ["pending", "pending"]
    assert any(row.startswith("p-gpu-") for row in claims), "made from its template"


# -- deleting


def test_delete_by_name_label_and_force(kubectl: Kubectl, machine: str) -> None:
    labelled = [config_map(name, {"app": "x"}) for name in "ab"]
    kubectl("create", "-f", "-", given=[*labelled, config_map("c"), pod("p", node=machine)])
    out = kubectl("delete", "configmaps", "-l", "app=x")
    assert out.count("deleted") == 2
    kubectl("delete", "pod", "p", "--wait=false")
    metadata = kubectl.get("pod", "p")["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30, "its node may still be running it"
    kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    assert "NotFound" in kubectl.refused("get", "pod", "p")
    assert "NotFound" in kubectl.refused("delete", "configmap", "a")
    kubectl("delete", "configmap", "a", "--ignore-not-found")
    kubectl("delete", "configmaps", "--all")
    assert "NotFound" in kubectl.refused("get", "configmap", "c")


def test_delete_propagates_to_dependents(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=[config_map(f"owner-{name}") for name in "abc"])
    owners = [kubectl.get("configmap", f"owner-{name}") for name in "abc"]
    kubectl(
        "create", "-f", "-", given=[owned_config_map(f"of-{name}", owners[i]) for i, name in enumerate("abc")]
    )
    kubectl("delete", "configmap", "owner-a", "--cascade=foreground", "--timeout=10s")
    assert kubectl("get", "configmap", "of-a", "--ignore-not-found") == "", (
        "first the dependents, then the owner"
    )
    kubectl("delete", "configmap", "owner-b", "--cascade=background", "--timeout=10s")
    kubectl("wait", "--for=delete", "configmap/of-b", "--timeout=10s")
    kubectl("delete", "configmap", "owner-c", "--cascade=orphan", "--timeout=10s")
    assert "ownerReferences" not in kubectl.get("configmap", "of-c")["metadata"]


def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    held = config_map("c")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    kubectl("create", "-f", "-", given=held)
    kubectl("delete", "configmap", "c", "--wait=false")
    waiting = kubectl.start("wait", "--for=delete", "configmap/c", "--timeout=10s")
    assert kubectl.get("configmap", "c")["metadata"]["deletionTimestamp"]
    kubectl("patch", "configmap", "c", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert waiting.wait(DEADLINE) == 0
    waiting.communicate()


def test_delete_a_namespace_with_content(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=[config_map("c"), pod("p")])
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=120s")
    assert "NotFound" in kubectl.refused("get", "namespace", kubectl.namespace)
    assert kubectl("get", "configmaps,pods") == ""


# -- nodes


def test_taints_and_cordons(kubectl: Kubectl, machine: str) -> None:
    kubectl("taint", "node", machine, "k=v:NoSchedule")
    assert kubectl.get("node", machine)["spec"]["taints"] == [
        {"key": "k", "value": "v", "effect": "NoSchedule"}
    ]
    kubectl("taint", "node", machine, "k-")
    assert "taints" not in kubectl.get("node", machine)["spec"]
    kubectl("cordon", machine)
    assert kubectl("get", "node", machine).splitlines()[1].split()[1] == "Ready,SchedulingDisabled"
    kubectl("uncordon", machine)
    assert not kubectl.get("node", machine)["spec"].get("unschedulable")


def test_drain_respects_budgets(kubectl: Kubectl, machine: str) -> None:
    kubectl("create", "-f", "-", given=pod("p", node=machine, labels={"app": "x"}))
    running = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", running)
    kubectl("create", "poddisruptionbudget", "b", "--selector=app=x", "--min-available=1")
    wait = ("wait", "poddisruptionbudget/b", "--timeout=30s")
    kubectl(*wait, "--for=jsonpath={.status.currentHealthy}=1")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/p/eviction"
    refusal = kubectl.refused("create", "--raw", path, "-f", "-", given=eviction)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in refusal
    change = '{"spec":{"minAvailable":0}}'
    kubectl("patch", "poddisruptionbudget", "b", "--type=merge", "-p", change)
    kubectl(*wait, "--for=jsonpath={.status.disruptionsAllowed}=1")
    assert f"node/{machine} drained" in kubectl(
        "drain", machine, "--force", "--grace-period=0", "--timeout=10s"
    )
    assert "NotFound" in kubectl.refused("get", "pod", "p")
    kubectl(*wait, "--for=jsonpath={.status.disruptionsAllowed}=0")


# -- waiting


def test_wait(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=pod("p"))
    waiting: list[subprocess.Popen[str]] = [
        kubectl.start("wait", "pod/p", "--for=condition=Ready", "--timeout=120s"),
        kubectl.start("wait", "pod/p", "--for=jsonpath={.status.phase}=Running", "--timeout=120s"),
    ]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    patch = manifest({"status": status})
    kubectl("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", patch)
    assert [process.wait(15) for process in waiting] == [0, 0]
    for process in waiting:
        process.communicate()
    refusal = kubectl.refused("wait", "pod/p", "--for=condition=Other", "--timeout=1s")
    assert "timed out waiting for the condition" in refusal


def test_files_and_directories(kubectl: Kubectl, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n"
        )
    assert kubectl("apply", "-f", str(tmp_path)) == "configmap/a created\nconfigmap/b created\n"
    (tmp_path / "b.yaml").unlink()
    pruned = ("apply", "-f", str(tmp_path), "--prune", "--all", "--prune-allowlist=core/v1/ConfigMap")
    assert "configmap/b pruned" in kubectl(*pruned)
    assert kubectl("delete", "-f", str(tmp_path)).startswith('configmap "a" deleted')
