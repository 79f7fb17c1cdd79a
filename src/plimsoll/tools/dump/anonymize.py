"""`anonymize`: the objects of a cluster with other names.

Guarantees: the tools give the same answers about the result, with other names. Objects, amounts, times,
drivers of known vendors, attribute names and the attribute values that devices share are kept; references,
label selectors and CEL expressions still match. Nothing else is copied: fields that no tool reads, container
commands, environments, addresses, messages and unknown annotations are left out; images become one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from plimsoll.api import codec, cpu_map
from plimsoll.api.core import Namespace, Node, NodeAllocatableClaimStatus
from plimsoll.api.forms import CLASS_KEY, POD_KEY
from plimsoll.api.forms.annotations import ClassAnnotation
from plimsoll.api.meta import Wire
from plimsoll.api.pod_claims import EXTENDED_RESOURCE_CLAIM
from plimsoll.api.resource import Device, ResourceSlice
from plimsoll.api.storage import BETA_STORAGE_CLASS, DEFAULT_CLASS, SELECTED_NODE, CSIDriver
from plimsoll.apiserver.auth.pod_references import MIRROR
from plimsoll.cel.syntax import lexer
from plimsoll.controllers.pod_utils import POD_CLAIM_ANNOTATION
from plimsoll.errors import CelCompileError, DecodeError
from plimsoll.ledger import placeholders
from plimsoll.scheduler.filters.volume_binding import MIGRATED_PLUGINS
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.dump.attribute_values import AttributeValues, attributes_of, texts_of
from plimsoll.tools.dump.field_rules import RULES, FieldRule
from plimsoll.tools.dump.pseudonyms import Pseudonyms

#: Annotations with values of the API.
_KEPT_ANNOTATIONS = (EXTENDED_RESOURCE_CLAIM, MIGRATED_PLUGINS, DEFAULT_CLASS, cpu_map.ANNOTATION)
_NAME_ANNOTATIONS = (POD_CLAIM_ANNOTATION, SELECTED_NODE, BETA_STORAGE_CLASS)
#: Names separated by slashes or commas.
_NAME_LISTS = (placeholders.POD_KEY, placeholders.CLAIM_KEY, placeholders.CLAIMS_KEY)
_NAME_IN_LIST = re.compile(r"[^/,]+")
#: Resource names of quotas that contain the name of an object, by their end.
_QUOTA_ENDS = (
    ".deviceclass.resource.k8s.io/",
    ".storageclass.storage.k8s.io/",
    ".volumeattributesclass.storage.k8s.io/",
)
_QUOTA_STARTS = ("requests.", "limits.")
#: Functions of CEL with a string argument that belongs to the attribute before them.
_FUNCTIONS = frozenset(
    {"startsWith", "endsWith", "contains", "matches", "lowerAscii", "upperAscii", "indexOf", "split"}
)
_PARSERS = frozenset({"quantity", "isQuantity", "semver", "isSemver"})
_STATE_FIELDS = ("reason", "exitCode", "startedAt", "finishedAt")
_IMAGE = "example.com/image"
_EPHEMERAL_FIELDS = ("accessModes", "resources", "volumeMode")


def anonymize(objects: ClusterObjects, pseudonyms: Pseudonyms) -> ClusterObjects:
    """Return the objects with other names."""
    walk = _Anonymizer(objects, pseudonyms)
    return ClusterObjects((walk.object(thing) for thing in objects), objects.gaps)


class _Anonymizer:
    """Replacement of the texts of one set of objects."""

    def __init__(self, objects: ClusterObjects, pseudonyms: Pseudonyms) -> None:
        self._names = pseudonyms
        places = {node.metadata.name for node in objects.all(Node)}
        places |= {namespace.metadata.name for namespace in objects.all(Namespace)}
        slices = objects.all(ResourceSlice)
        self._values = AttributeValues(slices, places, pseudonyms)
        #: String literals of CEL expressions to replace.
        self._literals: dict[str, str] = {}
        for driver, name, attribute in attributes_of(slices):
            domain = name.rpartition("/")[0]
            self._literals[domain] = pseudonyms.domain(domain)
            for value in texts_of(attribute):
                self._literals[value] = self._values.replace_text(driver, name, value)
        self._literals |= {each.spec.driver: pseudonyms.domain(each.spec.driver) for each in slices}
        self._literals.pop("", None)
        self._driver = ""
        self._texts: dict[FieldRule, Callable[[str], str]] = {
            FieldRule.NAME: pseudonyms.name,
            FieldRule.KEEP: str,
            FieldRule.UID: pseudonyms.uid,
            FieldRule.DOMAIN: pseudonyms.domain,
            FieldRule.QUALIFIED: pseudonyms.qualified_name,
            FieldRule.LABEL_KEY: pseudonyms.label_key,
            FieldRule.CEL: cache(self._expression),
            FieldRule.IMAGE: lambda text: _IMAGE,
        }

    def object(self, thing: Any) -> Any:
        self._driver = thing.spec.driver if isinstance(thing, ResourceSlice) else ""
        made = self._struct(thing)
        if isinstance(thing, CSIDriver):  # named after the driver
            name = self._names.domain(thing.metadata.name)
            made = replace(made, metadata=replace(made.metadata, name=name))
        return made

    def _struct(self, thing: Any) -> Any:
        changes: dict[str, Any] = {}
        kind: Any = type(thing)
        for name, rule, default in _plan(kind):
            value = getattr(thing, name)
            if rule is FieldRule.DROP:
                changes[name] = default
            elif value:
                changes[name] = self._value(value, rule)
        if isinstance(thing, Device):
            changes["attributes"] = {
                self._amount_key(name): self._values.replace(self._driver, name, value)
                for name, value in thing.attributes.items()
            }
        return replace(thing, **changes)

    def _value(self, value: Any, rule: FieldRule) -> Any:
        if isinstance(value, Wire):
            return self._struct(value)
        if isinstance(value, str):
            return self._texts[rule](value)
        if rule is FieldRule.VOLUMES:
            return tuple(map(self._volume, value))
        if isinstance(value, tuple):
            return tuple(self._value(each, rule) for each in value)
        if isinstance(value, dict):
            return self._mapping(value, rule)
        if rule is FieldRule.DEVICE_DATA:
            return None
        return value

    def _mapping(self, value: dict[str, Any], rule: FieldRule) -> Any:
        names = self._names
        if rule is FieldRule.LABELS:
            return {
                names.label_key(key): names.uid(text) if key == placeholders.OWNER_LABEL else names.name(text)
                for key, text in value.items()
            }
        if rule is FieldRule.ANNOTATIONS:
            return dict(filter(None, (self._annotation(key, text) for key, text in value.items())))
        if rule in (FieldRule.AMOUNTS, FieldRule.POLICIES):
            own = FieldRule.NAME if rule is FieldRule.AMOUNTS else FieldRule.KEEP
            return {self._amount_key(key): self._value(each, own) for key, each in value.items()}
        if rule is FieldRule.POD_NAMES:
            return {names.name(key): time for key, time in value.items()}
        if rule is FieldRule.CONTAINER_STATE:
            return {key: _kept(each, _STATE_FIELDS) for key, each in value.items()}
        if rule is FieldRule.DEVICE_DATA:
            cpus = value.get("cpuset")
            return {"cpuset": cpus} if isinstance(cpus, str) else None
        return {}

    # -- parts of objects

    def _amount_key(self, key: str) -> str:
        """Replace the name of a resource, capacity or attribute, also of a quota."""
        for start in _QUOTA_STARTS:
            if key.startswith(start):
                return start + self._amount_key(key.removeprefix(start))
        for end in _QUOTA_ENDS:
            name, found, rest = key.partition(end)
            if found:
                return f"{self._names.name(name)}{end}{rest}"
        return self._names.qualified_name(key)

    def _annotation(self, key: str, text: str) -> tuple[str, str] | None:
        """Replace the names in an annotation that tools read; None for others."""
        if key in _KEPT_ANNOTATIONS:
            return key, text
        if key in _NAME_ANNOTATIONS:
            return key, self._names.name(text)
        if key in _NAME_LISTS:
            return key, _NAME_IN_LIST.sub(lambda found: self._names.name(found[0]), text)
        if key == MIRROR:
            return key, self._names.uid(text)
        view: Any = {CLASS_KEY: ClassAnnotation, POD_KEY: tuple[NodeAllocatableClaimStatus, ...]}.get(key)
        if view is None:
            return None
        try:
            value = codec.decode(text, view)
        except DecodeError:
            return key, "invalid"  # the audit reports it as such
        return key, codec.encode(self._value(value, FieldRule.NAME)).decode()

    def _volume(self, volume: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the claim that a volume uses or describes; others become empty directories."""
        made: dict[str, Any] = {}
        for key, value in volume.items():
            given = value if isinstance(value, dict) else {}
            if key == "name":
                made[key] = self._names.name(str(value))
            elif key == "persistentVolumeClaim":
                made[key] = {"claimName": self._names.name(str(given.get("claimName", "")))}
            elif key == "ephemeral":
                made[key] = self._ephemeral(given)
            else:
                made["emptyDir"] = {}
        return made

    def _ephemeral(self, volume: Mapping[str, Any]) -> dict[str, Any]:
        template = volume.get("volumeClaimTemplate")
        spec = template.get("spec") if isinstance(template, dict) else None
        if not isinstance(spec, dict):
            return {}
        kept = _kept(spec, _EPHEMERAL_FIELDS)
        for name in ("storageClassName", "volumeName"):
            if isinstance(spec.get(name), str):
                kept[name] = self._names.name(spec[name])
        return {"volumeClaimTemplate": {"spec": kept}}

    def _expression(self, text: str) -> str:
        """Replace the strings of a CEL expression that were replaced elsewhere; drop comments."""
        try:
            tokens = lexer.split(text)
        except CelCompileError:
            return self._names.name(text)
        parts: list[str] = []
        end = 0
        names = [""]  # the last two names before a literal: what it is compared with
        for token in tokens:
            if token.pos > end and parts:
                parts.append(" ")
            shown = token.text
            if token.kind == lexer.STRING:
                value = lexer.unquote(shown, token.pos)
                replaced = self._literal(value, names)
                shown = shown if replaced == value else json.dumps(replaced)
            elif token.kind == lexer.INT and shown.isdecimal():
                shown = str(self._values.replace_number(int(shown)))
            elif token.kind == lexer.NAME and shown not in _FUNCTIONS:
                names = [names[-1], shown]
            parts.append(shown)
            end = token.pos + len(token.text)
        return "".join(parts).rstrip()

    def _literal(self, text: str, names: list[str]) -> str:
        """Replace a string of a CEL expression as the values with which it is compared."""
        if text in self._literals:
            return self._literals[text]
        if names[-1] in ("attributes", "capacity") or names == ["device", "driver"]:
            return self._names.domain(text)
        if names[-1] in _PARSERS or any(text in value for value in self._values.public):
            return text  # an amount or a version, or a part of a public value
        return self._values.replace_text("", names[-1], text)


def _kept(tree: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return some fields of a tree."""
    return {name: tree[name] for name in names if name in tree} if isinstance(tree, dict) else {}


@cache
def _plan(kind: type[Any]) -> tuple[tuple[str, FieldRule, Any], ...]:
    """Return the fields of a type that can hold texts, with rule and default."""
    made = []
    for field in fields(kind):
        if kind is Device and field.name == "attributes":
            continue  # their values depend on their names
        rule = RULES.get(f"{kind.__name__}.{field.name}") or RULES.get(field.name, FieldRule.NAME)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        made.append((field.name, rule, default))
    return tuple(made)
