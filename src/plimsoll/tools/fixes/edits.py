"""`Edit`: change of one object as data, so that a fix can be proven in memory and be applied by others.

Edits of a fix do not depend on each other: list items are added and removed by value, and fields are named by
a path that no other edit moves.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from msgspec.structs import replace

from plimsoll.api.codec import to_tree
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import is_owned_by
from plimsoll.tools.claim_users import claims_of
from plimsoll.tools.cluster_state.changes import ChangeLog
from plimsoll.tools.cluster_state.objects import key_of

#: Names of JSON fields, keys of maps, and positions in lists.
FieldPath = tuple[str | int, ...]


class EditKind(Enum):
    SET = "set"  #: a field or the key of a map; a key is removed by the value None
    ADD = "add"  #: an item to a list
    REMOVE = "remove"  #: an item from a list
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Edit:
    """Change of an object."""

    edit: EditKind
    kind: type[Any]
    namespace: str
    name: str
    path: FieldPath = ()
    value: Any = None
    like: str = ""  #: name of the object that is copied

    @property
    def target(self) -> Hashable:
        """The thing that is changed: a fix changes a thing once."""
        item = repr(self.value) if self.edit in (EditKind.ADD, EditKind.REMOVE) else ""
        return self.kind, self.namespace, self.name, self.path, item

    def as_json(self) -> dict[str, Any]:
        found = {"edit": self.edit.value, "kind": self.kind.__name__, "name": self.name}
        found |= {"namespace": self.namespace} if self.namespace else {}
        if self.like:
            return found | {"like": self.like}
        if self.edit is EditKind.DELETE:
            return found
        if self.edit is EditKind.CREATE:
            return found | {"value": to_tree(self.value[0])}
        return found | {"path": [*self.path], "value": to_tree(self.value)}


def set_field(thing: Any, value: Any, *path: str | int) -> Edit:
    return Edit(EditKind.SET, type(thing), *key_of(thing), path, value)


def add_item(thing: Any, value: Any, *path: str | int) -> Edit:
    return Edit(EditKind.ADD, type(thing), *key_of(thing), path, value)


def remove_item(thing: Any, value: Any, *path: str | int) -> Edit:
    return Edit(EditKind.REMOVE, type(thing), *key_of(thing), path, value)


def create(thing: Any, *parts: Any, like: str = "") -> Edit:
    """Return the edit that creates an object, like another one, with other objects that belong to it."""
    return Edit(EditKind.CREATE, type(thing), *key_of(thing), (), (thing, *parts), like)


def delete(thing: Any) -> Edit:
    return Edit(EditKind.DELETE, type(thing), *key_of(thing))


def apply_edit(edit: Edit, changes: ChangeLog) -> None:
    """Change the object, with what the controllers of Kubernetes then do."""
    old = changes.cluster_state.objects.find(edit.kind, edit.namespace, edit.name)
    if edit.edit is EditKind.CREATE:
        for thing in edit.value:
            changes.set(thing)
    elif old is not None and edit.edit is EditKind.DELETE:
        changes.remove(old)
        if isinstance(old, Pod):
            _release_claims(old, changes)
    elif old is not None:
        changes.set(_edited(old, edit.path, edit))


def _edited(thing: Any, path: FieldPath, edit: Edit) -> Any:
    """Return the thing with the edit at a path."""
    if not path:
        if edit.edit is EditKind.ADD:
            return (*thing, edit.value)
        if edit.edit is EditKind.REMOVE:
            return tuple(each for each in thing if each != edit.value)
        return edit.value
    head, *rest = path
    if isinstance(thing, tuple):
        return tuple(_edited(each, (*rest,), edit) if at == head else each for at, each in enumerate(thing))
    if isinstance(thing, Mapping):
        changed = {**thing, head: _edited(thing.get(head), (*rest,), edit)}
        return {key: value for key, value in changed.items() if value is not None}
    if thing is None:
        return None
    name = thing.__struct_fields__[thing.__struct_encode_fields__.index(head)]
    return replace(thing, **{name: _edited(getattr(thing, name), (*rest,), edit)})


def _release_claims(pod: Pod, changes: ChangeLog) -> None:
    """Remove the claims generated for a pod, and deallocate the others that only it used."""
    for claim in claims_of(changes.cluster_state.objects, pod):
        if is_owned_by(claim, pod):
            changes.remove(claim)
            continue
        users = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
        allocation = claim.status.allocation if users else None
        status = replace(claim.status, reserved_for=users, allocation=allocation)
        changes.set(replace(claim, status=status))
