"""Admission and the quota controller agree: single charges add up to the measured usage."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.quantity import Quantity
from plimsoll.api.quota import CountedService, CountedVolumeClaim, ResourceQuota
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.apiserver.admission.quota import charge_quotas
from plimsoll.controllers.quota.usage import (
    CLAIMS,
    PODS,
    SERVICES,
    VOLUME_CLAIMS,
    ExtendedResourceNames,
    QuotaContext,
)
from plimsoll.controllers.resource_quota import NamespaceObjects, measure
from tests.unit.controllers.makers import Tree, claim_tree, metadata, owner, pod_tree

AT = 1735689600.0  # 2025-01-01T00:00:00Z
NOW = datetime.fromtimestamp(AT, UTC)
GPU, NIC = "example.com/gpu", "deviceclass.resource.kubernetes.io/nic"
CLASSES = {"gpu": GPU, "old": GPU, "nic": ""}
NAMES = (
    *("pods", "count/pods", "cpu", "requests.cpu", "limits.cpu", "requests.memory", "hugepages-2Mi"),
    *(f"requests.{GPU}", f"requests.{NIC}", f"count/{CLAIMS}", "gpu.deviceclass.resource.k8s.io/devices"),
    *("requests.deviceclass.resource.kubernetes.io/gone", "gone.deviceclass.resource.k8s.io/devices"),
    *("persistentvolumeclaims", "requests.storage", "fast.storageclass.storage.k8s.io/requests.storage"),
    *("services", "services.nodeports", "services.loadbalancers", "count/services"),
    *("configmaps", "count/configmaps", "count/deployments.apps", "count/events", "odd"),
)
SCOPES = (
    *("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"),
    *("PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass"),
)
_names = st.sampled_from(["", "a", "b"])


@st.composite
def quotas(draw: st.DrawFn) -> Tree:
    hard = dict.fromkeys(draw(st.sets(st.sampled_from(NAMES), min_size=1)), "1000000Gi")
    spec: Tree = {"hard": hard, "scopes": draw(st.lists(st.sampled_from(SCOPES), max_size=1))}
    if draw(st.booleans()):
        operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))
        requirement: Tree = {
            "scopeName": draw(st.sampled_from(["PriorityClass", "VolumeAttributesClass"])),
            "operator": operator,
            "values": draw(st.lists(st.sampled_from("abc"), min_size=1)) if "In" in operator else [],
        }
        spec["scopeSelector"] = {"matchExpressions": [requirement]}
    used = dict.fromkeys(hard, "0")
    return {"metadata": metadata("q"), "spec": spec, "status": {"hard": hard, "used": used}}


@st.composite
def pods(draw: st.DrawFn, name: str) -> Tree:
    amounts = {
        "cpu": f"{draw(st.integers(0, 3000))}m",
        "memory": f"{draw(st.integers(0, 9))}Mi",
        **({"hugepages-2Mi": "4Mi"} if draw(st.booleans()) else {}),
        **({GPU: str(draw(st.integers(0, 3)))} if draw(st.booleans()) else {}),
        **({NIC: "1"} if draw(st.booleans()) else {}),
    }
    resources = {"requests": amounts, "limits": amounts}
    spec: Tree = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    spec["priorityClassName"] = draw(_names)
    spec["activeDeadlineSeconds"] = draw(st.sampled_from([None, -1, 0, 5]))
    if draw(st.booleans()):
        term: Tree = {"topologyKey": "zone", "namespaceSelector": draw(st.sampled_from([None, {}]))}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    status: Tree = {}
    if draw(st.booleans()):
        chosen = draw(st.sampled_from(["c0", "c1"]))
        status["extendedResourceClaimStatus"] = {"resourceClaimName": chosen, "requestMappings": []}
    fields: Tree = {}
    if draw(st.booleans()):
        deleted = draw(st.sampled_from(["2024-12-31T23:59:29Z", "2024-12-31T23:59:30Z"]))
        fields = {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 30}
    phase = draw(st.sampled_from(["Pending", "Running", "Failed"]))
    return pod_tree(name, spec=spec, status=status, phase=phase, **fields)


@st.composite
def claims(draw: st.DrawFn, number: int) -> Tree:
    """Claims in order of creation."""
    tree = claim_tree(f"c{number}", creationTimestamp=f"2025-01-01T00:00:0{number}Z")
    kinds = draw(st.lists(st.sampled_from([*CLASSES, "gone"]), min_size=1, max_size=3))
    tree["spec"]["devices"]["requests"] = [
        {
            "name": f"r{i}",
            "exactly": {
                "deviceClassName": of,
                "allocationMode": draw(st.sampled_from(["ExactCount", "All"])),
                "count": draw(st.integers(1, 4)),
            },
        }
        for i, of in enumerate(kinds)
    ]
    if draw(st.booleans()):
        tree["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        tree["metadata"]["ownerReferences"] = [owner(draw(st.sampled_from(["p0", "p1"])), controller=True)]
    return tree


@st.composite
def volumes(draw: st.DrawFn, name: str) -> Tree:
    size = draw(st.sampled_from(["1Gi", "500m", "0", "3G"]))
    spec: Tree = {
        "resources": {"requests": {"storage": size}},
        "storageClassName": draw(st.sampled_from([None, "", "fast"])),
        "volumeAttributesClassName": draw(_names),
    }
    status: Tree = {"currentVolumeAttributesClassName": draw(_names)}
    if draw(st.booleans()):
        status["allocatedResources"] = {"storage": draw(st.sampled_from(["2Gi", "1500m"]))}
    if draw(st.booleans()):
        status["modifyVolumeStatus"] = {"targetVolumeAttributesClassName": draw(_names)}
    return {"metadata": metadata(name), "spec": spec, "status": status}


@st.composite
def services(draw: st.DrawFn, name: str) -> Tree:
    ports = [
        {"port": 1, "nodePort": port} for port in draw(st.lists(st.sampled_from([0, 30000]), max_size=3))
    ]
    kind = draw(st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]))
    spec: Tree = {"type": kind, "ports": ports}
    spec["allocateLoadBalancerNodePorts"] = draw(st.sampled_from([None, True, False]))
    return {"metadata": metadata(name), "spec": spec}


@st.composite
def clusters(draw: st.DrawFn) -> list[tuple[str, Tree]]:
    """Objects of a namespace in order of creation; pods before their generated claims."""
    few = st.integers(0, 2)
    made = [(PODS, draw(pods(f"p{i}"))) for i in range(draw(few))]
    made += [(CLAIMS, draw(claims(i))) for i in range(draw(st.integers(0, 3)))]
    made += [(VOLUME_CLAIMS, draw(volumes(f"v{i}"))) for i in range(draw(few))]
    made += [(SERVICES, draw(services(f"s{i}"))) for i in range(draw(few))]
    for kind in ("configmaps", "deployments.apps", "events"):
        made += [(kind, {"metadata": metadata(f"o{i}")}) for i in range(draw(few))]
    return made


def sees(made: list[tuple[str, Tree]], resource: str, view: type[Any]) -> list[Any]:
    return [codec.convert(tree, view) for kind, tree in made if kind == resource]


EXTENDED = ExtendedResourceNames.of(
    codec.convert({"metadata": {"name": name}, "spec": {"extendedResourceName": extended}}, DeviceClass)
    for name, extended in CLASSES.items()
)


def contents(made: list[tuple[str, Tree]]) -> NamespaceObjects:
    kinds = [kind for kind, _ in made]
    return NamespaceObjects(
        pods=sees(made, PODS, Pod),
        claims=sees(made, CLAIMS, ResourceClaim),
        volume_claims=sees(made, VOLUME_CLAIMS, CountedVolumeClaim),
        services=sees(made, SERVICES, CountedService),
        counts={kind: kinds.count(kind) for kind in (*kinds, "configmaps", "deployments.apps", "events")},
        extended=EXTENDED,
    )


def admit(quota: Tree, made: list[tuple[str, Tree]], resource: str, tree: Tree, old: Tree | None) -> Tree:
    """Charge a write as the server does, given the stored object."""

    def find_pod(name: str) -> Pod | None:
        return next((pod for pod in sees(made, PODS, Pod) if pod.metadata.name == name), None)

    def find_claims(uid: str) -> list[ResourceClaim]:
        owned = ((claim, find_requesting_pod(claim)) for claim in sees(made, CLAIMS, ResourceClaim))
        return [claim for claim, by in owned if by is not None and by.uid == uid]

    around = QuotaContext(NOW, extended=EXTENDED, find_pod=find_pod, find_claims=find_claims)
    charged = charge_quotas([quota], resource, tree, old, around)
    assert charged.refusal == ""
    return charged.quotas[0] if charged.quotas else quota


def amounts(quota: Tree) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in quota["status"]["used"].items()}


@given(quotas(), clusters())
def test_charges_add_up_to_the_measured_usage(quota: Tree, made: list[tuple[str, Tree]]) -> None:
    measured = measure(codec.convert(quota, ResourceQuota), contents(made), AT)
    charged = quota
    for number, (resource, tree) in enumerate(made):
        charged = admit(charged, made[:number], resource, tree, None)
    assert amounts(charged) == dict.fromkeys(quota["spec"]["hard"], Quantity.of(0)) | measured


@given(quotas(), volumes("v"), volumes("v"), services("s"), services("s"))
def test_updates_never_charge_less_than_measured(
    quota: Tree, volume: Tree, new_volume: Tree, service: Tree, new_service: Tree
) -> None:
    charged = quota
    for resource, old, new in ((VOLUME_CLAIMS, volume, new_volume), (SERVICES, service, new_service)):
        charged = admit(charged, [], resource, old, None)
        charged = admit(charged, [], resource, new, old)
    made = [(VOLUME_CLAIMS, new_volume), (SERVICES, new_service)]
    measured = measure(codec.convert(quota, ResourceQuota), contents(made), AT)
    used = amounts(charged)
    assert all(used[name] >= amount for name, amount in measured.items())
