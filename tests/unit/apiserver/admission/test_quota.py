"""Quota charges of objects."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import ResourceClaim
from plimsoll.apiserver.admission.quota import QuotaCharge, charge_quotas
from plimsoll.apiserver.validation.write_context import decode_view
from plimsoll.controllers.quota.usage import ExtendedResourceNames, QuotaContext
from plimsoll.ledger.claims import read_charged_claims
from tests.unit.apiserver.validation.objects import NOW, Tree

CLAIMS = "resourceclaims.resource.k8s.io"


def _quota(hard: Tree, used: Tree | None = None, **spec: Any) -> Tree:
    zero = dict.fromkeys(hard, "0")
    return {
        "metadata": {"name": "q", "namespace": "d"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": {**zero, **(used or {})}},
    }


def _pod(requests: Tree | None = None, limits: Tree | None = None, **spec: Any) -> Tree:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"containers": [{"name": "a", "resources": resources}], **spec},
        "status": {"phase": "Pending"},
    }


#: Gates with which quotas count what claims charge.
WITH_CLAIMS = Gates.of({"DRANodeAllocatableResourcesQuota": True})


def _charge(
    quota: Tree, tree: Tree, old: Tree | None = None, resource: str = "pods", **more: Any
) -> QuotaCharge:
    before = copy.deepcopy((quota, tree, old))
    subresource = more.pop("subresource", "")
    more.setdefault("gates", WITH_CLAIMS)
    charged = charge_quotas([quota], resource, tree, old, QuotaContext(NOW, **more), subresource=subresource)
    assert (quota, tree, old) == before
    return charged


def test_a_pod_is_charged() -> None:
    quota = _quota({"pods": "3", "requests.cpu": "2", "limits.memory": "1Gi"}, {"requests.cpu": "500m"})
    (after,) = _charge(quota, _pod({"cpu": "1500m"}, {"memory": "1Gi"})).quotas
    assert after["status"]["used"] == {"pods": "1", "requests.cpu": "2", "limits.memory": "1Gi"}
    assert after["spec"] == quota["spec"]


def test_exceeding_a_quota_is_refused() -> None:
    quota = _quota({"pods": "3", "requests.cpu": "2"}, {"requests.cpu": "500m"})
    charged = _charge(quota, _pod({"cpu": "1501m"}))
    assert charged.quotas == ()
    assert charged.refusal == (
        "exceeded quota: q, requested: requests.cpu=1501m, used: requests.cpu=500m, limited: requests.cpu=2"
    )


def test_limited_resources_must_be_specified() -> None:
    quota = _quota({"requests.cpu": "2", "limits.memory": "1Gi"})
    assert _charge(quota, _pod()).refusal == (
        "failed quota: q: must specify limits.memory for: a; requests.cpu for: a"
    )
    whole = _pod(resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}})
    assert _charge(quota, whole).refusal == ""


def test_a_quota_without_a_status() -> None:
    quota = _quota({"pods": "1"})
    assert _charge({**quota, "status": {}}, _pod()) == QuotaCharge()
    unknown = {**quota, "status": {"hard": {"pods": "1"}}}
    assert _charge(unknown, _pod()).refusal == "status unknown for quota: q, resources: pods"


def test_negative_amounts() -> None:
    refusal = _charge(_quota({"requests.cpu": "1"}), _pod({"cpu": "-1"})).refusal
    assert refusal == "quota usage is negative for resource(s): cpu,requests.cpu"


ENTRY = {"resourceClaimName": "c", "containers": ["a"], "resources": {"cpu": "4", "memory": "1Gi"}}


def _charged(tree: Tree, *entries: Tree, **spec: Any) -> Tree:
    status = {**tree["status"], "nodeAllocatableResourceClaimStatuses": list(entries)}
    return {**tree, "spec": {**tree["spec"], **spec}, "status": status}


def test_charges_are_checked_when_they_are_written() -> None:
    """They are written before the pod is bound; afterwards they are facts."""
    quota = _quota({"pods": "3", "requests.cpu": "5", "limits.memory": "1Gi"}, {"requests.cpu": "1"})
    old = _pod({"cpu": "1"})
    (after,) = _charge(quota, _charged(old, ENTRY), old, subresource="status").quotas
    assert after["status"]["used"] == {"pods": "0", "requests.cpu": "5", "limits.memory": "0"}
    full = _quota({"pods": "3", "requests.cpu": "5"}, {"requests.cpu": "2"})
    refusal = _charge(full, _charged(old, ENTRY), old, subresource="status").refusal
    assert refusal == (
        "exceeded quota: q, requested: requests.cpu=4, used: requests.cpu=2, limited: requests.cpu=5"
    )
    bound = _charged(old, ENTRY, nodeName="n")
    (after,) = _charge(full, bound, {**old, "spec": bound["spec"]}, subresource="status").quotas
    assert after["status"]["used"]["requests.cpu"] == "6"


def test_claims_add_to_existing_limits() -> None:
    quota = _quota({"limits.memory": "3Gi", "limits.cpu": "3"}, {"limits.memory": "1Gi"})
    old = _pod({"cpu": "1"}, {"memory": "1Gi"})
    (after,) = _charge(quota, _charged(old, ENTRY), old, subresource="status").quotas
    assert after["status"]["used"] == {"limits.memory": "2Gi", "limits.cpu": "0"}


def test_other_writes_of_a_status_are_not_charged() -> None:
    full = _quota({"requests.cpu": "1"}, {"requests.cpu": "9"})
    old = _charged(_pod({"cpu": "1"}), ENTRY)
    running = {**old, "status": {**old["status"], "phase": "Running"}}
    assert _charge(full, running, old, subresource="status") == QuotaCharge()
    assert _charge(full, _charged(old), old, subresource="status") == QuotaCharge(), "they are given back"
    raised = _charged(old, {**ENTRY, "resources": {"cpu": "40"}})
    assert _charge(full, raised, old, subresource="status", gates=Gates.default()) == QuotaCharge()
    assert _charge(full, raised, old, subresource="status").refusal


def test_a_pool_counts_once() -> None:
    """The first pod counts the pool, the others what they do not draw from it."""
    pool = {**ENTRY, "resources": {"cpu": "8"}, "accountingPolicies": {"cpu": "ConsumeFrom"}}
    first = _charged(_pod({"cpu": "3"}), {**pool, "drawn": {"cpu": "3"}})
    other = decode_view({**first, "metadata": {"name": "other", "namespace": "d", "uid": "o"}}, Pod)
    quota = _quota({"requests.cpu": "10"}, {"requests.cpu": "3"})
    (after,) = _charge(quota, first, _pod({"cpu": "3"}), subresource="status").quotas
    assert after["status"]["used"] == {"requests.cpu": "8"}
    found = _charge(
        quota, first, _pod({"cpu": "3"}), subresource="status", find_consumers=lambda pod, claim: [other]
    )
    assert found == QuotaCharge(), "nothing is added"


def test_charges_of_allocated_claims_are_expected_at_creation() -> None:
    pod = _pod({"cpu": "1"})
    expected = read_charged_claims(decode_view(_charged(pod, ENTRY), Pod))
    quota = _quota({"requests.cpu": "5"}, {"requests.cpu": "1"})
    refusal = _charge(quota, pod, expected_claims=lambda pod: expected).refusal
    assert refusal == (
        "exceeded quota: q, requested: requests.cpu=5, used: requests.cpu=1, limited: requests.cpu=5"
    )
    (after,) = _charge(_quota({"requests.cpu": "6"}), pod, expected_claims=lambda pod: expected).quotas
    assert after["status"]["used"] == {"requests.cpu": "1"}, "the charges count when they are written"


@pytest.mark.parametrize(
    ("scope", "pod", "counts"),
    [
        ("BestEffort", _pod(), True),
        ("BestEffort", _pod({"cpu": "1"}), False),
        ("NotBestEffort", _pod({"cpu": "1"}), True),
        ("Terminating", _pod(activeDeadlineSeconds=5), True),
        ("Terminating", _pod(), False),
        ("Terminating", _pod(activeDeadlineSeconds=-1), False),
        ("NotTerminating", _pod(), True),
        ("PriorityClass", _pod(priorityClassName="x"), True),
        ("PriorityClass", _pod(), False),
        ("CrossNamespacePodAffinity", _pod(), False),
        (
            "CrossNamespacePodAffinity",
            _pod(
                affinity={
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"namespaceSelector": {}}]
                    }
                }
            ),
            True,
        ),
    ],
)
def test_scopes(scope: str, pod: Tree, counts: bool) -> None:
    assert bool(_charge(_quota({"pods": "5"}, scopes=[scope]), pod).quotas) is counts


@pytest.mark.parametrize(
    ("operator", "values", "name", "counts"),
    [
        ("In", ["high"], "high", True),
        ("In", ["high"], "", False),
        ("NotIn", ["high"], "low", True),
        ("NotIn", ["high"], "", True),
        ("NotIn", [], "", False),
        ("NotIn", [], "low", False),
        ("In", [""], "", False),
        ("DoesNotExist", [], "", True),
        ("Exists", [], "", False),
    ],
)
def test_scope_selectors(operator: str, values: list[str], name: str, counts: bool) -> None:
    requirement = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    quota = _quota({"pods": "5"}, scopeSelector={"matchExpressions": [requirement]})
    assert bool(_charge(quota, _pod(priorityClassName=name)).quotas) is counts


def test_updates() -> None:
    quota = _quota({"pods": "1", "requests.cpu": "2"}, {"pods": "1", "requests.cpu": "1"})
    small, big = _pod({"cpu": "1"}), _pod({"cpu": "3"})
    assert _charge(quota, big, small) == QuotaCharge()  # a pod's spec does not change so
    assert "requested: requests.cpu=2," in _charge(quota, big, small, subresource="resize").refusal
    assert _charge(quota, small, big, subresource="resize") == QuotaCharge()
    assert _charge(quota, big, small, subresource="status") == QuotaCharge()
    scoped = _quota({"pods": "1"}, {"pods": "1"}, scopes=["Terminating"])
    ending = _pod({"cpu": "1"}, activeDeadlineSeconds=5)
    assert _charge(scoped, ending, small).refusal.startswith("exceeded quota: q, requested: pods=1")


def test_pods_that_ended_count_as_objects_only() -> None:
    quota = _quota({"pods": "5", "count/pods": "5"})
    done = {**_pod(), "status": {"phase": "Failed"}}
    (after,) = _charge(quota, done).quotas
    assert after["status"]["used"] == {"pods": "0", "count/pods": "1"}
    late = _pod()
    late["metadata"] |= {
        "deletionTimestamp": (NOW - timedelta(seconds=60)).isoformat(),
        "deletionGracePeriodSeconds": 30,
    }
    (after,) = _charge(quota, late).quotas
    assert after["status"]["used"] == {"pods": "0", "count/pods": "1"}


def _claim(name: str = "c", *, count: int = 2, asked_by: str = "", made: str = "") -> Tree:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    metadata: Tree = {"name": name, "namespace": "d", "creationTimestamp": made or "2026-01-01T00:00:00Z"}
    if asked_by:
        metadata["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": asked_by, "uid": f"uid-{asked_by}"}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


def test_claims() -> None:
    claim = _claim()
    quota = _quota({f"count/{CLAIMS}": "5", "gpu.deviceclass.resource.k8s.io/devices": "3"})
    (after,) = _charge(quota, claim, resource=CLAIMS).quotas
    assert after["status"]["used"]["gpu.deviceclass.resource.k8s.io/devices"] == "2"
    named = ExtendedResourceNames({"gpu": "example.com/gpu"})
    quota = _quota({"requests.example.com/gpu": "1"})
    assert _charge(quota, claim, resource=CLAIMS) == QuotaCharge()
    assert "exceeded quota" in _charge(quota, claim, resource=CLAIMS, extended=named).refusal
    off = Gates.of({"DRAExtendedResource": False})
    assert _charge(quota, claim, resource=CLAIMS, extended=named, gates=off) == QuotaCharge()


def test_a_class_without_an_extended_resource_has_a_default_name() -> None:
    name = "requests.deviceclass.resource.kubernetes.io/gpu"
    quota = _quota({name: "1"})
    unnamed = ExtendedResourceNames({"gpu": ""})
    assert f"requested: {name}=2" in _charge(quota, _claim(), resource=CLAIMS, extended=unnamed).refusal
    assert _charge(quota, _claim(), resource=CLAIMS) == QuotaCharge()  # there is no such class


def test_claim_charges_of_the_pod_are_not_counted_twice() -> None:
    named = ExtendedResourceNames({"gpu": "example.com/gpu"})
    pod = decode_view(_pod({"example.com/gpu": "2"}), Pod)
    pods = {"p": msgspec.structs.replace(pod, metadata=ObjectMeta(name="p", uid="uid-p"))}
    others: list[ResourceClaim] = []

    def charge(claim: Tree) -> QuotaCharge:
        quota = _quota({"requests.example.com/gpu": "9"})
        return _charge(
            quota,
            claim,
            resource=CLAIMS,
            extended=named,
            find_pod=pods.get,
            find_claims=lambda uid: others if uid == "uid-p" else (),
        )

    def used(claim: Tree) -> list[str]:
        return [quota["status"]["used"]["requests.example.com/gpu"] for quota in charge(claim).quotas]

    assert used(_claim()) == ["2"]
    assert used(_claim(asked_by="p")) == []
    assert used(_claim(asked_by="p", count=5)) == ["3"]
    assert used(_claim(asked_by="gone")) == ["2"]
    others.append(decode_view(_claim("b", asked_by="p"), ResourceClaim))
    assert used(_claim("a", asked_by="p")) == []
    assert used(_claim("c", asked_by="p")) == ["2"]
    assert used(_claim("c", asked_by="p", made="2025-12-31T00:00:00Z")) == []
    pods["p"] = msgspec.structs.replace(pods["p"], metadata=ObjectMeta(name="p", uid="later"))
    assert used(_claim("a", asked_by="p")) == ["2"]


def _volume(storage: str = "1Gi", *, wanted: str = "", **status: Any) -> Tree:
    spec = {"resources": {"requests": {"storage": storage}}, "volumeAttributesClassName": wanted or None}
    return {"metadata": {"name": "v"}, "spec": spec, "status": status}


def test_volume_claim_status_is_charged_and_never_refused() -> None:
    quota = _quota({"requests.storage": "1Gi"}, {"requests.storage": "1Gi"})
    growing = _volume("1Gi", allocatedResources={"storage": "3Gi"})
    (after,) = _charge(quota, growing, _volume(), "persistentvolumeclaims", subresource="status").quotas
    assert after["status"]["used"] == {"requests.storage": "3Gi"}
    assert "exceeded" in _charge(quota, _volume("2Gi"), _volume(), "persistentvolumeclaims").refusal
    assert _charge(quota, growing, growing, "persistentvolumeclaims") == QuotaCharge()


def test_a_volume_claim_changing_its_class_counts_in_both() -> None:
    def counts(value: str, volume: Tree) -> bool:
        requirement = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": [value]}
        quota = _quota({"persistentvolumeclaims": "5"}, scopeSelector={"matchExpressions": [requirement]})
        return bool(_charge(quota, volume, resource="persistentvolumeclaims").quotas)

    target = {"targetVolumeAttributesClassName": "third", "status": "Pending"}
    volume = _volume(wanted="new", currentVolumeAttributesClassName="old", modifyVolumeStatus=target)
    assert all(counts(name, volume) for name in ("new", "old", "third"))
    assert not counts("fourth", volume)


def test_all_quotas_are_checked_before_any_is_charged() -> None:
    full, strict = _quota({"pods": "0"}), _quota({"requests.cpu": "1"})
    charged = charge_quotas([full, strict], "pods", _pod(), None, QuotaContext(NOW))
    assert charged.refusal == "failed quota: q: must specify requests.cpu for: a"


def test_other_objects() -> None:
    quota = _quota({"configmaps": "1", "count/configmaps": "1"}, {"configmaps": "1"})
    assert "configmaps=1" in _charge(quota, {"metadata": {}}, resource="configmaps").refusal
    quota = _quota({"count/deployments.apps": "1"})
    assert len(_charge(quota, {}, resource="deployments.apps").quotas) == 1
    assert _charge(quota, {}, {}, resource="deployments.apps") == QuotaCharge()
    assert _charge(_quota({"count/events": "0"}), {}, resource="events") == QuotaCharge()
    volume: Tree = {"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}
    name = "gold.storageclass.storage.k8s.io/requests.storage"
    (after,) = _charge(_quota({name: "5Gi"}), volume, resource="persistentvolumeclaims").quotas
    assert after["status"]["used"] == {name: "1Gi"}
    service: Tree = {"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2, "nodePort": 3}]}}
    quota = _quota({"services.nodeports": "5", "services.loadbalancers": "1"})
    (after,) = _charge(quota, service, resource="services").quotas
    assert after["status"]["used"] == {"services.nodeports": "2", "services.loadbalancers": "1"}
    service["spec"]["allocateLoadBalancerNodePorts"] = False
    (after,) = _charge(quota, service, resource="services").quotas
    assert after["status"]["used"]["services.nodeports"] == "1"
