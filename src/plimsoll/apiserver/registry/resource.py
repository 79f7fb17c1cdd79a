"""Resource of the API: its names, verbs and subresources, and the fields that field selectors can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.kinds import join_api_version, resource_key
from plimsoll.apiserver.json_values import get_path

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

#: Field labels of all kinds; cluster-scoped kinds with their own list lack the second.
_COMMON_LABELS = {"metadata.name": ("metadata", "name"), "metadata.namespace": ("metadata", "namespace")}
#: Values of absent fields in field selectors.
_ABSENT = {"spec.hostNetwork": "false", "spec.unschedulable": "false"} | dict.fromkeys(
    ("status.replicas", "status.successful"), "0"
)


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One row of the table; rows are compared by identity and hashable."""

    group: str
    versions: tuple[str, ...]  #: preferred first; the first is the storage version
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    field_labels: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  #: label -> path in the stored object
    field_label_message: str = ""  #: template of the message for unsupported labels; "" without labels
    has_strategy: bool = False  #: has its own strategy; others use the generic one
    stored_as: str = ""  #: key of the resource that stores the objects, if different
    allow_unconditional_update: bool = True  #: an update may omit metadata.resourceVersion
    allow_create_on_update: bool = False  #: a PUT creates a missing object
    orphans_dependents: bool = False  #: a deletion without a propagation policy orphans dependents
    computed: bool = False  #: objects are computed when they are read
    key: str = field(init=False)  #: `pods`, or `resourceclaims.resource.k8s.io`
    storage_key: str = field(init=False)  #: key of the stored objects; events of both groups share one
    is_stored: bool = field(init=False)  #: False for reviews, bindings and metrics

    def __post_init__(self) -> None:
        key = resource_key(self.group, self.plural)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "storage_key", self.stored_as or key)
        object.__setattr__(self, "is_stored", "get" in self.verbs and not self.computed)

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    def api_version(self, version: str = "") -> str:
        """Return `v1` or `resource.k8s.io/v1`, of the storage version by default."""
        return join_api_version(self.group, version or self.versions[0])

    def field_label_path(self, label: str) -> tuple[str, ...] | None:
        """Return the path of a field label, or None if it is not supported."""
        if label == "metadata.name" or (label == "metadata.namespace" and self._has_namespace_label()):
            return _COMMON_LABELS[label]
        return self.field_labels.get(label)

    def _has_namespace_label(self) -> bool:
        return self.namespaced or not self.field_label_message

    def field_label_error(self, label: str) -> str:
        """Return upstream's message for an unsupported field label."""
        if self.field_label_message:
            return self.field_label_message.replace("{label}", label)
        return f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'

    def field_value(self, tree: Any, label: str) -> str:
        """Return the string that a field selector compares with, including upstream's form of absent
        fields.
        """
        path = self.field_label_path(label)
        value = get_path(tree, path) if path else None
        if value is None or value == "":
            if label == "source":
                value = get_path(tree, ("reportingComponent",))
            if value is None or value == "":
                return _ABSENT.get(label, "")
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
