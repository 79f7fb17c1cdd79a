"""Rules for updates of every stored kind: updates without a resourceVersion, and PUTs that create.

The two lists are copied from the strategies of Kubernetes 1.36 (`pkg/registry/*/*/strategy.go`, and the
registries of apiextensions-apiserver and kube-aggregator), not derived from the table under test.
"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.apiserver.registry.unsupported import REFUSED as UNSUPPORTED
from tests.coroutines import run_by
from tests.unit.apiserver.build import MAPS, ApiHarness, config_map, run

#: AllowUnconditionalUpdate() returns false.
CONDITIONAL = {
    "apiservices.apiregistration.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "leases.coordination.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "poddisruptionbudgets.policy",
    "resourcepoolstatusrequests.resource.k8s.io",
    "runtimeclasses.node.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "volumeattachments.storage.k8s.io",
}
#: AllowCreateOnUpdate() returns true.
CREATED_BY_PUT = {
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "endpoints",
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "limitranges",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "runtimeclasses.node.k8s.io",
    "services",
}
STORED = [row for row in RESOURCES if row.is_stored]
CREATABLE = [row for row in STORED if row.key not in UNSUPPORTED]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"},
}
_WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
_JOB_POD = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "name": "r"}
_SIZE = {"storage": "1Gi"}
#: What an object of a kind needs besides its name for the server to accept it.
_MATCH = {
    "resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
}
_MUTATION = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
_POLICIES = "admissionpolicies.admissionregistration.k8s.io"
_POLICY_BINDINGS = "admissionpolicybindings.admissionregistration.k8s.io"
NEEDED: dict[str, dict[str, Any]] = {
    f"validating{_POLICIES}": {"spec": {"matchConstraints": _MATCH, "validations": [{"expression": "true"}]}},
    f"validating{_POLICY_BINDINGS}": {"spec": {"policyName": "p", "validationActions": ["Deny"]}},
    f"mutating{_POLICIES}": {
        "spec": {"matchConstraints": _MATCH, "mutations": [_MUTATION], "reinvocationPolicy": "Never"}
    },
    f"mutating{_POLICY_BINDINGS}": {"spec": {"policyName": "p"}},
    "flowschemas.flowcontrol.apiserver.k8s.io": {"spec": {"priorityLevelConfiguration": {"name": "p"}}},
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "clusterrolebindings.rbac.authorization.k8s.io": {"roleRef": {**_ROLE, "kind": "ClusterRole"}},
    "controllerrevisions.apps": {"revision": 1},
    "cronjobs.batch": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _JOB_POD}}}},
    "daemonsets.apps": {"spec": _WORKLOAD},
    "deployments.apps": {"spec": _WORKLOAD},
    "devicetaintrules.resource.k8s.io": {
        "spec": {"deviceSelector": {"driver": "a.example.com"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    },
    "endpointslices.discovery.k8s.io": {"addressType": "IPv4", "endpoints": []},
    "events": {"involvedObject": {"namespace": "default"}},
    "jobs.batch": {"spec": {"template": _JOB_POD}},
    "persistentvolumeclaims": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": _SIZE}}},
    "persistentvolumes": {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": _SIZE, "hostPath": {"path": "/x"}}
    },
    "podtemplates": {"template": _TEMPLATE},
    "podgroups.scheduling.k8s.io": {"spec": {"schedulingPolicy": {"basic": {}}}},
    "pods": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    "priorityclasses.scheduling.k8s.io": {"value": 1},
    "replicasets.apps": {"spec": _WORKLOAD},
    "replicationcontrollers": {"spec": {"selector": {"a": "b"}, "template": _TEMPLATE}},
    "resourceclaims.resource.k8s.io": {"spec": {"devices": {}}},
    "resourceclaimtemplates.resource.k8s.io": {"spec": {"spec": {"devices": {}}}},
    "resourcepoolstatusrequests.resource.k8s.io": {"spec": {"driver": "a.example.com"}},
    "resourceslices.resource.k8s.io": {
        "spec": {
            "driver": "a.example.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        }
    },
    "rolebindings.rbac.authorization.k8s.io": {"roleRef": {**_ROLE, "kind": "Role"}},
    "runtimeclasses.node.k8s.io": {"handler": "h"},
    "services": {"spec": {"ports": [{"port": 80}]}},
    "statefulsets.apps": {"spec": {**_WORKLOAD, "serviceName": "s"}},
    "storageclasses.storage.k8s.io": {"provisioner": "p.example.com"},
    "workloads.scheduling.k8s.io": {
        "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}]}
    },
}
REFUSED = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"


def test_the_table_follows_upstream() -> None:
    assert {row.key for row in STORED if not row.allow_unconditional_update} == CONDITIONAL
    assert {row.key for row in STORED if row.allow_create_on_update} == CREATED_BY_PUT


def collection(row: Resource) -> str:
    root = f"/apis/{row.group}" if row.group else "/api"
    scope = "/namespaces/default" if row.namespaced else ""
    return f"{root}/{row.versions[0]}{scope}/{row.plural}"


def example(row: Resource) -> dict[str, Any]:
    needed = NEEDED.get(row.key, {})
    if row.key == "events.events.k8s.io":
        needed = {
            "eventTime": "2026-01-02T03:04:05.000000Z",
            "regarding": {"namespace": "default"},
            "reportingController": "example.com/c",
            "reportingInstance": "i",
            "action": "a",
            "reason": "r",
            "type": "Normal",
        }
    return {"apiVersion": row.api_version(), "kind": row.kind, "metadata": {"name": "x"}, **needed}


@pytest.mark.parametrize("row", CREATABLE, ids=lambda row: row.key)
@run_by(run)
async def test_an_update_without_a_version(harness: ApiHarness, *, row: Resource) -> None:
    path = f"{collection(row)}/x"
    code, status = await harness.request("PUT", path, example(row))
    assert code == (201 if row.key in CREATED_BY_PUT else 404), status
    if code == 404:
        code, status = await harness.request("POST", collection(row), example(row))
        assert code == 201, status
    for version in ({}, {"resourceVersion": ""}, {"resourceVersion": "0"}):
        _, made = await harness.request("GET", path)
        metadata = {name: value for name, value in made["metadata"].items() if name != "resourceVersion"}
        changed = {**made, "metadata": {**metadata, **version, "annotations": {"a": "b"}}}
        code, answer = await harness.request("PUT", path, changed)
        if row.key not in CONDITIONAL:
            assert code == 200, answer
            assert answer["metadata"]["annotations"]["a"] == "b"
            continue
        assert (code, answer["reason"]) == (422, "Invalid"), answer
        assert answer["message"] == f'{row.key} "x" is invalid: {REFUSED}'
        assert answer["details"]["kind"] == row.plural
    _, made = await harness.request("GET", path)
    made["metadata"]["annotations"] = {"a": "c"}
    code, answer = await harness.request("PUT", path, made)
    assert code == 200, answer
    assert answer["metadata"]["annotations"]["a"] == "c"


@pytest.mark.parametrize(
    "row", [row for row in CREATABLE if "status" in row.subresources], ids=lambda row: row.key
)
@run_by(run)
async def test_an_update_of_the_status_without_a_version(harness: ApiHarness, *, row: Resource) -> None:
    path = f"{collection(row)}/x"
    code, made = await harness.request("POST", collection(row), example(row))
    assert code == 201, made
    del made["metadata"]["resourceVersion"]
    code, answer = await harness.request("PUT", f"{path}/status", made)
    assert code == (422 if row.key in CONDITIONAL else 200), answer


@run_by(run)
async def test_patches_carry_the_version_unless_they_remove_it(harness: ApiHarness) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}}
    merge = "application/merge-patch+json"

    async def patch(body: Any, media: str = merge) -> int:
        query = [("fieldManager", "m")]
        code, _ = await harness.request("PATCH", f"{LEASES}/x", body, query=query, content_type=media)
        return code

    apply = "application/apply-patch+yaml"
    assert await patch({**lease, "spec": {"holderIdentity": "a"}}, apply) == 201
    assert await patch({**lease, "spec": {"holderIdentity": "b"}}, apply) == 200
    assert await patch({"spec": {"holderIdentity": "c"}}) == 200
    assert await patch({"spec": {"holderIdentity": "d"}}, "application/strategic-merge-patch+json") == 200
    assert await patch({"metadata": {"resourceVersion": None}}) == 422
    removal = [{"op": "remove", "path": "/metadata/resourceVersion"}]
    assert await patch(removal, "application/json-patch+json") == 422


@run_by(run)
async def test_a_create_with_version_zero(harness: ApiHarness) -> None:
    assert (await harness.request("POST", MAPS, config_map(resourceVersion="0")))[0] == 201
