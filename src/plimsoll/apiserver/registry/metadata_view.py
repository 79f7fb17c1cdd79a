"""Full view of object metadata, for validation.

Has the fields of `metadata` that only validation reads; the everyday view (`api.meta.ObjectMeta`) omits them
to stay small.
"""

from __future__ import annotations

from plimsoll.api.meta import ObjectMeta, Wire


class ManagedFieldsEntry(Wire, frozen=True):
    """Entry of managedFields; its field set (`fieldsV1`) is preserved but not validated."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    subresource: str = ""


class FullObjectMeta(ObjectMeta, frozen=True):
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()
    self_link: str = ""


class PartialObjectMetadata(Wire, frozen=True):
    """Any object, reduced to its metadata."""

    metadata: FullObjectMeta = FullObjectMeta()
