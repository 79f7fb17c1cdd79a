"""Object metadata in full, for the writes that have to check all of it.

Owns the fields of `metadata` that nothing but validation reads; the everyday view (`api.meta.ObjectMeta`)
leaves them out to stay small.
"""

from __future__ import annotations

from plimsoll.api.meta import ObjectMeta, Wire


class ManagedFieldsEntry(Wire, frozen=True):
    """Who set which fields; what exactly (`fieldsV1`) is kept but not looked at."""

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
    """Any object, seen by its whole metadata."""

    metadata: FullObjectMeta = FullObjectMeta()
