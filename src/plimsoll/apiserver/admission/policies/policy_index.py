"""Index of the stored policies and bindings of one type: each version is compiled once.

`observe` marks the index as outdated when one of them is written, so that a request costs one comparison as
long as there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from plimsoll.api import codec
from plimsoll.apiserver.admission.policies.attributes import Tree
from plimsoll.apiserver.storage import ObjectKey, Store

if TYPE_CHECKING:
    from plimsoll.apiserver.admission.policies.compiled_policy import CompiledBinding, CompiledPolicy

T = TypeVar("T")
_GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class PolicyHook:
    """A policy with its bindings, both in the order of their names."""

    policy: CompiledPolicy
    bindings: tuple[CompiledBinding, ...]


class _CompiledObjects(Generic[T]):
    """Compiled objects of one resource, by name and revision."""

    def __init__(self, resource: str, compile_tree: Callable[[Tree], T]) -> None:
        self.resource = resource
        self._compile = compile_tree
        self._known: dict[str, tuple[int, T]] = {}

    def read(self, store: Store) -> list[T]:
        current: dict[str, tuple[int, T]] = {}
        for stored in store.list(self.resource).items:
            name = stored.key.name
            known = self._known.get(name)
            if known is None or known[0] != stored.revision:
                known = stored.revision, self._compile(codec.decode_tree(stored.raw))
            current[name] = known
        self._known = current
        return [current[name][1] for name in sorted(current)]


def _compile_policy(tree: Tree) -> CompiledPolicy:
    from plimsoll.apiserver.admission.policies.compiled_policy import (  # noqa: PLC0415 - loads CEL
        compile_policy,
    )

    return compile_policy(tree)


def _compile_binding(tree: Tree) -> CompiledBinding:
    from plimsoll.apiserver.admission.policies.compiled_policy import (  # noqa: PLC0415 - loads CEL
        compile_binding,
    )

    return compile_binding(tree)


class PolicyIndex:
    """Index of the policies of one type ("validating" or "mutating")."""

    def __init__(self, store: Store, policy_type: str, *, is_observed: bool) -> None:
        self._store = store
        self._policies = _CompiledObjects(f"{policy_type}admissionpolicies.{_GROUP}", _compile_policy)
        self._bindings = _CompiledObjects(f"{policy_type}admissionpolicybindings.{_GROUP}", _compile_binding)
        self._is_observed = is_observed
        self._outdated = True
        self._hooks: tuple[PolicyHook, ...] = ()

    @property
    def resources(self) -> tuple[str, str]:
        return self._policies.resource, self._bindings.resource

    def observe(self, key: ObjectKey) -> None:
        """Take note of a write to the store."""
        if key.resource in self.resources:
            self._outdated = True

    @property
    def hooks(self) -> tuple[PolicyHook, ...]:
        """Return the policies that have a binding."""
        if self._outdated:
            self._reload()
            self._outdated = not self._is_observed
        return self._hooks

    def _reload(self) -> None:
        bindings: dict[str, list[CompiledBinding]] = {}
        for binding in self._bindings.read(self._store):
            bindings.setdefault(binding.policy_name, []).append(binding)
        self._hooks = tuple(
            PolicyHook(policy, tuple(bindings[policy.name]))
            for policy in (self._policies.read(self._store) if bindings else ())
            if policy.name in bindings
        )
