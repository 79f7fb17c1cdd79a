"""Checks of kubectl verbs against a cluster of `plimsoll up`: on its own node, and on a simulated one.

`VERBS` is also the table in docs/up.md. A check takes kubectl in a namespace with the objects of `OBJECTS`.
"""

from __future__ import annotations

import json
import socket
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.smoke.kubectl import Kubectl
from tests.waiting import wait_until

HERE, SIMULATED = "here", "sim-0"
#: Every refusal of a simulated node.
REFUSAL = "node sim-0 is simulated: its pods have no processes"
AS_IN_KUBERNETES = "as in Kubernetes"
REFUSED = f"refused: `{REFUSAL} ...`"

Check = Callable[[Kubectl], None]


class Verb(NamedTuple):
    """Row of the table: what works with pods of this machine, and with simulated ones."""

    name: str
    here: str
    simulated: str
    check: Check


# -- objects


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])


PORT = free_port()
_SERVE = f"echo started; cat /settings/key; echo $TOKEN; exec python3 -m http.server --bind 127.0.0.1 {PORT}"


def _template(app: str, node: str, script: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "ports": [{"containerPort": PORT}],
        "resources": {"requests": {"cpu": "20m", "memory": "16Mi"}},
        "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}}],
        "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
    }
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
            "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def deployment(app: str, node: str, script: str = _SERVE) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "strategy": {"type": "Recreate"},
            "template": _template(app, node, script),
        },
    }


SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"key": "old\n"},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "token"},
    "stringData": {"value": "s3cret"},
}
OBJECTS = [SETTINGS, SECRET, deployment("web", HERE), deployment("sim", SIMULATED)]


def pod_of(kubectl: Kubectl, app: str) -> str:
    """Return the name of the only pod of a deployment that is not being deleted."""

    def names() -> list[str]:
        pods = kubectl.get("pods", "-l", f"app={app}")["items"]
        return [p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]]

    return wait_until(names, lambda found: len(found) == 1)[0]


def refused(kubectl: Kubectl, *arguments: str, given: Any = None) -> None:
    """Require that a command fails with one clear line, after what kubectl itself prints."""
    *_, last = kubectl.refused(*arguments, given=given).strip().splitlines()
    assert REFUSAL in last, last


# -- checks


def _apply(kubectl: Kubectl) -> None:
    assert "unchanged" in kubectl("apply", "-f", "-", given=SETTINGS)


def _get(kubectl: Kubectl) -> None:
    listed = kubectl("get", "deployments,pods", "-o", "wide")
    assert "deployment.apps/web" in listed
    assert HERE in listed
    assert SIMULATED in listed
    assert "1/1" in kubectl("get", "deployment", "sim")


def _describe(kubectl: Kubectl) -> None:
    for app, node in (("web", HERE), ("sim", SIMULATED)):
        described = kubectl("describe", "pod", pod_of(kubectl, app))
        assert f"{node}/" in described
        assert "Started" in described
        assert ("plimsoll.dev/Simulated" in described) == (node == SIMULATED)
    assert "dra.cpu" not in kubectl("describe", "node", SIMULATED)


def _edit(kubectl: Kubectl) -> None:
    assert kubectl.run("edit", "configmap", "settings", editor="sed -i s/old/new/").code == 0
    assert kubectl.get("configmap", "settings")["data"]["key"] == "new\n"


def _label(kubectl: Kubectl) -> None:
    kubectl("label", "deployment", "web", "tier=front")
    kubectl("annotate", "deployment", "web", "note=here")
    kubectl("patch", "deployment", "web", "-p", '{"metadata":{"labels":{"tier":"back"}}}')
    assert "deployment.apps/web" in kubectl("get", "deployment", "-l", "tier=back", "-o", "name")


def _scale(kubectl: Kubectl) -> None:
    kubectl("scale", "deployment", "sim", "--replicas=3")
    kubectl("rollout", "status", "deployment/sim", "--timeout=60s")
    assert kubectl.get("deployment", "sim")["status"]["readyReplicas"] == 3
    kubectl("scale", "deployment", "sim", "--replicas=1")
    pod_of(kubectl, "sim")


def _rollout(kubectl: Kubectl) -> None:
    for app in ("web", "sim"):
        kubectl("set", "env", f"deployment/{app}", "A=b")
        kubectl("rollout", "status", f"deployment/{app}", "--timeout=60s")
        kubectl("rollout", "undo", f"deployment/{app}")
        kubectl("rollout", "status", f"deployment/{app}", "--timeout=60s")
        assert len(kubectl("rollout", "history", f"deployment/{app}").strip().splitlines()) == 4


def _wait(kubectl: Kubectl) -> None:
    for app in ("web", "sim"):
        kubectl("wait", "--for=condition=Available", f"deployment/{app}", "--timeout=60s")


def _logs(kubectl: Kubectl) -> None:
    wait_until(lambda: kubectl("logs", "deployment/web"), lambda text: "started" in text)
    assert kubectl("logs", pod_of(kubectl, "web"), "--tail=1", "--timestamps").split()[0].endswith("Z")
    refused(kubectl, "logs", pod_of(kubectl, "sim"))


def _exec(kubectl: Kubectl) -> None:
    assert kubectl("exec", "deployment/web", "--", "sh", "-c", "echo $TOKEN") == "s3cret\n"
    assert kubectl.run("exec", "deployment/web", "--", "false").code == 1
    refused(kubectl, "exec", "deployment/sim", "--", "true")


def _cp(kubectl: Kubectl) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "a").write_text("content")
        web = pod_of(kubectl, "web")
        kubectl("cp", f"{directory}/a", f"{web}:{directory}/b")
        kubectl("cp", f"{web}:{directory}/b", f"{directory}/c")
        assert (Path(directory) / "c").read_text() == "content"
        result = kubectl.run("cp", f"{directory}/a", f"{pod_of(kubectl, 'sim')}:/tmp/b")
        assert result.code != 0
        assert REFUSAL in result.out + result.err


def _attach(kubectl: Kubectl) -> None:
    refused(kubectl, "attach", pod_of(kubectl, "sim"))


def _run(kubectl: Kubectl) -> None:
    shell = ("--rm", "--restart=Never", "--image=busybox", "--pod-running-timeout=60s")
    override = {"spec": {"nodeName": HERE, "terminationGracePeriodSeconds": 0}}
    words = ("run", "shell", "-i", *shell, f"--overrides={json.dumps(override)}", "--", "cat")
    assert '"typed"' in kubectl(*words, given="typed")
    override["spec"]["nodeName"] = SIMULATED
    result = kubectl.run(
        "run", "simshell", "-i", *shell, f"--overrides={json.dumps(override)}", given="typed"
    )
    assert result.code != 0
    assert REFUSAL in result.err


def _debug(kubectl: Kubectl) -> None:
    web, sim = pod_of(kubectl, "web"), pod_of(kubectl, "sim")
    words = ("--image=busybox", "--profile=general", "--quiet")
    kubectl("debug", web, *words, "-c", "debugger", "--target=main", "--", "sh", "-c", "echo found; exit 3")

    def state() -> Any:
        statuses = kubectl.get("pod", web)["status"].get("ephemeralContainerStatuses", [{}])
        return statuses[0].get("state", {}).get("terminated", {}).get("exitCode")

    assert wait_until(state, bool) == 3
    assert kubectl("logs", web, "-c", "debugger") == "found\n"
    # The input stays open, as there is no stdinOnce: the command has to end by itself.
    typed = (*words, "-i", "-c", "typing")
    assert '"typed"' in kubectl("debug", web, *typed, "--", "head", "-c", "7", given="typed")
    kubectl("debug", f"node/{HERE}", "--image=busybox", "--profile=general", "--", "ls", "/host")
    refused(kubectl, "debug", sim, *typed, given="typed")
    events = ("get", "events", "--field-selector", "reason=UnsupportedEphemeralContainer", "-o", "name")
    assert wait_until(lambda: kubectl(*events), bool)


def _proxied(kubectl: Kubectl, app: str) -> str:
    return f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod_of(kubectl, app)}:{PORT}/proxy/"


def _wait_until_served(kubectl: Kubectl) -> str:
    """Wait until the server in the pod listens; return its page."""
    return wait_until(lambda: kubectl.run("get", "--raw", _proxied(kubectl, "web")).out, bool)


def _port_forward(kubectl: Kubectl) -> None:
    _wait_until_served(kubectl)  # kubectl ends if a connection is refused
    process = kubectl.start("port-forward", "deployment/web", f":{PORT}", "--address=127.0.0.1")
    try:
        assert process.stdout is not None
        own = process.stdout.readline().split(" -> ")[0].rpartition(":")[2]

        def fetch() -> bytes:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{own}/", timeout=5) as response:
                    return bytes(response.read())
            except OSError:
                return b""

        assert b"Directory listing" in wait_until(fetch, bool)
    finally:
        process.kill()
        process.communicate()
    refused(kubectl, "port-forward", pod_of(kubectl, "sim"), f":{PORT}")


def _proxy(kubectl: Kubectl) -> None:
    assert "Directory listing" in _wait_until_served(kubectl)
    refused(kubectl, "get", "--raw", _proxied(kubectl, "sim"))


def _top(kubectl: Kubectl) -> None:
    def usage() -> dict[str, list[str]]:
        return {line.split()[0]: line.split()[1:] for line in kubectl("top", "nodes").splitlines()[1:]}

    # The first measurement is of half a second, in which an idle machine uses nothing that its kernel counts.
    assert SIMULATED in wait_until(usage, lambda rows: rows[HERE][0] != "0m", pause=1.0)
    pods = {line.split()[0]: line.split()[1:] for line in kubectl("top", "pods", "--containers").splitlines()}
    assert pods[pod_of(kubectl, "sim")] == ["main", "20m", "16Mi"]
    assert pods[pod_of(kubectl, "web")][0] == "main"
    assert 'podmetrics.metrics.k8s.io "' in kubectl.refused("top", "pod", "no-such-pod")


def _events(kubectl: Kubectl) -> None:
    assert "Scheduled" in kubectl("events", "--for", f"pod/{pod_of(kubectl, 'web')}")


def _explain(kubectl: Kubectl) -> None:
    assert "FIELDS:" in kubectl("explain", "deployment.spec.template.spec.containers")


def _diff(kubectl: Kubectl) -> None:
    changed = {**SETTINGS, "data": {"key": "other\n"}}
    result = kubectl.run("diff", "-f", "-", given=changed)
    assert result.code == 1
    assert "other" in result.out


def _api_resources(kubectl: Kubectl) -> None:
    names = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "deployments.apps", "resourceclaims.resource.k8s.io", "pods.metrics.k8s.io"} <= set(names)


def _can_i(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods/exec") == "yes\n"
    assert kubectl.run("auth", "can-i", "create", "pods/exec", "--as", "another-user").out == "no\n"


def _create_job(kubectl: Kubectl) -> None:
    job: dict[str, Any] = json.loads(
        kubectl("create", "job", "once", "--image=busybox", "--dry-run=client", "-o", "json", "--", "true")
    )
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": HERE}
    kubectl("create", "-f", "-", given=job)
    job["metadata"]["name"] = "simulated"
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": SIMULATED}
    job["spec"]["template"]["metadata"]["annotations"] = {"plimsoll.dev/run-seconds": "0"}
    kubectl("create", "-f", "-", given=job)
    kubectl("wait", "--for=condition=Complete", "job/once", "job/simulated", "--timeout=60s")


def _config_map_volume(kubectl: Kubectl) -> None:
    assert kubectl("exec", "deployment/web", "--", "cat", "/settings/key") in ("old\n", "new\n")


def _secrets(kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "other", "--from-literal=a=b")
    assert kubectl.get("secret", "other")["data"] == {"a": "Yg=="}
    assert "1 bytes" in kubectl("describe", "secret", "other")


def _token(kubectl: Kubectl) -> None:
    token = kubectl("create", "token", "default", "--duration=1h", "--audience=tests").strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    for audience, valid in (("tests", "true"), ("others", "")):
        spec = {"token": token, "audiences": [audience]}
        template = "jsonpath={.status.authenticated}"
        found = kubectl("create", "-f", "-", "-o", template, given={**review, "spec": spec})
        assert found == valid, f"audience {audience}: {found}"


def _service(kubectl: Kubectl) -> None:
    for app in ("web", "sim"):
        kubectl("expose", "deployment", app, f"--port={PORT}")
        assert kubectl.get("service", app)["spec"]["clusterIP"].count(".") == 3

        def ready(app: str = app) -> list[Any]:
            slices = kubectl.get("endpointslices", "-l", f"kubernetes.io/service-name={app}")["items"]
            return [
                each for one in slices for each in one.get("endpoints") or [] if each["conditions"]["ready"]
            ]

        assert len(wait_until(ready, bool)) == 1


def _delete(kubectl: Kubectl) -> None:
    for app in ("web", "sim"):
        old = pod_of(kubectl, app)
        kubectl("delete", "pod", old, "--timeout=60s")
        assert wait_until(lambda app=app: pod_of(kubectl, app), lambda new, old=old: new != old)  # type: ignore[misc]


def _drain(kubectl: Kubectl) -> None:
    kubectl("drain", HERE, SIMULATED, "--force", "--ignore-daemonsets", "--timeout=60s")
    assert all(node["spec"].get("unschedulable") for node in kubectl.get("nodes")["items"])
    kubectl("uncordon", HERE, SIMULATED)
    kubectl("rollout", "status", "deployment/web", "--timeout=60s")


_SAME = (AS_IN_KUBERNETES, AS_IN_KUBERNETES)
#: In the order in which they are checked, on one cluster.
VERBS = (
    Verb("apply, create", *_SAME, _apply),
    Verb("get", *_SAME, _get),
    Verb("describe", *_SAME, _describe),
    Verb("label, annotate, patch", *_SAME, _label),
    Verb("wait", *_SAME, _wait),
    Verb("scale", *_SAME, _scale),
    Verb("rollout (status, undo, history, restart), set", *_SAME, _rollout),
    Verb("edit", *_SAME, _edit),
    Verb("diff", *_SAME, _diff),
    Verb("explain", *_SAME, _explain),
    Verb("api-resources", *_SAME, _api_resources),
    Verb("auth can-i", *_SAME, _can_i),
    Verb("events", *_SAME, _events),
    Verb("create secret", *_SAME, _secrets),
    Verb("create token", *_SAME, _token),
    Verb("create job", AS_IN_KUBERNETES, "the Job ends by [annotation](#nodes-and-devices)", _create_job),
    Verb(
        "create configmap, mounted as a volume",
        "yes, updated when it changes",
        "accepted, without effect",
        _config_map_volume,
    ),
    Verb(
        "expose, get endpointslices",
        "an address and endpoints; nothing routes the address",
        "the same",
        _service,
    ),
    Verb(
        "logs (`-f`, `--previous`, `--since`, `--tail`, `--timestamps`, `--limit-bytes`)",
        "yes",
        REFUSED,
        _logs,
    ),
    Verb(
        "exec, exec -it",
        "yes; the command runs on the machine's files with the container's user and limits",
        REFUSED,
        _exec,
    ),
    Verb("cp", "yes", REFUSED, _cp),
    Verb("attach", "yes", REFUSED, _attach),
    Verb("run -i", "yes", REFUSED, _run),
    Verb("port-forward", "yes, to ports on which a process of the pod listens", REFUSED, _port_forward),
    Verb(
        "get --raw .../pods/NAME:PORT/proxy/PATH, proxy",
        "yes, to ports on which a process of the pod listens",
        REFUSED,
        _proxy,
    ),
    Verb(
        "debug POD, debug node/NAME",
        "yes; images such as busybox, alpine and ubuntu run a shell, others need a command",
        f"an event `UnsupportedEphemeralContainer`; attaching is {REFUSED}",
        _debug,
    ),
    Verb("top nodes, top pods", "measured", "what containers request, or what annotations specify", _top),
    Verb("delete", *_SAME, _delete),
    Verb("drain, cordon, uncordon", *_SAME, _drain),
)


def format_table() -> list[str]:
    """Return the rows of the table in docs/up.md."""
    return [f"| {verb.name} | {verb.here} | {verb.simulated} |" for verb in VERBS]
