"""Environment of admission policies: `object`, `oldObject`, `request`, `namespaceObject`, `params`,
`authorizer`, `variables`, and the types of mutations.

Implements the declarations of Kubernetes 1.36's admission plugins. `object`, `oldObject` and `params` are
dynamic, except when a policy is type-checked against the schemas of the kinds that it matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from plimsoll.cel import types
from plimsoll.cel.functions import LIST_ATTRIBUTE_FUNCTIONS, PATCH_FUNCTIONS
from plimsoll.cel.overloads.overload import Overload
from plimsoll.cel.static.environment import CONSTANTS, STATIC_TYPES, functions_without
from plimsoll.cel.types import (
    JSON_PATCH,
    CelType,
    TypeKind,
    is_mutation_type,
    is_object_type,
    list_of,
    map_of,
)


def _struct(name: str) -> CelType:
    return CelType(TypeKind.STRUCT, f"kubernetes.{name}")


_STRINGS = list_of(types.STRING)
_LABELS = map_of(types.STRING, types.STRING)
_REQUEST, _NAMESPACE, _VARIABLES = _struct("AdmissionRequest"), _struct("Namespace"), _struct("variables")
_FIELDS: dict[str, dict[str, CelType]] = {
    "kubernetes.GroupVersionKind": dict.fromkeys(("group", "version", "kind"), types.STRING),
    "kubernetes.GroupVersionResource": dict.fromkeys(("group", "version", "resource"), types.STRING),
    "kubernetes.UserInfo": {
        "username": types.STRING,
        "uid": types.STRING,
        "groups": _STRINGS,
        "extra": map_of(types.STRING, _STRINGS),
    },
    _REQUEST.name: {
        **dict.fromkeys(("kind", "requestKind"), _struct("GroupVersionKind")),
        **dict.fromkeys(("resource", "requestResource"), _struct("GroupVersionResource")),
        **dict.fromkeys(("subResource", "requestSubResource", "name", "namespace"), types.STRING),
        "operation": types.STRING,
        "userInfo": _struct("UserInfo"),
        "dryRun": types.BOOL,
        "options": types.DYN,
    },
    "kubernetes.NamespaceSpec": {"finalizers": _STRINGS},
    "kubernetes.NamespaceCondition": {
        **dict.fromkeys(("status", "type", "message", "reason"), types.STRING),
        "lastTransitionTime": types.TIMESTAMP,
    },
    "kubernetes.NamespaceStatus": {
        "conditions": list_of(_struct("NamespaceCondition")),
        "phase": types.STRING,
    },
    "kubernetes.NamespaceMetadata": {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), types.STRING),
        **dict.fromkeys(("labels", "annotations"), _LABELS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), types.TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), types.INT),
        "finalizers": _STRINGS,
    },
    _NAMESPACE.name: {
        "metadata": _struct("NamespaceMetadata"),
        "spec": _struct("NamespaceSpec"),
        "status": _struct("NamespaceStatus"),
    },
}
_NO_TYPES: Mapping[str, Mapping[str, CelType]] = MappingProxyType({})


class _JsonPatchFields(Mapping[str, CelType]):
    """Fields of `JSONPatch`. As upstream, an unknown one has a type without a name, which nothing fits."""

    _KNOWN = {**dict.fromkeys(("op", "from", "path"), types.STRING), "value": types.DYN}  # noqa: RUF012

    def __getitem__(self, name: str) -> CelType:
        return self._KNOWN.get(name) or CelType(TypeKind.STRUCT, "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._KNOWN)

    def __len__(self) -> int:
        return len(self._KNOWN)


class _AnyField(Mapping[str, CelType]):
    """Fields of `Object` types: every name is a field of unknown type."""

    def __getitem__(self, name: str) -> CelType:
        return types.DYN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _PatchTypes(Mapping[str, Mapping[str, CelType]]):
    """Fields by type name, with every type whose name starts with `Object`."""

    def __init__(self, declared: Mapping[str, Mapping[str, CelType]]) -> None:
        self._declared = declared

    def __getitem__(self, name: str) -> Mapping[str, CelType]:
        return _AnyField() if is_object_type(name) else self._declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


@dataclass(frozen=True, slots=True)
class AdmissionEnvironment:
    """Environment of one expression of a policy.

    `variables` are the types of the policy's variables that it may read, None where variables do not exist.
    `declared_types` are the fields of the types that `object_type` and `params_type` use.
    """

    has_params: bool = False
    has_authorizer: bool = True
    has_patch_types: bool = False
    variables: Mapping[str, CelType] | None = None
    object_type: CelType = types.DYN
    params_type: CelType = types.DYN
    declared_types: Mapping[str, Mapping[str, CelType]] = field(default_factory=lambda: _NO_TYPES)

    @property
    def functions(self) -> Mapping[str, tuple[Overload, ...]]:
        hidden = (
            LIST_ATTRIBUTE_FUNCTIONS if self.has_patch_types else LIST_ATTRIBUTE_FUNCTIONS | PATCH_FUNCTIONS
        )
        return functions_without(hidden)

    @property
    def fields(self) -> Mapping[str, Mapping[str, CelType]]:
        declared = {**types.MESSAGE_FIELDS, **_FIELDS, **self.declared_types}
        if self.variables is not None:
            declared[_VARIABLES.name] = self.variables
        if not self.has_patch_types:
            return declared
        return _PatchTypes({**declared, JSON_PATCH.name: _JsonPatchFields()})

    def variable(self, name: str) -> CelType | None:
        declared = self._declared(name)
        if declared is not None:
            return declared
        if name in CONSTANTS:
            return types.INT
        known = STATIC_TYPES.get(name)
        if known is None and self.has_patch_types:
            known = CelType(TypeKind.STRUCT, name) if is_mutation_type(name) else None
        return None if known is None else types.type_of(known)

    def _declared(self, name: str) -> CelType | None:
        match name:
            case "object" | "oldObject":
                return self.object_type
            case "request":
                return _REQUEST
            case "namespaceObject":
                return _NAMESPACE
            case "params":
                return self.params_type if self.has_params else None
            case "authorizer":
                return types.AUTHORIZER if self.has_authorizer else None
            case "authorizer.requestResource":
                return types.RESOURCE_CHECK if self.has_authorizer else None
            case "variables":
                return None if self.variables is None else _VARIABLES
        return None
