"""JSON patch (RFC 6902) as the Kubernetes API implements it.

The tree and the operations are never modified, invalid operations raise PatchError, and the work is bounded
(at most 10,000 operations and 3 MiB of copies).

The API server is more lenient than the RFC, and so is this: `replace` may name an absent key, an absent key
tests equal to null and is copied as null, negative indices count from the end, and anything before the first
slash of a pointer is ignored.
"""

from __future__ import annotations

import re
from typing import Any

from plimsoll.api.codec import decode_tree, encode
from plimsoll.api.quantity import INT64_MAX, INT64_MIN
from plimsoll.apiserver.patch.recursion_guard import guard_recursion
from plimsoll.errors import PatchError, PatchTestError

MAX_OPERATIONS = 10_000
MAX_COPY_BYTES = 3 * 1024 * 1024
#: Far above the limit for objects (apiserver/validation/object_trees.py), well within the stack limit.
MAX_DEPTH = 400

_INDEX = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_MISSING = "missing value"
_BAD_INDEX = "invalid index referenced"


@guard_recursion
def apply_json_patch(tree: Any, operations: Any) -> Any:
    """Return the tree with all operations applied in order; all or nothing."""
    patch = _Patch(tree)
    for operation in read_operations(operations):
        patch.apply(operation)
    _check_depth(patch.root)
    return patch.root


def read_operations(operations: Any) -> list[dict[str, Any]]:
    """Validate the outer form of a patch: a list of objects with strings where strings are expected."""
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations", malformed=True)
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}",
            code=413,
        )
    for number, operation in enumerate(operations):
        if operation is None:
            continue
        if not isinstance(operation, dict):
            raise PatchError(f"operation {number} of the JSON patch is not an object", malformed=True)
        for name in ("op", "path", "from"):
            if not isinstance(operation.get(name, ""), str | None):
                raise PatchError(f"operation {number} of the JSON patch: {name} is no text", malformed=True)
    return [operation or {} for operation in operations]


class _Patch:
    """The document being patched: containers are copied on first modification."""

    def __init__(self, tree: Any) -> None:
        self.root = tree
        self.copied = 0
        # Containers created here, by id: these may be modified in place. Keeping them alive keeps the
        # ids unique.
        self.own: dict[int, Any] = {}

    def apply(self, operation: dict[str, Any]) -> None:
        kind = operation.get("op") or "unknown"
        if kind == "add":
            path = _text(operation, "path", "add")
            target = self.find(
                path, f'add operation does not apply: doc is missing path: "{path}": {_MISSING}'
            )
            self.add(target, operation.get("value"), f"error in add for path: '{path}'")
        elif kind == "remove":
            path = _text(operation, "path", "remove")
            target = self.find(
                path, f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}'
            )
            self.remove(target, f"error in remove for path: '{path}'")
        elif kind == "replace":
            self.replace(_text(operation, "path", "replace"), operation.get("value"))
        elif kind == "move":
            self.move(_text(operation, "from", "move"), operation)
        elif kind == "copy":
            self.copy(_text(operation, "from", "copy"), operation)
        elif kind == "test":
            self.test(_text(operation, "path", "test"), operation.get("value"))
        else:
            raise PatchError(f"Unexpected kind: {kind}")

    def replace(self, path: str, value: Any) -> None:
        if path == "":
            if not isinstance(value, dict | list):
                raise PatchError("replace operation value must be object or array")
            self.root = value
            return
        container, key = self.find(
            path, f"replace operation does not apply: doc is missing path: {path}: {_MISSING}"
        )
        if isinstance(container, dict):
            container[key] = value
            return
        index = _existing(container, key)
        if isinstance(index, str):
            raise PatchError(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}")
        container[index] = value

    def move(self, source: str, operation: dict[str, Any]) -> None:
        target = self.find(
            source, f"move operation does not apply: doc is missing from path: {source}: {_MISSING}"
        )
        failed = f"error in move for path: '{target[1]}'"
        value = _get(target, failed)
        self.remove(target, failed)
        path = _text(operation, "path", "move")
        target = self.find(
            path, f"move operation does not apply: doc is missing destination path: {path}: {_MISSING}"
        )
        self.add(target, value, f"error in move for path: '{path}'")

    def copy(self, source: str, operation: dict[str, Any]) -> None:
        target = self.find(
            source, f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}"
        )
        value = _get(target, f"error in copy for from: '{source}'")
        path = _text(operation, "path", "copy")
        target = self.find(
            path, f"copy operation does not apply: doc is missing destination path: {path}: {_MISSING}"
        )
        if value is not None:
            raw = encode(value)
            self.copied += len(raw)
            if self.copied > MAX_COPY_BYTES:
                raise PatchError(
                    f"Unable to complete the copy, the accumulated size increase of copy is {self.copied}, "
                    f"exceeding the limit {MAX_COPY_BYTES}"
                )
            value = decode_tree(raw)  # a separate copy: later operations may modify either
        self.add(target, value, "error while adding value during copy")

    def test(self, path: str, value: Any) -> None:
        if path == "":
            found = self.root
        else:
            target = self.find(path, f"test operation does not apply: is missing path: {path}: {_MISSING}")
            found = _get(target, f"error in test for path: '{path}'")
        if not equal(found, value):
            raise PatchTestError(f"testing value {path} failed: test failed")

    def add(self, target: tuple[Any, str], value: Any, failed: str) -> None:
        container, key = target
        if isinstance(container, dict):
            container[key] = value
        elif key == "-":
            container.append(value)
        else:
            index = _index(key)
            if index is None:
                raise PatchError(f"{failed}: value was not a proper array index: '{key}'")
            size = len(container) + 1
            if not -size <= index < size:
                raise PatchError(f"{failed}: Unable to access invalid index: {index}: {_BAD_INDEX}")
            container.insert(index + size if index < 0 else index, value)

    def remove(self, target: tuple[Any, str], failed: str) -> None:
        container, key = target
        if isinstance(container, dict):
            if key not in container:
                raise PatchError(f"{failed}: Unable to remove nonexistent key: {key}: {_MISSING}")
            del container[key]
            return
        index = _existing(container, key)
        if isinstance(index, str):
            raise PatchError(f"{failed}: {index}")
        del container[index]

    def find(self, path: str, missing: str) -> tuple[Any, str]:
        """Return the container a pointer ends in, ready to be modified, and the last token."""
        tokens = path.split("/")
        if len(tokens) < 2:
            raise PatchError(missing)
        here = self.root = self.owned(self.root, missing)
        for token in tokens[1:-1]:
            token = _unescape(token)
            if isinstance(here, dict):
                child = self.owned(here.get(token), missing)
                here[token] = child
            else:
                index = _existing(here, token)
                if isinstance(index, str):
                    raise PatchError(missing)
                child = self.owned(here[index], missing)
                here[index] = child
            here = child
        return here, _unescape(tokens[-1])

    def owned(self, container: Any, missing: str) -> Any:
        """Return the container itself if it was created here, else a copy of it."""
        if id(container) in self.own:
            return container
        if isinstance(container, dict):
            mine: Any = dict(container)
        elif isinstance(container, list):
            mine = list(container)
        else:
            raise PatchError(missing)
        self.own[id(mine)] = mine
        return mine


def _check_depth(tree: Any) -> None:
    """Reject a tree that moves and copies have nested too deeply to be walked."""
    level = [tree] if isinstance(tree, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for node in level
            for inner in (node.values() if isinstance(node, dict) else node)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise PatchError("the patched object is nested too deeply")


def equal(left: Any, right: Any) -> bool:
    """Report whether two JSON values are equal, distinguishing booleans from numbers."""
    if left is right:
        return True
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(equal(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equal, left, right))
    return left.__class__ is right.__class__ and bool(left == right)


def _text(operation: dict[str, Any], name: str, kind: str) -> str:
    value = operation.get(name)
    if value is None:
        raise PatchError(f"{kind} operation failed to decode {name}: {_MISSING}")
    assert isinstance(value, str)  # validated by read_operations
    return value


def _unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~") if "~" in token else token


def _index(token: str) -> int | None:
    if not _INDEX.fullmatch(token):
        return None
    index = int(token)
    return index if INT64_MIN <= index <= INT64_MAX else None


def _existing(container: list[Any], token: str) -> int | str:
    """Return the index of an existing element, or raise PatchError."""
    index = _index(token)
    if index is None:
        return f"value was not a proper array index: '{token}'"
    if not -len(container) <= index < len(container):
        return f"Unable to access invalid index: {index}: {_BAD_INDEX}"
    return index + len(container) if index < 0 else index


def _get(target: tuple[Any, str], failed: str) -> Any:
    container, key = target
    if isinstance(container, dict):
        return container.get(key)
    index = _existing(container, key)
    if isinstance(index, str):
        raise PatchError(f"{failed}: {index}")
    return container[index]
