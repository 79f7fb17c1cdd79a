"""Type check of validating policies: warnings about expressions that do not fit the kinds they match.

Compiles validations and their messages with the schemas of `object` and `params`, for at most ten kinds, and
stores the errors in status.typeChecking with the generation they are about. A warning never changes what the
policy does.

- DIFF: the status is set with the write; upstream's controller-manager sets it a little later
  (test_type_check_warnings_are_in_the_status).
- DIFF: `authorizer.requestResource` is known; upstream warns about it by mistake
  (test_the_type_check_knows_the_request_resource).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from plimsoll.apiserver.registry.resources import find_resource
from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext
from plimsoll.cel import types
from plimsoll.cel.policy import ANY, CompileProblem, PolicyCompiler
from plimsoll.cel.static.admission_environment import AdmissionEnvironment
from plimsoll.cel.syntax.parser import RESERVED
from plimsoll.cel.types import CelType, TypeKind

_MAX_KINDS = 10
_SCALARS = {
    "string": types.STRING,
    "duration": types.STRING,
    "integer": types.INT,
    "number": types.DOUBLE,
    "boolean": types.BOOL,
    "time": types.TIMESTAMP,
    "micro-time": types.TIMESTAMP,
    "bytes": types.BYTES,
    "int-or-string": types.DYN,
}


class _Kind(NamedTuple):
    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def set_type_checking(write: WriteContext[Any]) -> None:
    """Set the status of a policy whose spec is new or has changed."""
    generation = subtree(write.tree, "metadata").get("generation", 0)
    status = write.tree.get("status") or {}
    if status.get("observedGeneration", 0) >= generation:
        return
    warnings = list(check_types(subtree(write.tree, "spec")))
    checked = {"expressionWarnings": warnings} if warnings else {}
    write.tree["status"] = {**status, "observedGeneration": generation, "typeChecking": checked}


def check_types(spec: Tree) -> Iterator[Tree]:
    """Return the ExpressionWarnings of a policy."""
    compilers = [(kind, _compiler(spec, kind)) for kind in _matched_kinds(spec)]
    for index, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            source = validation.get(field)
            if not source:
                continue
            texts = []
            for kind, compiler in compilers:
                compiled = compiler.compile(source, ANY)
                if isinstance(compiled, CompileProblem):
                    texts.append(f"{kind}: {compiled.issue}\n")
            if texts:
                yield {"fieldRef": f"spec.validations[{index}].{field}", "warning": "\n".join(texts)}


def _compiler(spec: Tree, kind: _Kind) -> PolicyCompiler:
    declared: dict[str, Mapping[str, CelType]] = {}
    param_kind = spec.get("paramKind")
    params = types.DYN
    if param_kind is not None:
        group, _, version = (param_kind.get("apiVersion") or "").rpartition("/")
        params = _object_type(_Kind(group, version, param_kind.get("kind") or ""), declared)
    environment = AdmissionEnvironment(
        has_params=param_kind is not None,
        object_type=_object_type(kind, declared),
        params_type=params,
        declared_types=declared,
    )
    compiler = PolicyCompiler(environment)
    for variable in spec.get("variables") or ():
        compiler.add_variable(variable.get("name") or "", variable.get("expression") or "")
    return compiler


def _matched_kinds(spec: Tree) -> list[_Kind]:
    """Return the kinds that the rules name without wildcards, sorted."""
    kinds: set[_Kind] = set()
    for rule in subtree(spec, "matchConstraints").get("resourceRules") or ():
        groups, versions = (rule.get(name) or [] for name in ("apiGroups", "apiVersions"))
        if any("*" in text for text in (*groups, *versions)):
            continue
        plain = [text for text in rule.get("resources") or () if not set("*/") & set(text)]
        for group in sorted(groups):
            for version in sorted(versions):
                for plural in sorted(plain):
                    resource = find_resource(group, version, plural)
                    if resource is not None:
                        kinds.add(_Kind(group, version, resource.kind))
                    if len(kinds) == _MAX_KINDS:
                        return sorted(kinds)
    return sorted(kinds)


def _object_type(kind: _Kind, declared: dict[str, Mapping[str, CelType]]) -> CelType:
    schema = schema_for(*kind)
    if schema is None:
        return types.DYN
    root = _declare(schema, declared)
    if root is None:
        return types.DYN
    declared[root.name] = {**declared[root.name], "apiVersion": types.STRING, "kind": types.STRING}
    return root


def _declare(schema: SchemaType, declared: dict[str, Mapping[str, CelType]]) -> CelType | None:
    """Return the CEL type of a schema and declare its fields; None if expressions cannot read it."""
    if schema.kind in _SCALARS:
        return _SCALARS[schema.kind]
    if schema.item is not None:
        item = _declare(schema.item, declared)
        if item is None:
            return None
        return types.list_of(item) if schema.kind == "list" else types.map_of(types.STRING, item)
    if schema.kind == "any":
        declared.setdefault("object", {})
        return CelType(TypeKind.STRUCT, "object")
    if schema.kind != "object":
        return None
    if schema.name not in declared:
        fields: dict[str, CelType] = {}
        declared[schema.name] = fields  # before its fields: types may contain themselves
        for field in schema.fields.values():
            found = _declare(field.type, declared)
            if found is None:
                continue
            fields[field.name] = found
            if field.name in RESERVED:  # its escaped form is valid as well
                fields[f"__{field.name}__"] = found
    return CelType(TypeKind.STRUCT, schema.name)
