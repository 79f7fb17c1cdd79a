"""Context of one write while it is prepared and validated, and the strategies that run in it.

Holds the working copies (trees that may be modified, views decoded from them on demand) and the steps that
several strategies share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.api.meta import Wire
from plimsoll.apiserver.registry.metadata_view import FullObjectMeta, PartialObjectMetadata
from plimsoll.apiserver.validation.claim_status_authorization import Caller
from plimsoll.apiserver.validation.disabled_fields import drop_disabled_fields
from plimsoll.apiserver.validation.field_errors import FieldError
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree

T = TypeVar("T", bound=Wire)

_GENERATION_MAX = 2**63 - 1


def decode_view(tree: Tree, view: type[T]) -> T:
    """Decode a canonical tree into a view."""
    return codec.convert_fast(tree, view)


def decode_metadata(tree: Tree) -> FullObjectMeta:
    """Decode the full metadata of an object."""
    return decode_view({"metadata": tree.get("metadata", {})}, PartialObjectMetadata).metadata


@dataclass(slots=True)
class WriteContext(Generic[T]):
    """One write: the new tree, the stored one (empty on create), and what the rules depend on."""

    view: type[T]
    is_create: bool
    tree: Tree
    old_tree: Tree
    gates: Gates
    now: str
    namespace_labels: Mapping[str, str] | None
    caller: Caller | None
    api_version: str = ""
    _frozen: bool = field(default=False, init=False)
    _new: T | None = field(default=None, init=False)
    _old: T | None = field(default=None, init=False)
    _metadata: FullObjectMeta | None = field(default=None, init=False)
    _old_metadata: FullObjectMeta | None = field(default=None, init=False)

    def freeze(self) -> None:
        """End the preparation: the tree no longer changes, so each view of it is decoded once."""
        self._frozen, self._new, self._metadata = True, None, None

    @property
    def new(self) -> T:
        """View of the new object in its current state."""
        if self._new is None or not self._frozen:
            self._new = decode_view(self.tree, self.view)
        return self._new

    @property
    def old(self) -> T:
        """View of the stored object."""
        if self._old is None:
            self._old = decode_view(self.old_tree, self.view)
        return self._old

    @property
    def metadata(self) -> FullObjectMeta:
        """Metadata of the new object in its current state."""
        if self._metadata is None or not self._frozen:
            self._metadata = decode_metadata(self.tree)
        return self._metadata

    @property
    def old_metadata(self) -> FullObjectMeta:
        """Metadata of the stored object."""
        if self._old_metadata is None:
            self._old_metadata = decode_metadata(self.old_tree)
        return self._old_metadata

    def metadata_tree(self) -> Tree:
        """Return the tree of the new object's metadata, to be modified in place."""
        return cast(Tree, self.tree.setdefault("metadata", {}))

    def restore_fields(self, *names: str) -> None:
        """Reset fields of the object to their stored values."""
        for name in names:
            self.tree.pop(name, None)
            if name in self.old_tree:
                self.tree[name] = copy_tree(self.old_tree[name])

    def share_fields(self, *names: str) -> None:
        """Reset fields of the object to their stored values without a copy: nothing may modify them."""
        for name in names:
            self.tree.pop(name, None)
            if name in self.old_tree:
                self.tree[name] = self.old_tree[name]

    def drop_disabled_fields(self, kind: str, subresource: str = "") -> None:
        """Drop the fields of disabled feature gates."""
        drop_disabled_fields(
            (kind, subresource), self.tree, None if self.is_create else self.old_tree, self.gates
        )

    def set_generation(self, generation: int) -> None:
        """Set metadata.generation, at most the largest int64."""
        self.metadata_tree()["generation"] = min(generation, _GENERATION_MAX)


@dataclass(frozen=True, slots=True)
class WriteStrategy:
    """Handling of one operation on one kind after defaulting: prepare the tree, then validate it.

    A kind with several wire shapes is converted into one of them by `to_internal`, and the result back into
    the shape of the request by `from_internal`. `reset_fields` names the fields that `prepare` resets to
    their stored values, whatever the request contains.
    """

    view: type[Wire]
    prepare: Callable[[WriteContext[Any]], None]
    validate: Callable[[WriteContext[Any]], Iterable[FieldError]]
    warn: Callable[[WriteContext[Any]], Iterable[str]] = lambda write: ()
    to_internal: Callable[[Any], Any] | None = None
    from_internal: Callable[[Any], Any] | None = None
    reset_fields: tuple[str, ...] = ()
