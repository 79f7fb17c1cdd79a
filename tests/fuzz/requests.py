"""Random API requests, most of them for existing objects."""

from __future__ import annotations

import base64
import copy
import json
from random import Random
from typing import Any

import yaml

from plimsoll.apiserver.auth.users import ADMIN, CONTROLLERS, MASTERS, NODES, SCHEDULER, User
from plimsoll.apiserver.protobuf import encode_body
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES, SUBRESOURCES, find_resource_by_kind
from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.errors import InputError
from tests.fuzz.patches import grow_patch
from tests.fuzz.templates import TEMPLATES
from tests.fuzz.trees import NUMBERS, WORDS, TreeGenerator

USERS = (
    *(User("root", groups=(MASTERS,)),) * 40,
    *(ADMIN, CONTROLLERS, SCHEDULER),
    User("system:node:n", groups=(NODES,)).as_authenticated(),
    User("driver", groups=("plimsoll:drivers",)).as_authenticated(),
    User("system:anonymous", groups=("system:unauthenticated",)),
    User("other").as_authenticated(),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
ODD_METHODS = ("OPTIONS", "get", "PROPFIND", "")
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
ACCEPTS = (
    *(
        "",
        JSON,
        YAML,
        PROTOBUF,
        "*/*",
        f"{TABLE},{JSON}",
        f"{PROTOBUF},{JSON}",
        "text/html",
        ";;;",
        ",",
        "a/b;q=x",
    ),
    *(
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        TABLE.replace("v1", "v9"),
        "*/*;q=0",
        "é",
    ),
    *(f"{YAML};as=Table;g=meta.k8s.io;v=v1", "application/json;stream=watch", "application/*;q=0.5,text/*"),
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
)
PLACES = (
    *("/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/resource.k8s.io/v1", "/version"),
    *(
        "/healthz",
        "/readyz",
        "/livez",
        "/readyz/etcd",
        "/readyz/nothing",
        "/openapi/v2",
        "/openapi/v3",
        "/metrics",
    ),
    *(
        "/openapi/v3/api/v1",
        "/openapi/v3/apis/resource.k8s.io/v1",
        "/openapi/v9",
        "/api/v2",
        "/apis/no/v1",
        "//",
    ),
    *(
        "/api/v1/watch/pods",
        "/api/v1/watch",
        "/api/v1/namespaces/default/pods/p/log",
        "/api/v1/pods/",
        "/apis/x",
    ),
    *("/.well-known/openid-configuration", "/openid/v1/jwks", "/logs", "/api/v1/nodes/n/proxy/x", "*", ""),
    "/api/v1/namespaces//pods",
)
QUERIES: dict[str, tuple[str, ...]] = {
    "watch": ("1", "true", "false", "x", ""),
    "limit": ("1", "2", "0", "-1", "500", "x", "99999999999999999999"),
    "continue": ("x", "e30", "AAAA", "", "é", "eyJydiI6MX0"),
    "resourceVersion": ("0", "1", "5", "x", "-1", "999999999999", "", "1.5"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x", ""),
    "sendInitialEvents": ("true", "false", "x"),
    "allowWatchBookmarks": ("true", "x"),
    "timeoutSeconds": ("0", "1", "-1", "x", "99999999999"),
    "labelSelector": (
        "a=b",
        "a in (b,c)",
        "!a",
        "a",
        "a>1",
        "a in (",
        ",",
        "=",
        "a=b,",
        "é",
        "(" * 50,
        "a!=b,c notin (d)",
    ),
    "fieldSelector": (
        "metadata.name=a",
        "spec.nodeName=n",
        "status.phase!=x",
        "x=y",
        "a",
        "=",
        "metadata.name=\\",
        "\\",
    ),
    "dryRun": ("All", "x", ""),
    "fieldManager": ("me", "", "x" * 200, "\n", "é"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
    "force": ("true", "false", "x"),
    "gracePeriodSeconds": ("0", "5", "-1", "x", "99999999999999"),
    "propagationPolicy": ("Foreground", "Orphan", "Background", "x"),
    "orphanDependents": ("true", "false", "x"),
    "includeObject": ("Object", "None", "Metadata", "x"),
    "pretty": ("1",),
    "verbose": ("1",),
}


class Caller:
    """Generator of requests for a store."""

    def __init__(self, dice: Random, store: Store) -> None:
        self.dice = dice
        self.grower = TreeGenerator(dice)
        self._store = store
        self._stored = [row for row in RESOURCES if row.is_stored]
        self._kinds = [row for row in self._stored if row.key in TEMPLATES] * 4 + self._stored
        self.tokens: list[str] = []

    def next(self) -> ApiRequest:
        dice = self.dice
        self.grower.wrong = dice.choice((0.0, 0.003, 0.01, 0.05))
        user = dice.choice(USERS)
        what = dice.random()
        if what < 0.08:
            method = dice.choice((*METHODS, "GET", "GET", *ODD_METHODS))
            return ApiRequest(
                method, self._odd_path(), user, self._query(), self._headers(), self._odd_body()
            )
        if what < 0.13:
            return self._ask(user)
        return self._about(dice.choice(self._kinds), user)

    # -- mostly valid requests

    def _about(self, row: Resource, user: User) -> ApiRequest:
        dice = self.dice
        version = dice.choice(row.versions)
        schema = schema_for(row.group, version, row.kind)
        key, tree = self._pick(row)
        tree = {**tree, "apiVersion": row.api_version(version)}
        method, subresource = self._method(row, key)
        named = method in ("PUT", "PATCH") or bool(subresource) or (method != "POST" and dice.random() < 0.8)
        path = _path(row, version, key, named, subresource, everywhere=dice.random() < 0.2)
        if dice.random() < 0.02:
            path = self._spoil(path)
        headers, body = self._headers(), b""
        if method == "PATCH":
            kind = dice.choice(tuple(PATCHES))
            headers["content-type"] = PATCHES[kind]
            body = self._encode(
                grow_patch(self.grower, kind, tree, schema), YAML if kind == "apply" else JSON
            )
            query = self._query(3)
            if kind == "apply" and dice.random() < 0.9:
                query.append(("fieldManager", dice.choice(("me", "you", "kubectl"))))
            return ApiRequest(method, path, user, query, headers, body)
        if method == "DELETE":
            if dice.random() < 0.5:
                body = self._encode(self._delete_options(tree), JSON)
            return ApiRequest(method, path, user, self._query(3), headers, body)
        if method in ("POST", "PUT"):
            sent = self._sent(row, version, subresource, key, tree, method)
            media = dice.choice((JSON, JSON, JSON, YAML, PROTOBUF))
            headers["content-type"] = media if dice.random() < 0.97 else dice.choice(("", "text/plain", "x"))
            body = self._encode(sent, media)
        return ApiRequest(method, path, user, self._query(), headers, body)

    def _method(self, row: Resource, key: ObjectKey) -> tuple[str, str]:
        """Return the method for an object, and the subresource."""
        dice = self.dice
        if self._store.get(key) is None and dice.random() < 0.9:
            return "POST", ""
        subresource = dice.choice(row.subresources) if row.subresources and dice.random() < 0.25 else ""
        if subresource and dice.random() < 0.95:
            verbs = {"get": "GET", "patch": "PATCH", "update": "PUT", "create": "POST", "delete": "DELETE"}
            return verbs[dice.choice(SUBRESOURCES[subresource].verbs)], subresource
        return dice.choice((*("GET", "POST", "PUT", "PUT") * 2, *("PATCH",) * 8, "DELETE")), subresource

    def _pick(self, row: Resource) -> tuple[ObjectKey, Any]:
        """Return an existing object, or one that could exist."""
        dice = self.dice
        there = self._store.list(row.storage_key).items
        if there and dice.random() < 0.8:
            stored = dice.choice(there)
            return stored.key, json.loads(stored.raw)
        namespace = (
            dice.choice(("default", "default", "default", "other", "no-such")) if row.namespaced else ""
        )
        return ObjectKey(
            row.storage_key, namespace, dice.choice(("a", "b", "c", "d", "n", "p", "t"))
        ), self._made(row)

    def _made(self, row: Resource) -> Any:
        template = TEMPLATES.get(row.key)
        if template and self.dice.random() < 0.7:
            return {"kind": row.kind, "metadata": {}, **copy.deepcopy(template[3])}
        schema = schema_for(row.group, row.versions[0], row.kind)
        tree = self.grower.value(schema)
        return {**(tree if isinstance(tree, dict) else {}), "kind": row.kind, "metadata": {}}

    def _sent(
        self, row: Resource, version: str, subresource: str, key: ObjectKey, tree: Any, method: str
    ) -> Any:
        dice = self.dice
        other = SUBRESOURCES[subresource] if subresource else None
        if other is not None and other.group is not None:
            found = find_resource_by_kind(other.group, other.version, other.kind)
            schema = schema_for(other.group, other.version, other.kind)
            head = {"kind": other.kind, "apiVersion": f"{other.group}/{other.version}".lstrip("/")}
            assert found is None or found.kind == other.kind
            made = self.grower.value(schema)
            return {**made, **head} if isinstance(made, dict) else made
        schema = schema_for(row.group, version, row.kind)
        if method == "POST":
            metadata = {
                name: value
                for name, value in (tree.get("metadata") or {}).items()
                if name in ("labels", "annotations", "finalizers", "ownerReferences")
            }
            tree = {**tree, "metadata": metadata}
            metadata["name"] = dice.choice(("a", "b", "c", "d", "e", "f", "p", "n", "t"))
            if dice.random() < 0.1:
                metadata["generateName"] = self.grower.text()
                metadata.pop("name")
        elif not tree["metadata"].get("name"):
            tree["metadata"] = {"name": key.name}
        return self.grower.change(tree, schema, dice.choice((0, 0, 1, 1, 2, 5)))

    def _delete_options(self, tree: Any) -> Any:
        dice = self.dice
        metadata = tree.get("metadata") or {}
        options = {
            "kind": dice.choice(("DeleteOptions", "DeleteOptions", "Pod", None)),
            "gracePeriodSeconds": dice.choice((0, 0, 1, -1, None, "x", 2**40)),
            "propagationPolicy": dice.choice(("Foreground", "Orphan", "Background", "", None, 5)),
            "preconditions": dice.choice(
                (None, {"uid": metadata.get("uid")}, {"resourceVersion": "1"}, {"uid": 5}, [])
            ),
            "dryRun": dice.choice((None, ["All"], ["x"], "All", [5])),
            "orphanDependents": dice.choice((None, True, "x")),
        }
        return {name: options[name] for name in dice.sample(sorted(options), dice.randrange(4))}

    def _ask(self, user: User) -> ApiRequest:
        """Return a review, binding or token request."""
        dice = self.dice
        row = dice.choice([row for row in RESOURCES if not row.is_stored])
        schema = schema_for(row.group, row.versions[0], row.kind)
        tree = self.grower.value(schema)
        if isinstance(tree, dict):
            tree |= {"kind": row.kind, "apiVersion": row.api_version()}
        path = _path(row, row.versions[0], ObjectKey(row.key, "default", "x"), False, "", everywhere=False)
        return ApiRequest("POST", path, user, self._query(), self._headers(), self._encode(tree, JSON))

    # -- parts of a request

    def _query(self, most: int = 2) -> list[tuple[str, str]]:
        dice = self.dice
        query = []
        for _ in range(dice.choice((0, 0, 0, 1, most))):
            name = dice.choice(tuple(QUERIES))
            value = dice.choice(QUERIES[name])
            if name == "continue" and self.tokens and dice.random() < 0.7:
                value = dice.choice(self.tokens)
            if name == "fieldSelector" and dice.random() < 0.1:
                value = self.grower.text()
            query.append((name, value))
        return query

    def _headers(self) -> dict[str, str]:
        dice = self.dice
        headers = {"accept": dice.choice(ACCEPTS)} if dice.random() < 0.2 else {}
        if dice.random() < 0.2:
            headers["user-agent"] = dice.choice(("kubectl/v1.36", "", "é\u0000", "x" * 500, "a/b/c"))
        return headers

    def _encode(self, tree: Any, media: str) -> bytes:
        dice = self.dice
        if dice.random() < 0.02:
            return self._odd_body()
        if media == PROTOBUF:
            try:
                body = encode_body(tree)
            except (InputError, RecursionError, UnicodeError):
                body = b"k8s\x00" + dice.randbytes(dice.randrange(60))
        elif media == YAML and dice.random() < 0.5:
            body = yaml.safe_dump(tree).encode("utf-8", "surrogatepass")
        else:
            body = json.dumps(tree, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
        if dice.random() < 0.03 and body:
            spoiled = bytearray(body)
            for _ in range(dice.choice((1, 1, 5))):
                spoiled[dice.randrange(len(spoiled))] = dice.randrange(256)
            body = bytes(spoiled)
        return body

    def _odd_body(self) -> bytes:
        dice = self.dice
        deep = dice.choice((100, 5_000, 100_000))
        return dice.choice(
            (
                b"",
                b"null",
                b"[]",
                b"5",
                b'"x"',
                b"{}{}",
                b"{",
                b"\xff\xfe",
                b"\x00" * 10,
                b'{"metadata":{"name":"\\ud800"}}',
                b'{"metadata":{"name":"a\\u0000"}}',
                b'{"a":1,"a":2}',
                b"[" * deep,
                b"[" * deep + b"]" * deep,
                b'{"a":' * deep + b"1" + b"}" * deep,
                b'{"a":1' + b"0" * 5000 + b"}",
                b'{"a":1e' + b"9" * 400 + b"}",
                b"k8s\x00",
                b"k8s\x00" + dice.randbytes(40),
                b"&a [*a]",
                b"a: &a [x]\nb: [*a, *a]\n---\nc: 1",
                b"!!python/object/apply:os.system ['true']",
                b"? [a]\n: b",
                b"\x1f\x8b\x08\x00garbage",
                dice.randbytes(dice.randrange(200)),
            )
        )

    def _odd_path(self) -> str:
        dice = self.dice
        if dice.random() < 0.6:
            return dice.choice(PLACES)
        return "/" + "/".join(
            dice.choice((*WORDS, "api", "apis", "v1", "namespaces", "pods")) for _ in range(dice.randrange(8))
        )

    def _spoil(self, path: str) -> str:
        parts = path.split("/")
        place = self.dice.randrange(len(parts))
        parts[place] = self.dice.choice((*WORDS, "x" * 5000, str(self.dice.choice(NUMBERS)), ""))
        return "/".join(parts)


def _path(
    row: Resource, version: str, key: ObjectKey, named: bool, subresource: str, *, everywhere: bool
) -> str:
    root = f"/apis/{row.group}/{version}" if row.group else f"/api/{version}"
    parts = [root]
    if row.namespaced and (named or not everywhere):
        parts += ["namespaces", key.namespace]
    parts.append(row.plural)
    if named:
        parts.append(key.name)
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def token(revision: int, namespace: str, name: str) -> str:
    """Return a continue token that a client could forge."""
    text = json.dumps({"rv": revision, "ns": namespace, "name": name}).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")
