"""Helm chart and manifests: consistent, complete and with minimal permissions."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.api.cpuset import CpuSet
from plimsoll.api.gates import ALIASES, GATES
from plimsoll.cli.charge import run_charge
from plimsoll.cli.dashboard import run_dashboard
from plimsoll.cli.driver_cpu import parse_running
from plimsoll.cli.driver_memory import run_memory
from plimsoll.cli.scheduler import run_scheduler
from plimsoll.drivers.cpu.config_file import read_flags, read_settings
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, GroupBy, PinEnforcement
from plimsoll.drivers.memory.settings import parse_reserved
from plimsoll.ledger import placeholders
from plimsoll.scheduler.process.configuration import read_settings as scheduler_settings
from plimsoll.scheduler.process.informers import WATCHED_KINDS
from plimsoll.scheduler.process.placeholder_writer import PlaceholderSettings
from plimsoll.tools.cluster_state.kinds import KINDS
from tests.deploy.render import CHART, DEPLOY, HOME, MANIFESTS, manifests, objects, values
from tests.deploy.schema import problems
from tests.deploy.templates import Chart


def schema() -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return tree


SHOWN: dict[str, Any] = {"dashboard": {"enabled": True}}
MEMORY: dict[str, Any] = {"memoryDriver": {"enabled": True}}


def driver(changes: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the objects of the driver, with some values changed."""
    return objects({"driver": changes or {}}, "cpu-driver")


def daemon(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return one(driver(changes), "DaemonSet")


def one(trees: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [tree for tree in trees if tree["kind"] == kind]
    return found


def test_manifests_equal_the_chart_with_default_values() -> None:
    made = manifests()
    assert {"memory-driver/driver.yaml", "dashboard/deployment.yaml"} <= set(made)
    paths = [path for path in MANIFESTS.rglob("*") if path.is_file()]
    assert {path.relative_to(MANIFESTS).as_posix(): path.read_text() for path in paths} == made


def test_the_token_of_the_dashboard_is_in_no_manifest() -> None:
    kinds = {tree["kind"] for text in manifests().values() for tree in yaml.safe_load_all(text)}
    assert "Secret" not in kinds


def test_the_template_renderer() -> None:
    chart = Chart(
        {
            "a": "x:\n  {{- if .a }}\n  y: {{ .a | quote }}\n  {{- else }}\n"
            '  n: {{ .b | default "d" }}\n  {{- end }}\n'
            '{{- define "t" -}}\n{{ .b }}!\n{{- end }}\nz:\n  {{- include "t" . | nindent 2 }}\n',
        }
    )
    assert chart.render("a", {"a": "1", "b": "2"}) == 'x:\n  y: "1"\nz:\n  2!\n'
    assert chart.render("a", {"a": "", "b": ""}) == "x:\n  n: d\nz:\n  !\n"
    chart = Chart(
        {
            "a": '{{- $v := dict "n" .a "m" (not .b) }}{{ if $v.m }}{{ $v.n }}{{ else }}-{{ end }}\n'
            '{{- if and (gt (int .a) 1) (or .b true) }}>{{ include "t" $v | b64enc }}{{ end }}'
            '{{- define "t" -}}{{ .n }}{{ randAlphaNum 2 }}{{- end }}',
        }
    )
    assert chart.render("a", {"a": 2, "b": False}) == "2>Mnh4"
    with pytest.raises(AssertionError, match="no c"):
        Chart({"a": "{{ .c }}"}).render("a", {})


def test_the_schema_has_every_value_and_accepts_the_defaults() -> None:
    assert problems(values(), schema()) == []

    def unknown(tree: dict[str, Any], known: dict[str, Any], at: str) -> list[str]:
        found = []
        for name, value in tree.items():
            part = known.get("properties", {}).get(name)
            if part is None:
                found.append(f"{at}{name}")
            elif isinstance(value, dict) and "properties" in part:
                found += unknown(value, part, f"{at}{name}.")
        return found

    assert unknown(values(), schema(), "") == []


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"config": {"groupBy": "rack"}}, "config.groupBy"),
        ({"config": {"groupby": "socket"}}, "config.groupby"),
        ({"config": {"reservedCPUs": "0-1", "reservedCPUCount": 2}}, "config"),
        ({"config": {"reservedCPUs": "first"}}, "config.reservedCPUs"),
        ({"kubeletRootDir": "var/lib"}, "kubeletRootDir"),
        ({"kubeletRootDir": "/" + "x" * 80}, "kubeletRootDir"),
        ({"http": {"port": 0}}, "http.port"),
        ({"kubeletrootdir": "/k"}, "kubeletrootdir"),
    ],
)
def test_the_schema_refuses_invalid_values(changes: dict[str, Any], where: str) -> None:
    tree = values()
    part = tree["driver"]
    for name, value in changes.items():
        part[name] = {**part[name], **value} if isinstance(value, dict) else value
    assert [line.partition(":")[0] for line in problems(tree, schema())] == [f"driver.{where}"]


def test_the_schema_has_every_feature_gate() -> None:
    gates = schema()["properties"]["scheduler"]["properties"]["featureGates"]
    assert set(gates["properties"]) == {gate.name for gate in GATES} | set(ALIASES)
    for wrong in ({"DRAPartitionableDevice": True}, {"DRAPartitionableDevices": "true"}):
        assert problems(wrong, gates)


def test_the_schema_refuses_a_digest_that_is_none() -> None:
    image = values()["image"]
    for digest, good in (("sha256:" + "a" * 64, True), ("a" * 64, False), ("sha256:x", False)):
        tree = {**values(), "image": {**image, "digest": digest}}
        assert (problems(tree, schema()) == []) is good


def read_config(tree: dict[str, Any], tmp_path: Path) -> CpuSettings:
    """Return the settings of the driver from the arguments and the file of the manifests."""
    config = one(driver(tree), "ConfigMap")
    file = tmp_path / "config.yaml"
    file.write_text(config["data"]["config.yaml"])
    container = daemon(tree)["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:2] == ["driver", "cpu"]
    env = {each["name"]: each.get("value", "n1") for each in container["env"]}
    arguments = tuple(arg.replace("$(NODE_NAME)", env["NODE_NAME"]) for arg in container["args"][2:])
    given = {**parse_running(arguments), "config": file, "host_root": env["HOST_ROOT"]}
    return read_flags({name: value for name, value in given.items() if name not in ("level", "log_format")})


def test_the_driver_reads_what_the_chart_writes(tmp_path: Path) -> None:
    plain = read_config({}, tmp_path)
    assert plain.node == "n1"
    assert plain.host_root == Path("/host")
    assert plain.bind_address == ":6481"
    assert plain.cert_dir == Path("/tmp/tls")
    assert plain.pin.enforcement is PinEnforcement.NRI
    # But for these the defaults are the driver's own.
    default = read_settings(None, {}, hostname="n1")
    assert (plain.mode, plain.group_by, plain.assign) == (default.mode, default.group_by, default.assign)
    assert (plain.policy, plain.mapping, plain.reserved) == (
        default.policy,
        default.mapping,
        default.reserved,
    )
    changed = read_config(
        {
            "config": {"groupBy": "socket", "reservedCPUs": "0-1", "assignment": {"fullCores": True}},
            "kubeletRootDir": "/data/kubelet",
            "exposePCIeRoots": True,
            "http": {"address": "127.0.0.1", "port": 9000, "tlsSecret": "own"},
        },
        tmp_path,
    )
    assert changed.group_by is GroupBy.SOCKET
    assert changed.reserved == CpuSet([0, 1])
    assert changed.assign.full_cores
    assert changed.pcie_roots
    assert changed.kubelet_root == Path("/data/kubelet")
    assert changed.bind_address == "127.0.0.1:9000"
    assert changed.cert_dir == Path("/etc/plimsoll-tls")


def test_settings_and_schema_have_the_same_fields() -> None:
    from plimsoll.drivers.cpu.config_file import FLAGS_ONLY, KEYS  # noqa: PLC0415

    known = set(schema()["properties"]["driver"]["properties"]["config"]["properties"]) - {"apiVersion"}
    assert known == set(KEYS) - set(FLAGS_ONLY)


def test_mounts_follow_the_kubelets_directory() -> None:
    for changes in ({}, {"kubeletRootDir": "/data/kubelet"}, {"config": {"enforcement": "cgroups"}}):
        pod = daemon(changes)["spec"]["template"]["spec"]
        container = pod["containers"][0]
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert set(mounts) == {each["name"] for each in pod["volumes"]}
        root = changes.get("kubeletRootDir", "/var/lib/kubelet")
        assert mounts["plugin"] == f"{root}/plugins/dra.cpu"
        assert mounts["registry"] == f"{root}/plugins_registry"
        hosts = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
        assert hosts["plugin"] == mounts["plugin"]
        assert hosts["registry"] == mounts["registry"]
        assert ("cgroups" in mounts) == ("config" in changes)
        assert ("nri" in mounts) == ("config" not in changes)


def test_the_runtime_can_be_made_to_require_the_plugin() -> None:
    trees = driver({"requiredPlugin": {"install": True, "directory": "/etc/other.d"}})
    text = one(trees, "ConfigMap")["data"]["containerd.toml"]
    validator = tomllib.loads(text)["plugins"]["io.containerd.nri.v1.nri"]["default_validator"]
    assert (validator["enable"], validator["required_plugins"]) == (True, [DRIVER_NAME])
    spec = one(trees, "DaemonSet")["spec"]["template"]
    exempt = validator["tolerate_missing_plugins_annotation"]
    assert spec["metadata"]["annotations"][exempt] == "true", "the driver itself must start"
    (init,) = spec["spec"]["initContainers"]
    assert init["command"][:2] == ["cp", "/etc/plimsoll/containerd.toml"]
    (host,) = [volume for volume in spec["spec"]["volumes"] if volume["name"] == "runtime-config"]
    assert host["hostPath"]["path"] == "/etc/other.d"
    plain = driver()
    assert "initContainers" not in one(plain, "DaemonSet")["spec"]["template"]["spec"]
    assert set(one(plain, "ConfigMap")["data"]) == {"config.yaml"}


def test_permissions_are_minimal() -> None:
    pod = daemon()["spec"]["template"]["spec"]
    security = pod["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]
    assert "privileged" not in security
    assert pod["hostNetwork"]
    assert "hostPID" not in pod
    role = one(driver(), "ClusterRole")
    assert granted(role) == {
        ("nodes", "get"),
        ("resourceclaims", "get"),
        ("resourceclaims", "list"),
        ("resourceclaims/status", "patch"),
        ("resourceclaims/driver", "associated-node:patch"),
        *(("resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")),
        *REVIEWS,
    }
    (own,) = [rule for rule in role["rules"] if rule["resources"] == ["resourceclaims/driver"]]
    assert own["resourceNames"] == ["dra.cpu"]
    silent = one(driver({"config": {"reportCPUs": False}}), "ClusterRole")
    listed = {res for rule in silent["rules"] for res in rule["resources"]}
    assert listed == {"nodes", "resourceclaims", "resourceslices", "tokenreviews", "subjectaccessreviews"}
    assert [tree["kind"] for tree in driver({"rbac": {"create": False}})].count("ClusterRole") == 0


REVIEWS = {("tokenreviews", "create"), ("subjectaccessreviews", "create")}


def granted(role: dict[str, Any]) -> set[tuple[str, str]]:
    return {(res, verb) for rule in role["rules"] for res in rule["resources"] for verb in rule["verbs"]}


def test_the_dashboard_reads_everything_but_secrets() -> None:
    role = one(objects(SHOWN, "dashboard"), "ClusterRole")
    assert {verb for _, verb in granted(role)} == {"list", "watch"}
    assert {endpoint.plural for endpoint in (kind.endpoint for kind in KINDS)} == {
        resource for resource, _ in granted(role)
    }


def test_the_scheduler_writes_only_scheduling_objects() -> None:
    role = one(objects(part="scheduler"), "ClusterRole")
    rights = granted(role)
    assert {resource for resource, verb in rights if verb in ("create", "update", "patch", "delete")} == {
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "pods/binding",
        "pods/status",
        "podgroups/status",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaims/binding",
        "events",
        "tokenreviews",
        "subjectaccessreviews",
    }
    read = {resource for resource, verb in rights if verb == "watch"}
    assert read == {kind.endpoint.plural for kind in WATCHED_KINDS}


@pytest.mark.parametrize("part", ["scheduler", "dashboard"])
def test_the_other_parts_run_unprivileged_and_are_optional(part: str) -> None:
    pod = one(objects(SHOWN, part), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["runAsNonRoot"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"]
    mounts = {each["mountPath"] for each in container.get("volumeMounts", [])}
    assert mounts <= {"/etc/plimsoll", "/var/lib/plimsoll", "/tmp"}
    assert container["ports"][0]["containerPort"] == values()[part]["port"]
    assert objects({part: {"enabled": False}}, part) == []
    assert {tree["kind"] for tree in objects({"driver": {"enabled": False}}, "cpu-driver")} == set()


def test_the_scheduler_reads_what_the_chart_writes(tmp_path: Path) -> None:
    own = {"profiles": [{"schedulerName": "mine", "weights": {"DeviceWaste": 1}}], "wireForm": "annotation"}
    gates = {"DRAPartitionableDevices": False}
    values = {"config": own, "schedulerName": "mine", "featureGates": gates}
    trees = objects({"scheduler": values, "placeholders": {"hostNetwork": True}}, "scheduler")
    file = tmp_path / "config.yaml"
    file.write_text(one(trees, "ConfigMap")["data"]["config.yaml"])
    read = scheduler_settings(file)
    assert [profile.name for profile in read.profiles] == ["mine"]
    assert read.wire_form == "annotation"
    assert not read.gates.enabled("DRAPartitionableDevices")
    assert read.placeholders == PlaceholderSettings(host_network=True)
    plain = tmp_path / "plain.yaml"
    plain.write_text(one(objects(part="scheduler"), "ConfigMap")["data"]["config.yaml"])
    assert scheduler_settings(plain) == scheduler_settings(None)
    (container,) = one(trees, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "scheduler"
    with run_scheduler.make_context("scheduler", container["args"][1:]) as context:
        assert context.params["cert_dir"] == Path("/tmp/tls")
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    (page,) = one(objects(SHOWN, "dashboard"), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert page["args"][0] == "dashboard"
    run_dashboard.make_context("dashboard", page["args"][1:]).close()


def test_the_chart_can_charge_only() -> None:
    """kube-scheduler keeps all pods; the permissions are those of the scheduler."""
    trees = objects({"scheduler": {"chargeOnly": True}}, "scheduler")
    (container,) = one(trees, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "charge"
    with run_charge.make_context("charge", container["args"][1:]) as context:
        assert context.params["cert_dir"] == Path("/tmp/tls")
        assert context.params["leader_elect"]
    rest = [tree for tree in trees if tree["kind"] != "Deployment"]
    assert rest == [tree for tree in objects(part="scheduler") if tree["kind"] != "Deployment"]


def test_the_dashboard_with_a_host_name_and_a_token() -> None:
    own = {"host": "books.example.com", "tokenSecret": "books", "historyClaim": "past"}
    trees = objects({"dashboard": {"enabled": True, **own}}, "dashboard")
    assert "Secret" not in [tree["kind"] for tree in trees]
    # Two processes must not write one volume.
    assert one(trees, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    pod = one(trees, "Deployment")["spec"]["template"]["spec"]
    (page,) = pod["containers"]
    with run_dashboard.make_context("dashboard", page["args"][1:]) as context:
        assert context.params["names"] == ("books.example.com",)
        assert context.params["token_file"] == Path("/etc/plimsoll/token")
        assert context.params["history"] == Path("/var/lib/plimsoll/history.db")
    assert pod["volumes"] == [
        {"name": "history", "persistentVolumeClaim": {"claimName": "past"}},
        {"name": "token", "secret": {"secretName": "books", "defaultMode": 0o440}},
    ]
    assert [(each["name"], each["mountPath"]) for each in page["volumeMounts"]] == [
        ("history", "/var/lib/plimsoll"),
        ("token", "/etc/plimsoll"),
    ]


def test_the_dashboard_is_off_by_default_and_otherwise_has_a_token() -> None:
    assert objects(part="dashboard") == []
    trees = objects(SHOWN, "dashboard")
    secret, pod = one(trees, "Secret"), one(trees, "Deployment")["spec"]["template"]["spec"]
    assert len(base64.b64decode(secret["data"]["token"])) >= 32
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "token"]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    (page,) = pod["containers"]
    mounted = {each["name"]: each["mountPath"] for each in page["volumeMounts"]}["token"]
    with run_dashboard.make_context("dashboard", page["args"][1:]) as context:
        assert context.params["token_file"] == Path(mounted) / "token"


def test_network_policies_open_the_port_for_the_named_peers_only() -> None:
    assert "NetworkPolicy" not in [tree["kind"] for tree in objects(SHOWN)]
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    for part in ("scheduler", "dashboard"):
        for peers in ([], [peer]):
            trees = objects({**SHOWN, "networkPolicy": {"create": True, "from": peers}}, part)
            spec = one(trees, "NetworkPolicy")["spec"]
            labels = one(trees, "Deployment")["spec"]["template"]["metadata"]["labels"]
            assert spec["podSelector"]["matchLabels"].items() <= labels.items()
            assert spec["policyTypes"] == ["Ingress"]
            rules = [{"from": peers, "ports": [{"port": "http"}]}] if peers else []
            assert spec.get("ingress", []) == rules


def test_replicas_of_the_scheduler_are_spread_and_disrupted_one_at_a_time() -> None:
    trees = objects(part="scheduler")
    labels = one(trees, "Deployment")["spec"]["template"]["metadata"]["labels"]
    budget = one(trees, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    spec = one(trees, "Deployment")["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= labels.items()
    own: dict[str, Any] = {"nodeAffinity": {}}
    single = objects({"scheduler": {"replicas": 1, "affinity": own}}, "scheduler")
    assert "PodDisruptionBudget" not in [tree["kind"] for tree in single]
    assert one(single, "Deployment")["spec"]["template"]["spec"]["affinity"] == own


def test_placeholders_have_a_namespace_a_priority_and_a_role_of_their_own() -> None:
    trees = objects(part="scheduler/placeholders")
    namespace = one(trees, "Namespace")["metadata"]
    assert namespace["name"] == placeholders.NAMESPACE
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    priority = one(trees, "PriorityClass")
    assert priority["metadata"]["name"] == placeholders.PRIORITY_CLASS
    assert (priority["value"], priority["preemptionPolicy"]) == (1_000_000_000, "Never")
    assert not priority["globalDefault"]
    role = one(trees, "Role")
    assert role["metadata"]["namespace"] == one(trees, "RoleBinding")["metadata"]["namespace"]
    assert role["metadata"]["namespace"] == placeholders.NAMESPACE
    assert granted(role) == {("pods", "create"), ("pods", "delete"), ("pods", "get")}
    assert objects({"placeholders": {"mode": "Off"}}, "scheduler/placeholders") == []
    # The restricted and the baseline standard refuse pods in the network of the node.
    host = objects({"placeholders": {"hostNetwork": True}}, "scheduler/placeholders")
    labels = one(host, "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_images_can_be_named_by_digest() -> None:
    digest = "sha256:" + "a" * 64
    trees = objects({"image": {"repository": "r/plimsoll", "digest": digest}, **SHOWN, **MEMORY})
    pods = [tree["spec"]["template"]["spec"] for tree in trees if "template" in tree.get("spec", {})]
    assert {each["image"] for pod in pods for each in pod["containers"]} == {f"r/plimsoll@{digest}"}
    assert len(pods) == 4


def test_one_value_sets_the_logs_of_all_components() -> None:
    trees = objects({"logging": {"format": "json", "verbose": True}, **MEMORY})
    pods = [tree["spec"]["template"]["spec"] for tree in trees if "template" in tree.get("spec", {})]
    for args in [pod["containers"][0]["args"] for pod in pods]:
        assert "--log-format=json" in args
        assert {"--verbose", "-v", "-v=4"} & set(args)
    assert len(pods) == 3


def test_names_of_templates_have_the_name_of_the_chart() -> None:
    for path in (CHART / "templates").rglob("*.tpl"):
        names = re.findall(r'define "([^"]+)"', path.read_text())
        assert names
        assert all(name.startswith("plimsoll.") for name in names)


def test_ports_on_the_host_network_differ() -> None:
    trees = objects(MEMORY)
    pods = [tree["spec"]["template"]["spec"] for tree in trees if tree["kind"] == "DaemonSet"]
    ports = [port["containerPort"] for pod in pods for each in pod["containers"] for port in each["ports"]]
    # 8080 is taken on many nodes.
    assert sorted(ports) == [6481, 6482]


def test_the_dashboard_may_take_minutes_to_start() -> None:
    (page,) = one(objects(SHOWN, "dashboard"), "Deployment")["spec"]["template"]["spec"]["containers"]
    start = page["startupProbe"]
    assert start["httpGet"]["path"] == "/livez"
    assert start["periodSeconds"] * start["failureThreshold"] >= 600


def test_liveness_does_not_depend_on_others_but_readiness_does() -> None:
    container = daemon()["spec"]["template"]["spec"]["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_images_have_no_registry() -> None:
    base = re.findall(r"(?m)^FROM (\S+)", (DEPLOY / "Dockerfile").read_text())
    images = [*base, values()["image"]["repository"]]
    assert all("." not in image.partition("/")[0].partition(":")[0] for image in images)
    assert len(base) == 2


def test_versions_agree() -> None:
    project = re.search(r'(?m)^version = "(.*)"', (HOME / "pyproject.toml").read_text())
    assert project is not None
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == project[1]
    assert f"plimsoll:{project[1]}" in (DEPLOY / "Dockerfile").read_text()


def test_the_memory_driver_is_optional_and_runs_with_what_the_chart_sets() -> None:
    assert objects(part="memory-driver") == []
    changes = {"enabled": True, "reservedMemory": "0:memory=1Gi;1:memory=1Gi", "kubeletRootDir": "/k"}
    trees = objects({"memoryDriver": changes}, "memory-driver")
    pod = one(trees, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = run_memory.make_context("memory", container["args"][2:]).params
    assert container["args"][:2] == ["driver", "memory"]
    assert parse_reserved(given["reserved_memory"]) == {0: {"memory": 1 << 30}, 1: {"memory": 1 << 30}}
    paths = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert {"/sys", "/k/plugins/dra.memory", "/k/plugins_registry", "/var/run/cdi", "/var/run/nri"} == paths
    assert given["cert_dir"] == Path("/tmp/tls")
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    driver = one(trees, "ValidatingAdmissionPolicy")["spec"]["validations"][-1]["expression"]
    assert driver == 'variables.slice.spec.driver == "dra.memory"'
    wrong = {**values()["memoryDriver"], "reservedMemory": "one"}
    assert problems({**values(), "memoryDriver": wrong}, schema())


def test_the_memory_driver_has_the_values_of_the_cpu_driver() -> None:
    cpu, memory = values()["driver"], values()["memoryDriver"]
    assert set(cpu) - set(memory) == {"config", "exposePCIeRoots"}
    assert set(memory) - set(cpu) == {"reservedMemory", "nodeAllocatableForm", "enforcement"}
    changes = {
        "priorityClassName": "own",
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"a": "b"},
        "podLabels": {"team": "memory"},
        "seLinuxOptions": {"type": "spc_t"},
        "requiredPlugin": {"install": True},
        "http": {"address": "127.0.0.1", "tlsSecret": "own"},
        "deviceClass": {"create": False},
        "rbac": {"create": False},
        "admissionPolicy": {"create": False},
    }
    both = {name: {"enabled": True, **changes} for name in ("driver", "memoryDriver")}
    for part, name in (("cpu-driver", "dra.cpu"), ("memory-driver", "dra.memory")):
        trees = objects(both, part)
        assert {tree["kind"] for tree in trees} == {"ServiceAccount", "ConfigMap", "DaemonSet"}
        template = one(trees, "DaemonSet")["spec"]["template"]
        assert template["metadata"]["labels"]["team"] == "memory"
        spec = template["spec"]
        assert (spec["priorityClassName"], spec["nodeSelector"]) == ("own", {"a": "b"})
        (container,) = spec["containers"]
        assert container["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
        assert container["livenessProbe"]["httpGet"]["host"] == "127.0.0.1"
        assert "--cert-dir=/etc/plimsoll-tls" in container["args"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        mounts = [each["volumeMounts"] for each in (*spec["containers"], *spec["initContainers"])]
        assert volumes == {mount["name"] for mounted in mounts for mount in mounted}
        # A later file replaces the section of an earlier one.
        text = one(trees, "ConfigMap")["data"]["containerd.toml"]
        validator = tomllib.loads(text)["plugins"]["io.containerd.nri.v1.nri"]["default_validator"]
        assert validator["required_plugins"] == ["dra.cpu", "dra.memory"]
        assert (
            spec["initContainers"][0]["command"][-1] == f"/host/containerd/50-{name.replace('.', '-')}.toml"
        )
