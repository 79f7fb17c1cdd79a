"""Table responses: the cells that `kubectl get` prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.apiserver.registry.schema import SchemaType, schema_for
from plimsoll.apiserver.tables import to_table
from plimsoll.apiserver.tables.row import format_duration, format_selector
from plimsoll.errors import ApiError
from tests.unit.apiserver.registry.resource_keys import RESOURCE_BY_KEY
from tests.unit.apiserver.registry.sample_objects import trees_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD_SCHEMA = cast(SchemaType, schema_for("", "v1", "Pod"))
HOUR_AGO = "2026-01-01T11:00:00Z"
MINUTES_AGO = "2026-01-01T11:55:30Z"
Tree = dict[str, Any]


def the(key: str) -> Resource:
    return RESOURCE_BY_KEY[key]


def cells(key: str, tree: Any) -> dict[str, Any]:
    """Return the cells of one object by column name."""
    tree = {**tree, "metadata": {"name": "x", "creationTimestamp": HOUR_AGO, **tree.get("metadata", {})}}
    table = to_table(the(key), [tree], now=NOW)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


# -- table metadata


def test_a_list_keeps_its_metadata_and_a_single_object_its_version() -> None:
    objects = [{"metadata": {"name": name, "resourceVersion": name}} for name in ("7", "9")]
    table = to_table(the("pods"), objects, now=NOW, list_metadata={"resourceVersion": "12", "continue": "c"})
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "12", "continue": "c"}
    assert [row["cells"][0] for row in table["rows"]] == ["7", "9"]
    assert to_table(the("pods"), objects[1:], now=NOW)["metadata"] == {"resourceVersion": "9"}
    assert to_table(the("pods"), [], now=NOW, list_metadata={"resourceVersion": "1"})["rows"] == []


def test_columns_and_their_priorities() -> None:
    columns = to_table(the("pods"), [], now=NOW)["columnDefinitions"]
    assert [(c["name"], c["priority"]) for c in columns] == [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ]
    assert columns[0]["format"] == "name"
    plain = to_table(the("limitranges"), [], now=NOW)["columnDefinitions"]
    assert [(c["name"], c["type"]) for c in plain] == [("Name", "string"), ("Created At", "date")]


def test_objects_included_in_rows() -> None:
    tree = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {}}
    for include, wanted in (
        ("None", None),
        ("Object", tree),
        ("Metadata", partial := {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}),
        ("", partial),
    ):
        carried = to_table(the("pods"), [tree], now=NOW, include_object=include)["rows"][0]["object"]
        assert carried == (wanted if wanted in (None, tree) else {**partial, "metadata": {"name": "a"}})
    old = to_table(the("pods"), [tree], now=NOW, version="v1beta1")
    assert old["apiVersion"] == old["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"
    with pytest.raises(ApiError, match="includeObject: Invalid value") as refused:
        to_table(the("pods"), [tree], now=NOW, include_object="All")
    assert refused.value.code == 400


# -- pods


def container(name: str, state: Tree, **more: Any) -> Tree:
    return {"name": name, "state": state, "ready": False, "restartCount": 0, **more}


def ended(code: int, reason: str = "", signal: int = 0) -> Tree:
    return {"terminated": {"exitCode": code, "reason": reason, "signal": signal, "finishedAt": MINUTES_AGO}}


RUNS: Tree = {"running": {"startedAt": HOUR_AGO}}
WAITS: Tree = {"waiting": {"reason": "PodInitializing"}}
FIRST = [{"name": "i1"}, {"name": "s1", "restartPolicy": "Always"}, {"name": "i2"}]
LAST = {"lastState": ended(1, "Error")}


@pytest.mark.parametrize(
    ("spec", "status", "ready", "word", "restarts"),
    [
        ({}, {}, "0/1", "", "0"),
        ({}, {"phase": "Pending"}, "0/1", "Pending", "0"),
        (
            {},
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "0/1",
            "SchedulingGated",
            "0",
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "phase": "Running",
                "containerStatuses": [container("a", RUNS, ready=True), container("b", RUNS)],
            },
            "1/2",
            "Running",
            "0",
        ),
        (
            {},
            {
                "phase": "Running",
                "containerStatuses": [
                    container("a", {"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=5, **LAST)
                ],
            },
            "0/1",
            "CrashLoopBackOff",
            "5 (4m30s ago)",
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "phase": "Running",
                "containerStatuses": [
                    container("a", ended(0, "Completed")),
                    container("b", RUNS, ready=True),
                ],
            },
            "1/2",
            "NotReady",
            "0",
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    container("a", ended(0, "Completed")),
                    container("b", RUNS, ready=True),
                ],
            },
            "1/2",
            "Running",
            "0",
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "phase": "Failed",
                "containerStatuses": [container("a", ended(0, "Completed")), container("b", ended(3))],
            },
            "0/2",
            "ExitCode:3",
            "0",
        ),
        (
            {},
            {"phase": "Failed", "containerStatuses": [container("a", ended(137, signal=9))]},
            "0/1",
            "Signal:9",
            "0",
        ),
        ({}, {"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted", "0"),
        (
            {"initContainers": FIRST},
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    container("i1", RUNS, restartCount=2, **LAST),
                    container("s1", WAITS),
                    container("i2", WAITS),
                ],
                "containerStatuses": [container("a", WAITS)],
            },
            "0/2",
            "Init:0/3",
            "2 (4m30s ago)",
        ),
        (
            {"initContainers": FIRST},
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    container("i1", ended(0, "Completed")),
                    container("s1", RUNS, ready=True, started=True, restartCount=1, **LAST),
                    container("i2", {"waiting": {"reason": "ImagePullBackOff"}}),
                ],
            },
            "1/2",
            "Init:ImagePullBackOff",
            "1 (4m30s ago)",
        ),
        (
            {"initContainers": FIRST},
            {"phase": "Pending", "initContainerStatuses": [container("i1", ended(5, "OOMKilled"))]},
            "0/2",
            "Init:OOMKilled",
            "0",
        ),
        (
            {"initContainers": FIRST},
            {"phase": "Pending", "initContainerStatuses": [container("i1", ended(5, signal=11))]},
            "0/2",
            "Init:Signal:11",
            "0",
        ),
        (
            {"initContainers": FIRST},
            {"phase": "Pending", "initContainerStatuses": [container("i1", ended(5))]},
            "0/2",
            "Init:ExitCode:5",
            "0",
        ),
        (
            {"initContainers": FIRST},
            {
                "phase": "Running",
                "conditions": [{"type": "Initialized", "status": "True"}],
                "initContainerStatuses": [
                    container("i1", ended(0)),
                    container("s1", RUNS, ready=True, started=True, restartCount=3, **LAST),
                    container("i2", ended(0), restartCount=1),
                ],
                "containerStatuses": [container("a", RUNS, ready=True, restartCount=1)],
            },
            "2/2",
            "Running",
            "4 (4m30s ago)",
        ),
    ],
)
def test_states_of_pods(spec: Tree, status: Tree, ready: str, word: str, restarts: str) -> None:
    row = cells("pods", {"spec": {"containers": [{"name": "a"}], **spec}, "status": status})
    assert (row["Ready"], row["Status"], row["Restarts"]) == (ready, word, restarts)


def test_terminating_pods_in_tables() -> None:
    going = {"deletionTimestamp": HOUR_AGO}
    assert cells("pods", {"metadata": going, "status": {"phase": "Running"}})["Status"] == "Terminating"
    assert cells("pods", {"metadata": going, "status": {"phase": "Failed"}})["Status"] == "Failed"
    lost = {"phase": "Running", "reason": "NodeLost"}
    assert cells("pods", {"metadata": going, "status": lost})["Status"] == "Unknown"


def test_wide_cells_of_pods() -> None:
    conditions = [{"type": "x/y", "status": "True"}, {"type": "x/z", "status": "False"}]
    row = cells(
        "pods",
        {
            "spec": {
                "nodeName": "n1",
                "readinessGates": [{"conditionType": "x/y"}, {"conditionType": "x/z"}],
            },
            "status": {"podIPs": [{"ip": "10.1.1.1"}], "conditions": conditions, "nominatedNodeName": "n2"},
        },
    )
    assert [row[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")] == [
        "10.1.1.1",
        "n1",
        "n2",
        "1/2",
    ]
    bare = cells("pods", {})
    assert {bare[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")} == {"<none>"}


def test_completed_pods_have_a_row_condition() -> None:
    rows = [
        to_table(the("pods"), [{"status": {"phase": phase}}], now=NOW)["rows"][0]
        for phase in ("Running", "Succeeded", "Failed")
    ]
    assert "conditions" not in rows[0]
    assert [row["conditions"][0]["reason"] for row in rows[1:]] == ["Succeeded", "Failed"]


# -- the kinds around them


def test_nodes() -> None:
    labels = {"node-role.kubernetes.io/master": "", "kubernetes.io/role": "x", "node-role.kubernetes.io/": ""}
    row = cells(
        "nodes",
        {
            "metadata": {"labels": labels},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
                "nodeInfo": {"kernelVersion": "6.1", "architecture": "amd64", "kubeletVersion": "v1.36"},
            },
        },
    )
    assert row == {
        "Name": "x",
        "Status": "Ready,SchedulingDisabled",
        "Roles": "master,x",
        "Age": "60m",
        "Version": "v1.36",
        "Internal-IP": "1.1.1.1",
        "External-IP": "<none>",
        "OS-Image": "<unknown>",
        "Kernel-Version": "6.1 (amd64)",
        "Container-Runtime": "<unknown>",
    }
    assert cells("nodes", {"status": {"conditions": [{"type": "Ready"}]}})["Status"] == "NotReady"
    assert cells("nodes", {})["Status"] == "Unknown"
    assert cells("nodes", {})["Roles"] == "<none>"


ABOUT = {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"}


@pytest.mark.parametrize("group", ["", ".events.k8s.io"])
def test_events_of_both_groups(group: str) -> None:
    old = {
        "involvedObject": ABOUT,
        "firstTimestamp": HOUR_AGO,
        "lastTimestamp": MINUTES_AGO,
        "count": 3,
        "source": {"component": "c", "host": "h"},
        "message": " hi\n",
    }
    new = {
        "regarding": ABOUT,
        "deprecatedFirstTimestamp": HOUR_AGO,
        "deprecatedLastTimestamp": MINUTES_AGO,
        "deprecatedCount": 3,
        "deprecatedSource": {"component": "c", "host": "h"},
        "note": " hi\n",
    }
    row = cells(f"events{group}", {"type": "Normal", "reason": "R", **(new if group else old)})
    assert row == {
        "Last Seen": "4m30s",
        "Type": "Normal",
        "Reason": "R",
        "Object": "pod/p",
        "Subobject": "spec.containers{a}",
        "Source": "c, h",
        "Message": "hi",
        "First Seen": "60m",
        "Count": 3,
        "Name": "x",
    }


def test_events_without_counts_and_with_series() -> None:
    single = {
        "eventTime": "2026-01-01T11:00:00.000000Z",
        "reportingComponent": "rc",
        "reportingInstance": "ri",
    }
    row = cells("events", single)
    assert (row["Last Seen"], row["First Seen"], row["Count"], row["Source"]) == ("60m", "60m", 1, "rc, ri")
    series = {"count": 7, "lastObservedTime": "2026-01-01T11:59:00.000000Z"}
    row = cells("events", {**single, "series": series})
    assert (row["Last Seen"], row["First Seen"], row["Count"]) == ("60s", "60m", 7)
    row = cells("events", {"involvedObject": {"kind": "Node"}})
    assert (row["Last Seen"], row["Object"]) == ("<unknown>", "node")


def test_quotas() -> None:
    hard = {"cpu": "1", "limits.memory": "1024Mi", "pods": "10"}
    row = cells("resourcequotas", {"status": {"hard": hard, "used": {"cpu": "500m", "pods": 3}}})
    assert row["Request"] == "cpu: 500m/1, pods: 3/10"
    assert row["Limit"] == "limits.memory: 0/1Gi"


@pytest.mark.parametrize(
    ("metadata", "status", "state"),
    [
        ({}, {}, "pending"),
        ({}, {"allocation": {}}, "allocated"),
        ({}, {"allocation": {}, "reservedFor": [{}]}, "allocated,reserved"),
        ({"deletionTimestamp": HOUR_AGO}, {}, "deleted"),
        (
            {"deletionTimestamp": HOUR_AGO},
            {"allocation": {}, "reservedFor": [{}]},
            "deleted,allocated,reserved",
        ),
    ],
)
def test_states_of_resource_claims(metadata: Tree, status: Tree, state: str) -> None:
    row = cells("resourceclaims.resource.k8s.io", {"metadata": metadata, "status": status})
    assert row == {"Name": "x", "State": state, "Age": "60m"}


def test_slices_rules_leases_and_priorities() -> None:
    spec = {"driver": "d", "pool": {"name": "p"}, "nodeName": "n"}
    row = cells("resourceslices.resource.k8s.io", {"spec": spec})
    assert row == {"Name": "x", "Node": "n", "Driver": "d", "Pool": "p", "Age": "60m"}
    taint = {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": MINUTES_AGO}
    row = cells("devicetaintrules.resource.k8s.io", {"spec": {"taint": taint}})
    assert list(row.values()) == ["x", "k", "v", "NoExecute", "4m30s", "60m"]
    assert cells("devicetaintrules.resource.k8s.io", {})["TimeAdded"] == ""
    row = cells("leases.coordination.k8s.io", {"spec": {"holderIdentity": "h"}})
    assert row == {"Name": "x", "Holder": "h", "Age": "60m"}
    row = cells("priorityclasses.scheduling.k8s.io", {"value": 5, "preemptionPolicy": "Never"})
    assert list(row.values()) == ["x", 5, False, "60m", "Never"]


def test_requests_for_the_status_of_pools() -> None:
    key = "resourcepoolstatusrequests.resource.k8s.io"
    row = cells(key, {"spec": {"driver": "d"}})
    assert list(row.values()) == ["x", "d", "-", "-", "-", "-", "-", 0, "Pending", "<none>"]
    pools = [{"totalDevices": 3, "availableDevices": 2, "allocatedDevices": 1}, {"validationError": "bad"}]
    done = {"type": "Complete", "status": "True", "lastTransitionTime": MINUTES_AGO}
    row = cells(key, {"status": {"pools": pools, "poolCount": 4, "conditions": [done]}})
    assert list(row.values())[2:] == ["3", "2", "1", "0", "1", 4, "Complete (2/4 pools)", "4m30s"]
    failed = {"type": "Failed", "status": "True"}
    row = cells(key, {"status": {"pools": pools, "conditions": [failed]}})
    assert (row["Total"], row["Status"], row["Completed"]) == ("-", "Failed", "<none>")


@pytest.mark.parametrize(
    ("spec", "status", "cluster", "external", "ports"),
    [
        ({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"]}, {}, "10.0.0.1", "<none>", "<none>"),
        (
            {
                "type": "NodePort",
                "clusterIP": "10.0.0.2",
                "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}],
            },
            {},
            "10.0.0.2",
            "<none>",
            "80:30000/TCP,1/UDP",
        ),
        ({"type": "LoadBalancer"}, {}, "<none>", "<pending>", "<none>"),
        (
            {"type": "LoadBalancer", "externalIPs": ["4.4.4.4"]},
            {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "a.com"}]}},
            "<none>",
            "9.9.9.9,a.com,4.4.4.4",
            "<none>",
        ),
        ({"type": "ExternalName", "externalName": "a.com"}, {}, "<none>", "a.com", "<none>"),
        ({"type": "Odd"}, {}, "<none>", "<unknown>", "<none>"),
        ({"ports": [{"port": 80}]}, {}, "<none>", "<none>", "80/TCP"),  # stored without its defaults
    ],
)
def test_services(spec: Tree, status: Tree, cluster: str, external: str, ports: str) -> None:
    row = cells("services", {"spec": spec, "status": status})
    assert (row["Cluster-IP"], row["External-IP"], row["Port(s)"]) == (cluster, external, ports)


def test_endpoints_are_cut_short() -> None:
    ports = [{"port": 80}, {"port": 81}]
    subsets = [
        {"addresses": [{"ip": "1.1.1.1"}, {"ip": "fd00::1"}], "ports": ports},
        {"addresses": [{"ip": "2"}]},
    ]
    shown = "1.1.1.1:80,[fd00::1]:80,1.1.1.1:81 + 2 more..."
    assert cells("endpoints", {"subsets": subsets})["Endpoints"] == shown
    assert cells("endpoints", {})["Endpoints"] == "<none>"
    row = cells("endpointslices.discovery.k8s.io", {"ports": [{"port": 80}, {"name": "b"}, {}]})
    assert (row["Ports"], row["Endpoints"]) == ("80,b,*", "<unset>")


def test_volumes() -> None:
    spec = {
        "capacity": {"storage": "1024Mi"},
        "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        "claimRef": {"namespace": "n", "name": "c"},
    }
    row = cells("persistentvolumes", {"spec": spec, "status": {"phase": "Bound"}})
    assert [row[name] for name in ("Capacity", "Access Modes", "Claim", "Status")] == [
        "1Gi",
        "RWO,RWX",
        "n/c",
        "Bound",
    ]
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"]}
    row = cells("persistentvolumeclaims", {"spec": {"volumeName": "v"}, "status": status})
    assert (row["Capacity"], row["Access Modes"], row["VolumeMode"]) == ("1Gi", "ROX", "<unset>")
    row = cells("persistentvolumeclaims", {"status": status})
    assert (row["Capacity"], row["Access Modes"]) == ("", "")


# -- workloads


TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}}
SELECTOR = {
    "matchLabels": {"c": "d", "a": "b"},
    "matchExpressions": [
        {"key": "z", "operator": "In", "values": ["2", "1"]},
        {"key": "b", "operator": "DoesNotExist"},
    ],
}


def test_replicas_and_selectors() -> None:
    spec = {"replicas": 3, "template": TEMPLATE, "selector": SELECTOR}
    row = cells("deployments.apps", {"spec": spec, "status": {"readyReplicas": 1, "updatedReplicas": 2}})
    assert list(row.values()) == ["x", "1/3", 2, 0, "60m", "a,b", "i,j", "a=b,!b,c=d,z in (1,2)"]
    row = cells("replicasets.apps", {"spec": spec, "status": {"replicas": 2}})
    assert list(row.values())[:4] == ["x", 3, 2, 0]
    assert cells("statefulsets.apps", {})["Ready"] == "0/1"
    assert format_selector({"matchExpressions": [{"key": "a", "operator": "Odd"}]}) == "<error>"
    assert format_selector(None) == "<none>"


@pytest.mark.parametrize(
    ("spec", "status", "word", "completions", "duration"),
    [
        ({"completions": 3}, {"succeeded": 1, "startTime": HOUR_AGO}, "Running", "1/3", "60m"),
        ({"parallelism": 2}, {}, "Running", "0/1 of 2", ""),
        (
            {},
            {
                "startTime": HOUR_AGO,
                "completionTime": MINUTES_AGO,
                "conditions": [{"type": "Complete", "status": "True"}],
            },
            "Complete",
            "0/1",
            "55m",
        ),
        ({}, {"conditions": [{"type": "Suspended", "status": "True"}]}, "Suspended", "0/1", ""),
        ({}, {"conditions": [{"type": "Failed", "status": "True"}]}, "Failed", "0/1", ""),
    ],
)
def test_jobs(spec: Tree, status: Tree, word: str, completions: str, duration: str) -> None:
    row = cells("jobs.batch", {"spec": spec, "status": status})
    assert (row["Status"], row["Completions"], row["Duration"]) == (word, completions, duration)


def test_autoscalers() -> None:
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}},
        {"type": "Pods", "pods": {"target": {"averageValue": "1000"}}},
        {"type": "External", "external": {"target": {"value": "5"}}},
    ]
    current = [{"type": "Resource", "resource": {"current": {"averageUtilization": 40}}}]
    row = cells(
        "horizontalpodautoscalers.autoscaling",
        {
            "spec": {"scaleTargetRef": {"kind": "D", "name": "w"}, "metrics": metrics, "maxReplicas": 4},
            "status": {"currentMetrics": current},
        },
    )
    assert row["Targets"] == "cpu: 40%/50%, <unknown>/1k + 1 more..."
    assert (row["Reference"], row["MinPods"], row["MaxPods"]) == ("D/w", "<unset>", 4)
    assert cells("horizontalpodautoscalers.autoscaling", {})["Targets"] == "<none>"


def test_bindings_of_roles() -> None:
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "Group", "name": "g"},
        {"kind": "Group", "name": "h"},
        {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
    ]
    reference = {"kind": "Role", "name": "r"}
    row = cells("rolebindings.rbac.authorization.k8s.io", {"roleRef": reference, "subjects": subjects})
    assert list(row.values()) == ["x", "Role/r", "60m", "u", "g, h", "n/s"]


def test_ingresses_and_classes() -> None:
    rules = [{"host": f"h{index}"} for index in range(5)]
    row = cells("ingresses.networking.k8s.io", {"spec": {"rules": rules, "tls": [{}]}})
    assert (row["Hosts"], row["Ports"], row["Class"]) == ("h0,h1,h2 + 2 more...", "80, 443", "<none>")
    assert cells("ingresses.networking.k8s.io", {})["Hosts"] == "*"
    marks = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    row = cells("storageclasses.storage.k8s.io", {"metadata": marks, "provisioner": "p"})
    assert list(row.values()) == ["x (default)", "p", "Delete", "Immediate", False, "60m"]


# -- durations


def naive_duration(seconds: int) -> str:
    """Format a duration by applying the rules one by one."""
    minutes, hours, days, years = seconds // 60, seconds // 3600, seconds // 86400, seconds // 31536000

    def two(big: int, letter: str, small: int, small_letter: str) -> str:
        return f"{big}{letter}{small}{small_letter}" if small else f"{big}{letter}"

    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if years < 8:
        return two(years, "y", days % 365, "d")
    return f"{years}y"


@given(st.integers(0, 20 * 365 * 86400) | st.integers(0, 20000))
def test_durations_have_one_or_two_units(seconds: int) -> None:
    assert format_duration(timedelta(seconds=seconds)) == naive_duration(seconds)


def test_clocks_may_be_a_second_apart() -> None:
    assert format_duration(timedelta(seconds=-1.5)) == "0s"
    assert format_duration(timedelta(seconds=-2)) == "<invalid>"


def test_invalid_timestamps_in_tables() -> None:
    for never in (None, "", "soon", 5, "0001-01-01T00:00:00Z", "x" * 100):
        assert cells("pods", {"metadata": {"creationTimestamp": never}})["Age"] == "<unknown>"


# -- random objects


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "status",
                    "conditions",
                    "type",
                    "name",
                    "containers",
                    "state",
                    "template",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.sampled_from(RESOURCES), ODD)
def test_objects_of_any_shape_make_a_row(resource: Resource, tree: Any) -> None:
    table = to_table(resource, [tree], now=NOW)
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
    for cell in table["rows"][0]["cells"]:
        assert isinstance(cell, (str, int))


@given(trees_of(POD_SCHEMA))
def test_pods_of_their_shape_make_a_row(tree: Any) -> None:
    assert len(to_table(the("pods"), [tree], now=NOW)["rows"]) == 1
