"""Latency of other clients while one client sends an expensive request.

    python -m bench.hostile_requests [--only NAME ...] [--objects 100000] [--clients 6] [--anonymous]
        [--save FILE] [--compare FILE]

Starts `plimsoll server` as a process of its own and sends it one expensive request after another, each from a
process of its own: bodies that take long to decode, validate or patch, and reads of large sets. Meanwhile
another client gets a pod and creates pods, one request at a time; the table shows their p50, p99 and longest
latency, what the expensive request was answered with and how long it took. With `--clients` several clients
send it at once, with `--anonymous` they have no credentials. `--save` writes the figures to a
file, `--compare` prints the longest latency of an earlier run beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from bench.server import Server, fill, make_pod
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.client.kubeconfig import find_config
from plimsoll.errors import ApiError

PODS_PATH = "/api/v1/namespaces/default/pods"
MAPS_PATH = "/api/v1/namespaces/default/configmaps"
CLAIMS_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
Tree = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One request; a body that is not bytes is sent as JSON."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        if self.body is None or isinstance(self.body, bytes):
            return self.body or b""
        return json.dumps(self.body, separators=(",", ":")).encode()


# -- bodies


def nested_macros(seed: int, size: int) -> str:
    """Return a CEL expression of nested macros of about this size, different for every seed."""
    term = f'device.driver == "d{seed}"'
    for level in range(8):
        term = f"[1].all(v{level}, {term})"
    return " || ".join([term] * (size // (len(term) + 4)))


def claim_of_selectors(requests: int = 32, selectors: int = 32, size: int = 2700) -> Tree:
    listed = [
        {
            "name": f"r{number}",
            "exactly": {
                "deviceClassName": "c",
                "selectors": [
                    {"cel": {"expression": nested_macros(number * selectors + each, size)}}
                    for each in range(selectors)
                ],
            },
        }
        for number in range(requests)
    ]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "macros"}}
    return {**head, "spec": {"devices": {"requests": listed}}}


def pod_of_containers(count: int, name: str = "containers", image: str = "i") -> Tree:
    containers = [{"name": f"c{number}", "image": image} for number in range(count)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers},
    }


def pod_of_quantities(count: int) -> Tree:
    requests = {f"e.io/{number}": f"{number}.1234567e5" for number in range(count)}
    tree = pod_of_containers(1, "quantities")
    tree["spec"]["containers"][0]["resources"] = {"requests": requests}
    return tree


def config_map(name: str, **more: Any) -> Tree:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def managers(count: int) -> list[Tree]:
    entry = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return [
        {**entry, "manager": f"m{number}", "fieldsV1": {"f:data": {f"f:x{number}": {}}}}
        for number in range(count)
    ]


def yaml_map(count: int) -> bytes:
    lines = "".join(f"  key{number}: value\n" for number in range(count))
    return f'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "y"\ndata:\n{lines}'.encode()


def yaml_bomb() -> bytes:
    """Return a ConfigMap of 600 bytes whose nested aliases expand to 1e8 values."""
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: b}", "x0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    for level in range(1, 8):
        lines.append(f"x{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join(lines).encode()


def aliased_pod(count: int) -> bytes:
    """Return a pod whose containers are all one alias each."""
    env = ",".join(f"{{name: N{number}, value: v}}" for number in range(100))
    items = "\n".join(["  - <<: *c"] * count)
    first = f"  - &c\n    name: c\n    image: i\n    env: [{env}]"
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n{first}\n{items}\n".encode()
    )


def json_patch(kind: str, value: Any = None) -> Request:
    operations = {
        "copy": [{"op": "copy", "from": "/data", "path": f"/x{number}"} for number in range(10_000)],
        "test": [{"op": "test", "path": "/data", "value": value} for _ in range(3)],
        "copies": [{"op": "copy", "from": "/data", "path": f"/x{number}"} for number in range(80)],
        "add": [{"op": "add", "path": f"/data/z{number}", "value": "x"} for number in range(10_000)],
    }[kind]
    name = "medium" if kind == "copies" else "large"
    return Request(
        "PATCH", f"{MAPS_PATH}/{name}", operations, {"Content-Type": "application/json-patch+json"}
    )


_LARGE_DATA = {f"k{number}": "v" * 10 for number in range(30_000)}
_APPLY = {"Content-Type": "application/apply-patch+yaml"}
_STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
_MERGE = {"Content-Type": "application/merge-patch+json"}
_YAML = {"Content-Type": "application/yaml"}
_LABEL = {"metadata": {"labels": {"a": "b"}}}
_DRY = "?dryRun=All"

#: Objects that some of the requests work on.
SETUP: tuple[Callable[[], Request], ...] = (
    lambda: Request("POST", PODS_PATH, pod_of_containers(3000, "large")),
    lambda: Request("POST", PODS_PATH, pod_of_containers(3000, "doomed")),
    lambda: Request("POST", MAPS_PATH, config_map("large", data=_LARGE_DATA)),
    lambda: Request("POST", MAPS_PATH, config_map("medium", data=dict(list(_LARGE_DATA.items())[:1500]))),
)

HOSTILE: dict[str, Callable[[], Request]] = {
    "nothing": lambda: Request("GET", "/version"),
    "claim of 32 x 32 selectors, dry run": lambda: Request("POST", CLAIMS_PATH + _DRY, claim_of_selectors()),
    "pod of 85,000 containers": lambda: Request("POST", PODS_PATH, pod_of_containers(85_000)),
    "the same by server-side apply": lambda: Request(
        "PATCH", f"{PODS_PATH}/applied?fieldManager=x", pod_of_containers(85_000, "applied"), _APPLY
    ),
    "100,000 quantities": lambda: Request("POST", PODS_PATH, pod_of_quantities(100_000)),
    "20,000 field managers": lambda: Request(
        "POST",
        MAPS_PATH + _DRY,
        {
            **config_map("m"),
            "metadata": {"name": "m", "managedFields": managers(20_000)},
        },
    ),
    "150,000 finalizers": lambda: Request(
        "POST",
        MAPS_PATH + _DRY,
        {
            **config_map("f"),
            "metadata": {"name": "f", "finalizers": [f"a.b/f{number}" for number in range(150_000)]},
        },
    ),
    "300,000 nested lists": lambda: Request(
        "POST",
        MAPS_PATH,
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"x":[%s]}'
        % b",".join([b"[[[[]]]]"] * 300_000),
    ),
    "500,000 levels": lambda: Request(
        "POST",
        MAPS_PATH,
        b'{"apiVersion":"v1","kind":"ConfigMap","data":%s1%s}' % (b'{"a":' * 500_000, b"}" * 500_000),
    ),
    "200,000 unknown fields, strict": lambda: Request(
        "POST",
        f"{MAPS_PATH}?fieldValidation=Strict",
        config_map("u", **{f"f{number}": 1 for number in range(200_000)}),
    ),
    "YAML of 2.6 MB": lambda: Request("POST", MAPS_PATH + _DRY, yaml_map(150_000), _YAML),
    "YAML of 2.6 MB by apply": lambda: Request(
        "PATCH", f"{MAPS_PATH}/y?fieldManager=x&dryRun=All", yaml_map(150_000), _APPLY
    ),
    "500 MB of zeros in gzip": lambda: Request(
        "POST", MAPS_PATH, gzip.compress(bytes(500_000_000)), {"Content-Encoding": "gzip"}
    ),
    "YAML bomb of 600 bytes": lambda: Request("POST", MAPS_PATH + _DRY, yaml_bomb(), _YAML),
    "YAML pod of 800 aliases, 15 kB": lambda: Request("POST", PODS_PATH + _DRY, aliased_pod(800), _YAML),
    "JSON patch of 80 copies": lambda: json_patch("copies"),
    "JSON patch of 10,000 copies": lambda: json_patch("copy"),
    "JSON patch of 3 large tests": lambda: json_patch("test", _LARGE_DATA),
    "JSON patch of 10,000 additions": lambda: json_patch("add"),
    "merge patch of a label, 1.4 MB object": lambda: Request("PATCH", f"{MAPS_PATH}/large", _LABEL, _MERGE),
    "strategic patch of 3,000 containers": lambda: Request(
        "PATCH", f"{PODS_PATH}/large", {"spec": pod_of_containers(3000, image="j")["spec"]}, _STRATEGIC
    ),
    "status patch, 3,000 containers": lambda: Request(
        "PATCH", f"{PODS_PATH}/large/status", {"status": {"phase": "Running"}}, _STRATEGIC
    ),
    "get 3,000 containers as a table": lambda: Request("GET", f"{PODS_PATH}/large", None, {"Accept": TABLE}),
    "get 3,000 containers as YAML": lambda: Request(
        "GET", f"{PODS_PATH}/large", None, {"Accept": "application/yaml"}
    ),
    "get 3,000 containers as protobuf": lambda: Request(
        "GET", f"{PODS_PATH}/large", None, {"Accept": "application/vnd.kubernetes.protobuf"}
    ),
    "delete 3,000 containers": lambda: Request("DELETE", f"{PODS_PATH}/doomed"),
    "review of 5,000 groups": lambda: Request(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "spec": {
                "user": "u",
                "groups": [f"g{number}" for number in range(5000)],
                "resourceAttributes": {"verb": "get", "resource": "pods"},
            }
        },
    ),
    "label selector of 5,000 values": lambda: Request(
        "GET", f"/api/v1/pods?labelSelector=a+notin+({','.join(str(number) for number in range(5000))})"
    ),
    "label selector of 2,000 conditions": lambda: Request(
        "GET", f"/api/v1/pods?labelSelector={quote(','.join(f'a!=v{number}' for number in range(2000)))}"
    ),
    "list all pods": lambda: Request("GET", "/api/v1/pods"),
    "list all pods as a table": lambda: Request("GET", "/api/v1/pods", None, {"Accept": TABLE}),
    "list metadata of all pods": lambda: Request(
        "GET", "/api/v1/pods", None, {"Accept": "application/json;as=PartialObjectMetadataList;v=v1"}
    ),
    "list all pods as protobuf": lambda: Request(
        "GET", "/api/v1/pods", None, {"Accept": "application/vnd.kubernetes.protobuf"}
    ),
    "list all pods as YAML": lambda: Request("GET", "/api/v1/pods", None, {"Accept": "application/yaml"}),
    "watch all pods as tables": lambda: Request(
        "GET", "/api/v1/pods?watch=1&timeoutSeconds=3", None, {"Accept": TABLE}
    ),
    "delete all pods of a namespace": lambda: Request("DELETE", PODS_PATH),
}


# -- the hostile client, a process of its own


def send(kubeconfig: Path, request: Request, *, anonymous: bool = False) -> tuple[int, float, int]:
    """Send a request; return its status, the seconds until its response was read, and the response."""
    config = find_config(kubeconfig, environ={})
    where = urlsplit(config.server)
    assert where.hostname is not None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(where.hostname, where.port, context=context, timeout=600)
    assert config.token is not None
    assert config.token.data is not None
    headers = {"Content-Type": "application/json", **request.headers}
    if not anonymous:
        headers["Authorization"] = f"Bearer {config.token.data.decode().strip()}"
    begin = time.perf_counter()
    connection.request(request.method, request.path, request.content(), headers)
    answer = connection.getresponse()
    size = 0
    while piece := answer.read(1 << 20):
        size += len(piece)
    taken = time.perf_counter() - begin
    connection.close()
    return answer.status, taken, size


def act_hostile(kubeconfig: Path, name: str, *, anonymous: bool) -> None:
    """Prepare a request, wait for a line on standard input, send it, and print the result."""
    request = HOSTILE[name]()
    request.content()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(send(kubeconfig, request, anonymous=anonymous)), flush=True)


# -- the other client


def quiet_pod(name: str) -> Tree:
    return {**make_pod(name), "metadata": {"name": name, "namespace": "quiet"}}


async def probe(client: Client, prefix: str, done: asyncio.Event) -> list[float]:
    """Get and create pods repeatedly; return the latencies in milliseconds."""
    delays: list[float] = []
    number = 0
    while not done.is_set() or number < 20:
        number += 1
        for call in (
            client.get_raw(PODS, "probe", "quiet"),
            client.create(PODS, quiet_pod(f"{prefix}-{number}")),
        ):
            begin = time.perf_counter()
            await call
            delays.append((time.perf_counter() - begin) * 1e3)
        await asyncio.sleep(0.01)
    return sorted(delays)


async def measure(
    client: Client, kubeconfig: Path, name: str, number: int, options: argparse.Namespace
) -> Tree:
    command = [sys.executable, "-m", "bench.hostile_requests", "--send", name]
    command += ["--kubeconfig", str(kubeconfig), *(["--anonymous"] if options.anonymous else [])]
    pipe = asyncio.subprocess.PIPE
    children = [
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        for _ in range(options.clients)
    ]
    lines = [cast(asyncio.StreamReader, child.stdout) for child in children]
    await asyncio.gather(*(line.readline() for line in lines))
    done = asyncio.Event()
    probing = asyncio.create_task(probe(client, f"p{number}", done))
    await asyncio.sleep(0.2)
    for child in children:
        cast(asyncio.StreamWriter, child.stdin).write(b"\n")
    answers = [json.loads(line) for line in await asyncio.gather(*(line.readline() for line in lines))]
    done.set()
    delays = await probing
    await asyncio.gather(*(child.wait() for child in children))
    return {
        "status": answers[0][0],
        "seconds": max(taken for _, taken, _ in answers),
        "bytes": sum(size for _, _, size in answers),
        "p50": delays[len(delays) // 2],
        "p99": delays[min(len(delays) - 1, len(delays) * 99 // 100)],
        "max": delays[-1],
        "requests": len(delays),
    }


async def prepare(client: Client, kubeconfig: Path) -> None:
    await client.call("POST", "/api/v1/namespaces", tree={"metadata": {"name": "quiet"}})
    await client.create(PODS, quiet_pod("probe"))
    for make in SETUP:
        status, _, _ = await asyncio.to_thread(send, kubeconfig, make())
        assert status == 201, (status, make().path, len(make().content()))


async def run(
    server: Server, names: list[str], earlier: dict[str, Tree], options: argparse.Namespace
) -> dict[str, Tree]:
    figures: dict[str, Tree] = {}
    compared = f" {'before':>8}" if earlier else ""
    print(
        f"{'request':<40} {'answer':>6} {'takes s':>8}   "
        f"others: {'p50':>7} {'p99':>8} {'max':>8} ms{compared}"
    )
    config = replace(find_config(server.kubeconfig, environ={}), timeout=600.0, attempts=1)
    async with Client.connect(config) as client:
        await prepare(client, server.kubeconfig)
        for number, name in enumerate(names):
            try:
                figure = figures[name] = await measure(client, server.kubeconfig, name, number, options)
            except ApiError as error:
                print(f"{name:<40} another client was refused: {error}")
                continue
            before = earlier.get(name)
            shown = f" {before['max']:>8.0f}" if before else ""
            print(
                f"{name:<40} {figure['status']:>6} {figure['seconds']:>8.2f}           "
                f"{figure['p50']:>7.1f} {figure['p99']:>8.1f} {figure['max']:>8.1f}   {shown}",
                flush=True,
            )
    print(f"memory of the server: {server.memory()} MiB")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="Requests whose name has this.")
    parser.add_argument("--objects", type=int, default=100_000, help="Pods to be listed and deleted.")
    parser.add_argument("--clients", type=int, default=1, help="Clients that send the request at once.")
    parser.add_argument("--anonymous", action="store_true", help="Send it without credentials.")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        act_hostile(options.kubeconfig, options.send, anonymous=options.anonymous)
        return
    names = [name for name in HOSTILE if not options.only or any(text in name for text in options.only)]
    earlier = json.loads(options.compare.read_text()) if options.compare else {}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        (Path(directory) / "data").mkdir()
        fill(Path(directory) / "data" / "store.db", 0, options.objects)
        server = Server(Path(directory))
        server.start()
        try:
            figures = asyncio.run(run(server, names, earlier, options))
        finally:
            server.stop()
    if options.save:
        options.save.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
