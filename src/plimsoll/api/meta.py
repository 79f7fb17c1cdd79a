"""Metadata types of all Kubernetes objects (`metav1`), and `Wire`, the base of all typed views.

A view is a read projection: the immutable fields that Plimsoll uses. The JSON itself remains the record (see
`record.py`), so unknown fields are never lost.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

#: An int64.
Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: An int32.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
#: intstr.IntOrString: a number or a string. Not `Any`, for which msgspec would keep an explicit null.
IntOrString: TypeAlias = Int32 | str


class Wire(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=False,
):
    """A typed, immutable view of a JSON object.

    Absent, null and zero are the same except where a field's type admits None: there None means absent
    and the zero value means "given, and zero", as with a pointer in Go.
    """

    #: Fields that identify items in a list of this type; empty if the position does.
    item_key: ClassVar[tuple[str, ...]] = ()


class OwnerReference(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("uid",)
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """`NAMESPACE/NAME`, or `NAME` of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class Condition(Wire, frozen=True):
    """metav1.Condition, with the fields of PodCondition and NodeCondition."""

    item_key: ClassVar[tuple[str, ...]] = ("type",)
    type: str = ""
    status: str = ""
    observed_generation: Int = 0
    last_probe_time: str | None = None
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class LabelSelectorRequirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class ObjectReference(Wire, frozen=True):
    """A reference to an object of any kind."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""

    @staticmethod
    def to(meta: ObjectMeta, kind: str, api_version: str = "v1") -> ObjectReference:
        """Return a reference to any version of an object."""
        return ObjectReference(
            api_version=api_version, kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )

    @staticmethod
    def to_version(meta: ObjectMeta, kind: str, api_version: str = "v1") -> ObjectReference:
        """Return a reference to the version of an object that was read."""
        return replace(ObjectReference.to(meta, kind, api_version), resource_version=meta.resource_version)


class Object(Wire, frozen=True):
    """Any API object, with its type and metadata only."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
