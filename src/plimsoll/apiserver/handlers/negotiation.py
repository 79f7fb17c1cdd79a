"""Content negotiation: the media type of a response from the Accept header, and decoding of bodies.

JSON is the default; YAML, protobuf and tables are served on request, in the order of the header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.protobuf import CONTENT_TYPE as PROTOBUF
from plimsoll.apiserver.protobuf import decode_body as decode_protobuf
from plimsoll.apiserver.status import bad_request, not_acceptable, unsupported_media_type
from plimsoll.common.yaml import load_documents
from plimsoll.errors import InputError

JSON = "application/json"
YAML = "application/yaml"
PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_SUPPORTED = (JSON, YAML, PROTOBUF)
#: Values that the aliases of a YAML body may expand to. DIFF: upstream allows 400,000; a body of a few bytes
#: must not cost more than one of that many values (test_aliases_of_a_body_are_bounded).
MAX_ALIASED_VALUES = 2_500
_STREAMED = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")


@dataclass(frozen=True, slots=True)
class AcceptedMediaType:
    """Media type that a client accepts, with its parameters (as=Table;g=meta.k8s.io;v=v1)."""

    media: str = JSON
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """Return the meta.k8s.io version of the requested table, or ""."""
        if self.parameters.get("as") == "Table" and self.parameters.get("g") == "meta.k8s.io":
            return self.parameters.get("v", "")
        return ""

    @property
    def partial(self) -> str:
        """Return the meta.k8s.io version of the requested PartialObjectMetadata, or ""."""
        wanted = self.parameters.get("as", "")
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return self.parameters.get("v", "v1")
        return ""


@lru_cache(maxsize=256)
def negotiate(header: str, *, streams: bool = False, tables: bool = True) -> AcceptedMediaType:
    """Return the media type of the response; ApiError 406 if none is supported. Without `tables` no table can
    be made of the object.

    DIFF: clients that accept both protobuf and JSON get objects in JSON, as stored, whichever they prefer
    (test_the_preferred_media_type_is_chosen); PartialObjectMetadata, which is not stored, comes as preferred.
    """
    if not header or header == JSON:
        return AcceptedMediaType()
    clauses = parse_accept(header)
    for clause in clauses:
        if clause.media in ("*/*", "application/*"):
            if clause.table and not tables:
                continue
            return AcceptedMediaType(JSON, clause.parameters if clause.table or clause.partial else {})
        if clause.parameters.get("as") and not (_is_table(clause, tables) or clause.partial):
            continue
        if clause.media == JSON or (clause.media == YAML and not streams):
            return clause
        if clause.media == PROTOBUF and clause.partial:
            return clause
    for clause in clauses:
        if clause.media == PROTOBUF and "as" not in clause.parameters:
            return clause
    raise not_acceptable(_STREAMED if streams else _SUPPORTED)


def _is_table(clause: AcceptedMediaType, tables: bool) -> bool:
    return tables and clause.table in ("v1", "v1beta1")


def parse_accept(header: str) -> list[AcceptedMediaType]:
    """Parse an Accept header into clauses, most preferred first."""
    ranked = []
    for position, clause in enumerate(header.split(",")[:64]):
        media, *rest = (part.strip() for part in clause.split(";"))
        parameters = {}
        for part in rest:
            name, _, value = part.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        quality = parameters.pop("q", "1")
        weight = float(quality) if re.fullmatch(r"[01](\.[0-9]{0,3})?", quality) else 1.0
        if media and weight > 0:
            ranked.append((-weight, position, AcceptedMediaType(media.lower(), parameters)))
    ranked.sort(key=lambda entry: entry[:2])
    return [clause for _, _, clause in ranked]


def parse_media_type(header: str) -> str:
    return header.split(";", maxsplit=1)[0].strip().lower()


def decode_body(body: bytes, content_type: str) -> Any:
    """Decode the object in a body; ApiError 400 or 415."""
    media = parse_media_type(content_type) or JSON
    if media == JSON:
        return decode_json(body)
    if media == YAML:
        return decode_yaml(body)
    if media == PROTOBUF:
        try:
            return decode_protobuf(body)
        except InputError as error:
            raise bad_request(f"the body is not a protobuf object: {error}") from None
    raise unsupported_media_type(_SUPPORTED)


def decode_json(body: bytes) -> Any:
    try:
        return codec.decode_tree(body)
    except InputError as error:
        raise bad_request(f"the body cannot be read: {error}") from None


def decode_yaml(body: bytes) -> Any:
    """Decode one YAML (or JSON) document."""
    try:
        documents = [tree for _, tree in load_documents(body, MAX_ALIASED_VALUES)]
    except InputError as error:
        raise bad_request(f"error decoding YAML: {error}") from None
    if len(documents) != 1:
        raise bad_request(f"the body has {len(documents)} YAML documents, one is expected")
    return documents[0]
