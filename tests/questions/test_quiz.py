"""Quiz: questions about two recorded clusters, answered by the query commands and by plain arithmetic.

Every question compares what a command says (its JSON output) with the answer of `NaiveCluster`, which shares
no code with the product: sums over the objects of the dump, or a search over all combinations.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.questions.asking import ask
from tests.questions.naive_cluster import (
    DeviceKey,
    NaiveCluster,
    NaiveDevice,
    Selector,
    Tree,
    amount,
    tolerates,
)

DUMPS = Path(__file__).resolve().parents[3] / "shared" / "cases" / "real"
GPU, MESSY = "gpu-cluster", "messy-cluster"
BOTH = (GPU, MESSY)


def of(driver: str, **attributes: Any) -> Selector:
    """Return a selector of devices by driver and attributes."""

    def selects(device: NaiveDevice) -> bool:
        values = device.attributes
        return device.key[0] == driver and all(
            values.get(name, values.get(f"{driver}/{name}")) == value for name, value in attributes.items()
        )

    return selects


#: Selectors of the device classes, translated from CEL by hand.
CLASSES: dict[str, dict[str, Selector]] = {
    MESSY: {
        "h100": of("gpu.acme.com", model="H100", profile="full"),
        "h100-3g": of("gpu.acme.com", model="H100", profile="3g.40gb"),
        "h100-1g": of("gpu.acme.com", model="H100", profile="1g.10gb"),
        "a100": of("gpu.acme.com", model="A100", profile="full"),
        "a100-half": of("gpu.acme.com", model="A100", profile="half"),
        "l4": of("gpu.acme.com", model="L4"),
        "gpu-any": of("gpu.acme.com"),
        "nic": of("nic.acme.com"),
        "cpu-exclusive": of("cpu.acme.com"),
        "cpu-numa": of("dra.cpu"),
    },
    GPU: {
        "compute-domain-daemon.nvidia.com": of("compute-domain.nvidia.com", type="daemon"),
        "compute-domain-default-channel.nvidia.com": of("compute-domain.nvidia.com", type="channel", id=0),
        "cpu.example.com": of("cpu.example.com"),
        "dra.cpu": of("dra.cpu"),
        "dra.net": of("dra.net"),
        "dranet-rdma-for-mpi": of("dra.net", rdma=True),
        "gaudi.intel.com": of("gaudi.intel.com"),
        "gpu.example.com": of("gpu.example.com"),
        "gpu.intel.com": of("gpu.intel.com"),
        "gpu.nvidia.com": of("gpu.nvidia.com", type="gpu"),
        "imex.nvidia.com": of("imex.nvidia.com"),
        "mig.nvidia.com": of("gpu.nvidia.com", type="mig"),
        "net.example.com": of("net.example.com"),
        "vfio.gpu.nvidia.com": of("gpu.nvidia.com", type="vfio"),
    },
}
#: Classes of exclusive devices of single nodes: what is free follows from counters, holders and taints alone.
EXCLUSIVE = {
    MESSY: ("h100", "h100-3g", "h100-1g", "a100", "a100-half", "l4", "gpu-any"),
    GPU: ("gaudi.intel.com", "gpu.example.com", "gpu.intel.com", "gpu.nvidia.com", "mig.nvidia.com"),
}
PROFILES = ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


class Answer(NamedTuple):
    """Answer of a command and the true one."""

    said: object
    true: object


Solution = Callable[[str, NaiveCluster], Answer]
QUESTIONS: list[tuple[str, str, Solution]] = []


def question(text: str, clusters: Iterable[str] = BOTH) -> Callable[[Solution], Solution]:
    """Add a question about each of the clusters."""

    def add(solution: Solution) -> Solution:
        QUESTIONS.extend((name, text, solution) for name in clusters)
        return solution

    return add


@cache
def naive(name: str) -> NaiveCluster:
    path = DUMPS / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("recorded clusters not found in ../shared/cases/real")
    return NaiveCluster(path)


@cache
def said(name: str, *words: str) -> Any:
    """Return what a command says about a cluster."""
    result = ask(*words, "-f", DUMPS / f"{name}.json.gz", "-o", "json").check()
    return json.loads(result.out)


# -- nodes and their ledgers


def resources_of(name: str) -> dict[tuple[str, str], Tree]:
    """Return the amounts of all nodes by node and resource."""
    return {
        (node["name"], each["resource"]): each
        for node in said(name, "top", "nodes")["nodes"]
        for each in node["resources"]
    }


def compare_amounts(name: str, column: str, resource: str, true: Callable[[str], Fraction]) -> Answer:
    said_amounts = {
        node: signed(each[column]) for (node, kind), each in resources_of(name).items() if kind == resource
    }
    return Answer(said_amounts, {node: true(node) for node in naive(name).nodes})


def signed(text: object) -> Fraction:
    found = str(text)
    return -amount(found[1:]) if found.startswith("-") else amount(found)


@question("Which nodes are there?")
def nodes(name: str, cluster: NaiveCluster) -> Answer:
    return Answer({each["name"] for each in said(name, "top", "nodes")["nodes"]}, set(cluster.nodes))


@question("Which nodes are not ready?")
def unready_nodes(name: str, cluster: NaiveCluster) -> Answer:
    unready = {each["name"] for each in said(name, "top", "nodes")["nodes"] if not each["ready"]}
    return Answer(unready, {node for node in cluster.nodes if not cluster.is_ready(node)})


@question("Which nodes are cordoned?")
def cordoned_nodes(name: str, cluster: NaiveCluster) -> Answer:
    cordoned = {each["name"] for each in said(name, "top", "nodes")["nodes"] if each["unschedulable"]}
    return Answer(
        cordoned, {node for node, each in cluster.nodes.items() if each["spec"].get("unschedulable")}
    )


@question("How many CPUs can pods and claims of each node use?")
def allocatable_cpu(name: str, cluster: NaiveCluster) -> Answer:
    return compare_amounts(name, "allocatable", "cpu", lambda node: cluster.allocatable(node, "cpu"))


@question("How many CPUs do the pods of each node request?")
def requested_cpu(name: str, cluster: NaiveCluster) -> Answer:
    return compare_amounts(name, "requests", "cpu", lambda node: cluster.requested(node, "cpu"))


@question("How many CPUs do claims take from each node?")
def claimed_cpu(name: str, cluster: NaiveCluster) -> Answer:
    return compare_amounts(name, "claims", "cpu", lambda node: cluster.charged(node, "cpu"))


@question("How many CPUs are free on each node?")
def free_cpu(name: str, cluster: NaiveCluster) -> Answer:
    return compare_amounts(name, "free", "cpu", lambda node: cluster.free(node, "cpu"))


@question("How much memory is free on each node?")
def free_memory(name: str, cluster: NaiveCluster) -> Answer:
    free = {
        node: signed(each["free"]) for (node, kind), each in resources_of(name).items() if kind == "memory"
    }
    return Answer(free, {node: cluster.free(node, "memory") for node in cluster.nodes})


@question("How many pods are on each node?")
def pods_of_nodes(name: str, cluster: NaiveCluster) -> Answer:
    counts = {each["name"]: int(each["pods"]) for each in said(name, "top", "nodes")["nodes"]}
    return Answer(counts, {node: len(cluster.pods_on(node)) for node in cluster.nodes})


@question("Which nodes have promised more than they have?")
def overcommitted_nodes(name: str, cluster: NaiveCluster) -> Answer:
    over = {
        node
        for node in cluster.nodes
        if any(cluster.free(node, resource) < 0 for resource in ("cpu", "memory"))
    }
    return Answer(set(said(name, "top", "nodes")["pastLine"]), over)


@question("How many CPUs does the cluster have, and how many are requested, claimed and left?")
def totals(name: str, cluster: NaiveCluster) -> Answer:
    (cpu,) = (each for each in said(name, "top", "nodes")["totals"] if each["resource"] == "cpu")
    sums = {
        "allocatable": sum(cluster.allocatable(node, "cpu") for node in cluster.nodes),
        "requests": sum(cluster.requested(node, "cpu") for node in cluster.nodes),
        "claims": sum(cluster.charged(node, "cpu") for node in cluster.nodes),
    }
    return Answer({part: signed(cpu[part]) for part in sums}, sums)


# -- pods, claims and namespaces


@question("How many CPUs does each pod request?")
def pod_requests(name: str, cluster: NaiveCluster) -> Answer:
    requests = {
        (each["namespace"], each["pod"]): signed(resource["requests"])
        for each in said(name, "top", "pods")["pods"]
        for resource in each["resources"]
        if resource["resource"] == "cpu" and signed(resource["requests"])
    }
    true = {key_of(pod): cluster.requests(pod, "cpu") for pod in cluster.by_kind["Pod"]}
    return Answer(requests, {key: value for key, value in true.items() if value})


@question("Which pods are pending?")
def pending_pods(name: str, cluster: NaiveCluster) -> Answer:
    listed = {pod for group in said(name, "explain")["groups"] for pod in group["pods"]}
    return Answer(listed, {"/".join(key_of(pod)) for pod in cluster.pending})


def key_of(thing: Tree) -> tuple[str, str]:
    return thing["metadata"]["namespace"], thing["metadata"]["name"]


@question("How many pods of each namespace are there, and how many are pending?")
def namespace_pods(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "namespaces")["namespaces"]
    counts = {each["namespace"]: (each["pods"], each["pending"]) for each in rows if each["pods"]}
    total = Counter(pod["metadata"]["namespace"] for pod in cluster.bound)
    pending = Counter(pod["metadata"]["namespace"] for pod in cluster.pending)
    return Answer(
        {namespace: sum(each) for namespace, each in counts.items()}
        | {f"{namespace} pending": each[1] for namespace, each in counts.items()},
        {namespace: total[namespace] + pending[namespace] for namespace in counts}
        | {f"{namespace} pending": pending[namespace] for namespace in counts},
    )


@question("How many claims does each namespace have, and how many are allocated?")
def namespace_claims(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "namespaces")["namespaces"]
    every = Counter(each["metadata"]["namespace"] for each in cluster.by_kind["ResourceClaim"])
    allocated = Counter(each["metadata"]["namespace"] for each in cluster.allocated)
    return Answer(
        {each["namespace"]: (each["claims"], each["allocatedClaims"]) for each in rows if each["claims"]},
        {namespace: (count, allocated[namespace]) for namespace, count in every.items()},
    )


@question("How many CPUs does each namespace request on nodes?")
def namespace_cpu(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "namespaces")["namespaces"]
    amounts = {
        each["namespace"]: signed(resource["requests"])
        for each in rows
        for resource in each["resources"]
        if resource["resource"] == "cpu" and signed(resource["requests"])
    }
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for pod in cluster.bound:
        sums[pod["metadata"]["namespace"]] += cluster.requests(pod, "cpu")
    return Answer(amounts, {namespace: value for namespace, value in sums.items() if value})


@question("Which claims are allocated?")
def allocated_claims(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "claims")["claims"]
    allocated = {(each["namespace"], each["name"]) for each in rows if each["state"] != "pending"}
    return Answer(allocated, set(map(key_of, cluster.allocated)))


@question("Which devices does each claim hold?")
def devices_of_claims(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "claims")["claims"]
    held = {
        (each["namespace"], each["name"]): sorted(device["device"] for device in each["devices"])
        for each in rows
        if each["devices"]
    }
    true: dict[tuple[str, str], list[str]] = defaultdict(list)
    for claim, result in cluster.results():
        true[key_of(claim)].append(f"{result['driver']}/{result['pool']}/{result['device']}")
    return Answer(held, {key: sorted(devices) for key, devices in true.items()})


@question("For which pods is each claim reserved?")
def consumers(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "claims")["claims"]
    reserved = {(each["namespace"], each["name"]): set(each["reservedFor"]) for each in rows}
    true = {
        key_of(claim): {user["name"] for user in claim.get("status", {}).get("reservedFor", ())}
        for claim in cluster.by_kind["ResourceClaim"]
    }
    return Answer(reserved, true)


@question("How many CPUs does each claim charge?")
def claim_charges(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "claims")["claims"]
    charges = {
        (each["namespace"], each["name"]): signed(charge["amount"])
        for each in rows
        for charge in each["charges"]
        if charge["resource"] == "cpu" and each["state"] != "pending"
    }
    inside = {
        key_of(claim)
        for pod in cluster.bound
        if "cpu" in pod["spec"].get("resources", {}).get("requests", {})
        for claim in cluster.claims_of(pod)
    }
    true = {key_of(claim): cluster.claim_charge(claim, "cpu") for claim in cluster.allocated}
    return Answer(charges, {key: value for key, value in true.items() if value and key not in inside})


# -- devices, pools and classes


def device_rows(name: str) -> dict[DeviceKey, Tree]:
    rows = said(name, "top", "devices")["devices"]
    return {(each["driver"], each["pool"], each["device"]): each for each in rows}


def published(cluster: NaiveCluster) -> dict[DeviceKey, NaiveDevice]:
    """Return the devices of complete pools."""
    return {key: device for key, device in cluster.devices.items() if cluster.is_complete(key[:2])}


@question("Which claims hold each device?")
def device_holders(name: str, cluster: NaiveCluster) -> Answer:
    rows = device_rows(name)
    held = {
        key: {(each["namespace"], each["claim"]) for each in row["holders"] if not each["adminAccess"]}
        for key, row in rows.items()
    }
    true = {key: device.holders for key, device in published(cluster).items()}
    return Answer({key: held[key] for key in true if key in held}, true)


@question("How much of the capacity of shared devices is used?")
def used_capacity(name: str, cluster: NaiveCluster) -> Answer:
    used = {
        (key, capacity): signed(each["used"])
        for key, row in device_rows(name).items()
        if row["shareable"]
        for capacity, each in row["capacity"].items()
        if signed(each["used"])
    }
    true = {
        (key, capacity): value
        for key, device in published(cluster).items()
        if device.shareable
        for capacity, value in device.consumed.items()
    }
    return Answer(used, true)


@question("How many devices does each pool have?")
def pool_sizes(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "pools")["pools"]
    sizes = {(each["driver"], each["pool"]): each["published"] for each in rows if each["slices"]}
    true = Counter(key[:2] for key in cluster.devices)
    complete = {pool: true[pool] for pool in cluster.pools if cluster.is_complete(pool)}
    return Answer({pool: sizes.get(pool) for pool in complete}, complete)


@question("Which pools are incomplete?")
def incomplete_pools(name: str, cluster: NaiveCluster) -> Answer:
    rows = said(name, "top", "pools")["pools"]
    incomplete = {(each["driver"], each["pool"]) for each in rows if each["standing"] == "incomplete"}
    return Answer(incomplete, {pool for pool in cluster.pools if not cluster.is_complete(pool)})


@question("What is left of the counters of each pool?")
def counters_left(name: str, cluster: NaiveCluster) -> Answer:
    left = {
        (row["driver"], row["pool"], *counter.partition("/")[::2]): signed(each["left"])
        for row in said(name, "top", "pools")["pools"]
        for counter, each in counters_of(row)
    }
    true = {
        (*pool, group, counter): value
        for pool in cluster.pools
        if cluster.is_complete(pool)
        for (group, counter), value in cluster.counters_left(pool).items()
    }
    return Answer(left, true)


def counters_of(row: Tree) -> list[tuple[str, Tree]]:
    return [(f"{each['set']}/{each['counter']}", each) for each in row["counters"]]


def class_rows(name: str) -> dict[str, Tree]:
    return {each["name"]: each for each in said(name, "top", "classes")["classes"]}


@question("How many devices does each class select?")
def class_sizes(name: str, cluster: NaiveCluster) -> Answer:
    rows = class_rows(name)
    devices = published(cluster).values()
    true = {each: sum(map(selects, devices)) for each, selects in CLASSES[name].items()}
    return Answer({each: rows[each]["devices"] for each in true}, true)


@question("How many devices of each class are held?")
def held_devices(name: str, cluster: NaiveCluster) -> Answer:
    rows = class_rows(name)
    held = [device for device in published(cluster).values() if device.holders]
    true = {each: sum(map(selects, held)) for each, selects in CLASSES[name].items()}
    return Answer({each: rows[each]["held"] for each in true}, true)


@cache
def most_by_node(name: str, device_class: str, profile: str = "") -> dict[str, int]:
    """Return the most devices of a class that can be allocated on each node that takes pods."""
    cluster, selects = naive(name), CLASSES[name][device_class]

    def of_profile(device: NaiveDevice) -> bool:
        return selects(device) and (not profile or device.attributes.get("profile") == profile)

    found = {
        node: cluster.most_devices(node, of_profile) for node in cluster.nodes if cluster.is_usable(node)
    }
    return {node: count for node, count in found.items() if count}


def ask_about_class(name: str, device_class: str) -> None:
    @question(f"How many {device_class} can still be allocated?", (name,))
    def free(name: str, cluster: NaiveCluster) -> Answer:
        row, true = class_rows(name)[device_class], most_by_node(name, device_class)
        return Answer((row["free"], row["mostOnOneNode"]), (sum(true.values()), max(true.values())))

    @question(f"On which nodes can {device_class} still be allocated, and how many?", (name,))
    def free_by_node(name: str, cluster: NaiveCluster) -> Answer:
        row = class_rows(name)[device_class]
        return Answer({each["node"]: each["free"] for each in row["nodes"]}, most_by_node(name, device_class))


for cluster_name, classes in EXCLUSIVE.items():
    for class_name in classes:
        ask_about_class(cluster_name, class_name)


@question("How many MIG devices of each profile can still be created?", (GPU,))
def profiles(name: str, cluster: NaiveCluster) -> Answer:
    rows = {each["type"]: each["free"] for each in class_rows(name)["mig.nvidia.com"]["partitions"]}
    true = {each: sum(most_by_node(name, "mig.nvidia.com", each).values()) for each in PROFILES}
    return Answer({each: rows[each] for each in PROFILES}, true)


@question("How many channels of the shared IMEX pool are free?", (GPU,))
def channels(name: str, cluster: NaiveCluster) -> Answer:
    free = sum(
        not device.holders for device in cluster.devices.values() if device.key[0] == "imex.nvidia.com"
    )
    return Answer(class_rows(name)["imex.nvidia.com"]["free"], free)


@question("How many Gbit/s of the NICs are left?", (MESSY,))
def bandwidth(name: str, cluster: NaiveCluster) -> Answer:
    left = [
        device.capacity["bandwidth"] - device.consumed["bandwidth"]
        for device in published(cluster).values()
        if device.key[0] == "nic.acme.com"
    ]
    (row,) = class_rows(name)["nic"]["capacity"]
    return Answer((signed(row["left"]), signed(row["mostOnOneDevice"])), (sum(left), max(left)))


@question("How many CPUs can claims still take?", (MESSY,))
def cpus_left(name: str, cluster: NaiveCluster) -> Answer:
    left: dict[str, Fraction] = defaultdict(Fraction)
    for device in published(cluster).values():
        if device.key[0] == "cpu.acme.com" and cluster.is_usable(device.node):
            left[device.node] += device.capacity["cpu"] - device.consumed["cpu"]
    true = sum(min(amount, max(cluster.free(node, "cpu"), Fraction())) for node, amount in left.items())
    (row,) = class_rows(name)["cpu-exclusive"]["capacity"]
    pools = (each for each in said(name, "top", "pools")["pools"] if each["driver"] == "cpu.acme.com")
    return Answer(
        (signed(row["left"]), sum(signed(each["shares"]["cpu"]["left"]) for each in pools)), (true, true)
    )


# -- pending pods

#: Pods for which something is missing that no node provides, with what it is.
MISSING = {
    "ml/p05-class": "h200",
    "ml/p06-claim": "does-not-exist",
    "ml/p07-cel": "vram",
    "ml/p09-pvc": "nope",
    "ml/p08-gated": "acme.com/budget",
}


def feasible_nodes(cluster: NaiveCluster, pod: Tree) -> set[str]:
    """Return the nodes on which a pod fits, without regard to other pending pods."""
    found = set()
    spec = pod["spec"]
    tolerations = spec.get("tolerations", ())
    for node, each in cluster.nodes.items():
        if not cluster.is_usable(node):
            continue
        taints = [taint for taint in each["spec"].get("taints", ()) if taint["effect"] != "PreferNoSchedule"]
        labels = each["metadata"].get("labels", {})
        if not all(tolerates(tolerations, taint) for taint in taints):
            continue
        if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
            continue
        if any(cluster.free(node, kind) < cluster.requests(pod, kind) for kind in ("cpu", "memory")):
            continue
        if not apart(cluster, pod, labels.get("topology.kubernetes.io/zone")):
            continue
        if all(can_allocate(cluster, pod, claim, node) for claim in cluster.claims_of(pod)):
            found.add(node)
    return found


def apart(cluster: NaiveCluster, pod: Tree, zone: object) -> bool:
    """Return whether no pod of a zone has labels that the pod must not be near."""
    terms = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        assert term["topologyKey"] == "topology.kubernetes.io/zone"
        for other in cluster.bound:
            labels = other["metadata"].get("labels", {})
            same = (
                cluster.nodes[other["spec"]["nodeName"]]["metadata"]["labels"].get(term["topologyKey"])
                == zone
            )
            wanted = term["labelSelector"]["matchLabels"].items()
            if same and all(labels.get(key) == value for key, value in wanted):
                return False
    return True


def can_allocate(cluster: NaiveCluster, pod: Tree, claim: Tree, node: str) -> bool:
    """Return whether a claim of one request can be allocated on a node."""
    ((exactly,),) = ([each["exactly"]] for each in claim["spec"]["devices"]["requests"])
    selects = CLASSES[MESSY].get(exactly["deviceClassName"])
    if selects is None or exactly.get("selectors"):
        return False  # no such class; the only selector reads an attribute that no device has
    cpu = cluster.free(node, "cpu") - cluster.requests(pod, "cpu")
    wanted = {name: amount(value) for name, value in exactly.get("capacity", {}).get("requests", {}).items()}
    if wanted:
        ((capacity, least),) = wanted.items()
        return any(
            device.capacity[capacity] - device.consumed[capacity] >= least
            and device.charges(wanted).get("cpu", Fraction()) <= cpu
            for device in cluster.free_devices(node, selects)
        )
    count = int(exactly["count"])
    constraints = claim["spec"]["devices"].get("constraints", ())
    if not constraints:
        return cluster.most_devices(node, selects, cpu) >= count
    ((attribute,),) = ([each["matchAttribute"].rpartition("/")[2]] for each in constraints)
    values = {device.attributes.get(attribute) for device in cluster.free_devices(node, selects)} - {None}

    def with_value(value: object) -> Selector:
        return lambda device: selects(device) and device.attributes.get(attribute) == value

    return any(cluster.most_devices(node, with_value(value), cpu) >= count for value in values)


def ask_about_pod(full_name: str) -> None:
    @question(f"Does {full_name} fit now, and where?", (MESSY,))
    def fits(name: str, cluster: NaiveCluster) -> Answer:
        (pod,) = (each for each in cluster.pending if "/".join(key_of(each)) == full_name)
        answer = said(name, "explain", full_name)
        if full_name in MISSING:
            return Answer((answer["node"], MISSING[full_name] in answer["summary"]), (None, True))
        feasible = feasible_nodes(cluster, pod)
        assert answer["node"] is None or answer["node"] in feasible
        return Answer(answer["verdict"] == "fits now", bool(feasible))


for pod_name in (
    *MISSING,
    *("ml/p03-taint", "ml/p04-frag", "ml/p11-numa", "ml/p12-a100x8", "ml/p13-a100x8-prod", "ml/p14-other"),
    *("ml/p17-a100x8-nt", "ml/p18-h100x4-c", "shop/p01-cpu", "shop/p02-selector", "shop/p10-nic"),
    *("infra/p15-cpuclaim", "infra/p16-spread"),
):
    ask_about_pod(pod_name)


# -- pods that could be added


def fitting_pods(name: str, devices: Tree, requests: Tree | None = None) -> int:
    """Return how many pods with such a claim, or such requests, whatif can schedule."""
    template = {"name": "t", "namespace": "quiz"}
    container: Tree = {"name": "c", "image": "i", "resources": {"limits": requests or {}}}
    tolerations = [{"key": key, "operator": "Exists"} for key in ("acme.com/gpu", "nvidia.com/gpu")]
    spec: Tree = {"containers": [container], "tolerations": tolerations}
    added: list[Tree] = []
    if devices:
        container["resources"]["claims"] = [{"name": "d"}]
        spec["resourceClaims"] = [{"name": "d", "resourceClaimTemplateName": "t"}]
        added.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": template,
                "spec": {"spec": {"devices": devices}},
            }
        )
    added.append(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "quiz"}, "spec": spec}
    )
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": added}).encode()
    words = ("whatif", "--no-preemption", "-f", DUMPS / f"{name}.json.gz", "--add", "-", "-o", "json")
    answer = json.loads(ask(*words, stdin=text).check().out)
    if "quiz/p" not in answer["verdict"]["scheduled"]:
        return 0
    return 1 + sum(int(each["fit"]) for each in answer["more"])


def exactly(name: str, device_class: str, count: int = 1, **fields: Any) -> Tree:
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count, **fields}}


def selectable(cluster: NaiveCluster) -> list[str]:
    """Return the nodes that take pods which tolerate the taints of GPU nodes."""
    return [node for node in cluster.nodes if cluster.is_usable(node)]


def by_root(cluster: NaiveCluster, node: str, selects: Selector) -> Counter[str]:
    roots = (
        each.attributes.get("resource.kubernetes.io/pcieRoot") for each in cluster.free_devices(node, selects)
    )
    return Counter(filter(None, roots))


def ask_about_alignment(count: int) -> None:
    @question(f"How many pods with {count} GPUs and {count} RDMA NICs of one PCIe root fit?", (GPU,))
    def aligned(name: str, cluster: NaiveCluster) -> Answer:
        gpus, nics = CLASSES[GPU]["gpu.nvidia.com"], CLASSES[GPU]["dranet-rdma-for-mpi"]
        true = 0
        for node in selectable(cluster):
            some, others = by_root(cluster, node, gpus), by_root(cluster, node, nics)
            true += sum(min(some[root], others[root]) // count for root in some)
        requests = [exactly("gpu", "gpu.nvidia.com", count), exactly("nic", "dranet-rdma-for-mpi", count)]
        constraints = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
        return Answer(fitting_pods(name, {"requests": requests, "constraints": constraints}), true)


for number in (1, 2):
    ask_about_alignment(number)


@question("How many pods with nvidia.com/gpu: 6 fit?", (GPU,))
def extended_resource(name: str, cluster: NaiveCluster) -> Answer:
    true = sum(count // 6 for count in most_by_node(name, "gpu.nvidia.com").values())
    return Answer(fitting_pods(name, {}, {"nvidia.com/gpu": "6"}), true)


@question("How many pods that take all RDMA NICs of their node fit?", (GPU,))
def all_nics(name: str, cluster: NaiveCluster) -> Answer:
    selects = CLASSES[GPU]["dranet-rdma-for-mpi"]
    true = 0
    for node in selectable(cluster):
        every = [each for each in cluster.devices.values() if each.node == node and selects(each)]
        true += bool(every) and len(cluster.free_devices(node, selects)) == len(every)
    requests = [{"name": "n", "exactly": {"deviceClassName": "rdma", "allocationMode": "All"}}]
    return Answer(fitting_pods(name, {"requests": requests}), true)


def ask_about_devices(name: str, device_class: str, count: int) -> None:
    @question(f"How many pods with {count} {device_class} fit?", (name,))
    def devices(name: str, cluster: NaiveCluster) -> Answer:
        true = sum(each // count for each in most_by_node(name, device_class).values())
        return Answer(fitting_pods(name, {"requests": [exactly("d", device_class, count)]}), true)


for cluster_name, class_name, number in (
    (GPU, "gpu.nvidia.com", 4),
    (GPU, "gaudi.intel.com", 3),
    (MESSY, "a100", 2),
    (MESSY, "a100-half", 5),
    (MESSY, "a100", 8),
    (MESSY, "l4", 2),
):
    ask_about_devices(cluster_name, class_name, number)


@question("How many claims of one CPU fit?", (MESSY,))
def cpu_claims(name: str, cluster: NaiveCluster) -> Answer:
    left: dict[str, list[Fraction]] = defaultdict(list)
    for device in published(cluster).values():
        if device.key[0] == "cpu.acme.com" and cluster.is_usable(device.node):
            left[device.node].append(device.capacity["cpu"] - device.consumed["cpu"])
    true = sum(
        min(sum(int(each) for each in free), int(cluster.free(node, "cpu"))) for node, free in left.items()
    )
    request = exactly("c", "cpu-exclusive", capacity={"requests": {"cpu": "1"}})
    return Answer(fitting_pods(name, {"requests": [request]}), true)


@question("How many pods that take 20 Gbit/s of a NIC fit?", (MESSY,))
def nic_shares(name: str, cluster: NaiveCluster) -> Answer:
    true = sum(
        int((device.capacity["bandwidth"] - device.consumed["bandwidth"]) // (20 * 10**9))
        for device in published(cluster).values()
        if device.key[0] == "nic.acme.com" and cluster.is_usable(device.node)
    )
    request = exactly("n", "nic", capacity={"requests": {"bandwidth": "20G"}})
    return Answer(fitting_pods(name, {"requests": [request]}), true)


@pytest.mark.parametrize(
    ("name", "text", "solution"), QUESTIONS, ids=[f"{name}: {text}" for name, text, _ in QUESTIONS]
)
def test_answer(name: str, text: str, solution: Solution) -> None:
    answer = solution(name, naive(name))
    assert answer.said == answer.true, text


def test_quiz_is_long_enough() -> None:
    assert len(QUESTIONS) >= 60
