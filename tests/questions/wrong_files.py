"""Files that are not a cluster dump."""

from __future__ import annotations

import gzip
import json
from functools import cache

import yaml

from tests.dumps import big_cluster


@cache
def read_whole(form: str) -> bytes:
    tree = {"apiVersion": "v1", "kind": "List", "items": big_cluster(2)}
    return json.dumps(tree, indent=1).encode() if form == "json" else yaml.dump(tree, sort_keys=True).encode()


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(["apiVersion: v1", "kind: Pod", "metadata: {name: bomb}", *lines]).encode()


def _deep(opening: bytes, closing: bytes) -> bytes:
    return b'{"kind": "Pod", "apiVersion": "v1", "metadata": ' + opening * 100_000 + closing * 100_000 + b"}"


WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t\n", "is empty"),
    "comments": (b"# nothing\n---\n# at all\n", "no objects found in"),
    "text": (b"hello there\n", "an object must be a mapping"),
    "number": (b"7\n", "an object must be a mapping"),
    "no kind": (b"a: b\n", "kind is missing"),
    "list": (b"- a\n- b\n", "an object must be a mapping"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00\x00" * 50, "is not a text file"),
    "half a character": (b"kind: Pod\nmetadata: {name: \xff\xfe\x80}\n", "UTF-8"),
    "truncated json": (read_whole("json")[:5000], "it may be truncated"),
    "truncated yaml": (read_whole("yaml")[:5003], "the list may be truncated"),
    "truncated yaml list": (b"apiVersion: v1\nitems:\n- a: {b: [", "line "),
    "truncated gzip": (gzip.compress(read_whole("yaml"))[:200], "unexpected end of file"),
    "broken gzip": (b"\x1f\x8b\x08" + b"x" * 100, "cannot be unpacked"),
    "zip that is none": (b"PK\x03\x04" + b"x" * 100, "cannot be unpacked"),
    "two keys": (b"kind: Pod\nkind: Node\n", "'kind' is given twice"),
    "aliases": (_bomb(), "aliases expand to more than"),
    "unknown alias": (b"kind: *gone\n", "alias"),
    "deep json": (_deep(b"[", b"]"), "nested too deeply"),
    "deep yaml": (b"kind: Pod\nspec: " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
    "wrong field": (
        b"kind: Pod\napiVersion: v1\nmetadata: {name: p, uid: u}\nspec: 3\n",
        "Pod p: spec: must be",
    ),
    "tab": (b"kind: Pod\nmetadata:\n\tname: x\n", "line 3"),
    "html": (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "an object must be a mapping"),
    "error of kubectl": (b"Error from server (Forbidden): nodes is forbidden\n", ""),
    "template": (b"kind: Pod\nmetadata: {name: {{ .Values.name }}}\n", "line 2"),
    "items are a map": (b"kind: List\napiVersion: v1\nitems: {a: b}\n", ""),
    "items are texts": (
        b"kind: List\napiVersion: v1\nitems: [a, b]\n",
        "items[0]: an object must be a mapping",
    ),
    "null metadata": (b"kind: Node\napiVersion: v1\nmetadata:\n", "Node: metadata.name: must not be empty"),
    "no name": (b"kind: Pod\napiVersion: v1\nmetadata: {uid: u}\n", "metadata.name: must not be empty"),
    "half a character in JSON": (
        b'{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "\\ud800 and more"}}',
        "surrogate",
    ),
    "other kinds": (
        b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: s}\n---\nkind: Pod\napiVersion: wrong/v7\n",
        "none of the 2 objects in",
    ),
}
