"""The state of one write while it is being prepared.

Owns the working copies (trees that may be changed, views decoded from them on demand) and the small steps
that several endpoints share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.api.meta import Wire
from plimsoll.apiserver.validation.claim_status_authorization import Caller
from plimsoll.apiserver.validation.disabled_fields import drop_disabled
from plimsoll.apiserver.validation.field_errors import Problem
from plimsoll.apiserver.validation.metadata_view import Head, WholeObjectMeta
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree

T = TypeVar("T", bound=Wire)

_LAST_GENERATION = 2**63 - 1


def look(tree: Tree, view: type[T]) -> T:
    """A view of a canonical tree."""
    return codec.look(tree, view)


def look_at_metadata(tree: Tree) -> WholeObjectMeta:
    return look({"metadata": tree.get("metadata", {})}, Head).metadata


@dataclass(slots=True)
class Job(Generic[T]):
    """A write: the new tree, the stored one (empty on create), and what the rules depend on."""

    view: type[T]
    creates: bool
    tree: Tree
    old_tree: Tree
    gates: Gates
    now: str
    namespace_labels: Mapping[str, str] | None
    caller: Caller | None
    api_version: str = ""
    _prepared: bool = field(default=False, init=False)
    _new: T | None = field(default=None, init=False)
    _old: T | None = field(default=None, init=False)
    _metadata: WholeObjectMeta | None = field(default=None, init=False)
    _old_metadata: WholeObjectMeta | None = field(default=None, init=False)

    def finish(self) -> None:
        """The tree is as it will be stored: checks do not change it, so each view of it is made once."""
        self._prepared, self._new, self._metadata = True, None, None

    def decode(self) -> T:
        """A view of the new object as it is now."""
        if self._new is None or not self._prepared:
            self._new = look(self.tree, self.view)
        return self._new

    @property
    def old(self) -> T:
        """A view of the stored object."""
        if self._old is None:
            self._old = look(self.old_tree, self.view)
        return self._old

    def metadata(self) -> WholeObjectMeta:
        if self._metadata is None or not self._prepared:
            self._metadata = look_at_metadata(self.tree)
        return self._metadata

    def old_metadata(self) -> WholeObjectMeta:
        if self._old_metadata is None:
            self._old_metadata = look_at_metadata(self.old_tree)
        return self._old_metadata

    def meta_tree(self) -> Tree:
        return cast(Tree, self.tree.setdefault("metadata", {}))

    def take_back(self, *names: str) -> None:
        """Give fields of the object their stored value again."""
        for name in names:
            self.tree.pop(name, None)
            if name in self.old_tree:
                self.tree[name] = copy_tree(self.old_tree[name])

    def drop(self, kind: str, subresource: str = "") -> None:
        """Take out what belongs to switched-off gates."""
        drop_disabled((kind, subresource), self.tree, None if self.creates else self.old_tree, self.gates)

    def set_generation(self, generation: int) -> None:
        self.meta_tree()["generation"] = min(generation, _LAST_GENERATION)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What one kind of write does after decoding and defaulting: prepare the tree, then check it.

    A kind with more than one shape has all its trees brought into one by `inward`, and the result back into
    the shape it came in by `outward`. `restores` names fields that `prepare` gives their stored value again,
    whatever the request says.
    """

    view: type[Wire]
    prepare: Callable[[Job[Any]], None]
    check: Callable[[Job[Any]], Iterable[Problem]]
    warn: Callable[[Job[Any]], Iterable[str]] = lambda job: ()
    inward: Callable[[Any], Any] | None = None
    outward: Callable[[Any], Any] | None = None
    restores: tuple[str, ...] = ()
