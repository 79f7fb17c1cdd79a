"""Create, update, patch and apply: the steps of a write.

A write is decoded, checked field by field, converted to the storage version, given its metadata, admitted,
prepared and validated (`apiserver/validation`), attributed to its field manager, and stored under the version
it was based on. Nothing between reading the old object and storing the new one yields the event loop, so a
patch has no conflict unless it asks for a version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.generated_names import generate_name
from plimsoll.apiserver.handlers.conversion import convert_to_storage, convert_tree, tracked_version
from plimsoll.apiserver.handlers.options import WriteOptions
from plimsoll.apiserver.handlers.policy_attributes import write_attributes
from plimsoll.apiserver.handlers.read import get_stored, storage_key
from plimsoll.apiserver.handlers.request_body import decode_object
from plimsoll.apiserver.handlers.service_addresses import ServiceAddresses
from plimsoll.apiserver.handlers.strategy import prepare_write
from plimsoll.apiserver.patch import (
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
    conflict_causes,
    conflict_message,
    keep_times_if_unchanged,
    server_side_apply,
    track_update,
)
from plimsoll.apiserver.registry.empty_values import drop_empty_values
from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.registry.status_shape import complete_status
from plimsoll.apiserver.registry.unsupported import REFUSED, WITHOUT_CONTROLLER
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import (
    OPTIMISTIC_LOCK_MESSAGE,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    request_entity_too_large,
    unprocessable,
    unsupported_media_type,
)
from plimsoll.apiserver.storage import StoredObject
from plimsoll.apiserver.validation.field_errors import FieldPath
from plimsoll.apiserver.validation.field_errors import invalid as invalid_value
from plimsoll.apiserver.validation.metadata import check_name
from plimsoll.errors import ApiError, PatchError

Tree = dict[str, Any]

_NAME_ATTEMPTS = 8
#: Policies see the Scale, before it is applied to the object.
_SCALE = "scale"


@dataclass(slots=True)
class WriteResult:
    """Result of a write: the object in the storage version, its revision and warnings."""

    raw: bytes
    revision: int
    created: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _WriteJob:
    """State of one write in progress."""

    info: RequestInfo
    options: WriteOptions
    user: User
    text: bytes = b""
    #: Set once an apply has computed managedFields; `managed` may then be empty.
    applied: bool = False
    managed: Any = None
    warnings: list[str] = field(default_factory=list)
    #: Name of a new object, unless it is generated.
    name: str = ""

    def read(self, body: Any, current: Any = None) -> Tree:
        """Decode the body into the storage version; irregularities are warnings or ApiError 400."""
        tree, warnings = decode_object(
            self.info, body, self.options.field_validation, text=self.text, current=current
        )
        self.warnings += warnings
        return tree


class WriteHandler:
    """Handler of create, update, patch and apply."""

    def __init__(self, context: ApiContext, admission: AdmissionChain) -> None:
        self._context = context
        self._store = context.store
        self._admission = admission
        self._addresses = ServiceAddresses(context.store)

    # -- verbs

    def create(
        self, info: RequestInfo, body: Any, options: WriteOptions, user: User, text: bytes = b""
    ) -> WriteResult:
        """Create an object. `text` is its JSON, if duplicate fields are to be reported."""
        job = _WriteJob(info, options, user, text)
        tree = job.read(body)
        return self._create(job, tree)

    def update(
        self, info: RequestInfo, body: Any, options: WriteOptions, user: User, text: bytes = b""
    ) -> WriteResult:
        job = _WriteJob(info, options, user, text)
        tree = job.read(body)
        stored = self._store.get(storage_key(info))
        if stored is None and info.resource.allow_create_on_update and not info.subresource:
            tree.get("metadata", {}).pop("resourceVersion", None)
            return self._create(job, tree)
        if stored is None:
            raise not_found(info.group, info.plural, info.name)
        return self._update(job, tree, stored)

    def patch(
        self, info: RequestInfo, kind: str, body: Any, options: WriteOptions, user: User
    ) -> WriteResult:
        job = _WriteJob(info, options, user)
        if kind == "apply":
            return self._apply(job, body)
        stored = get_stored(self._store, info)
        old = codec.decode_tree(stored.raw)
        complete_status(info.resource.kind, old)  # an older version stored some kinds without it
        current = convert_tree(old, info.resource, info.version)
        try:
            patched = self._patch(job, kind, current, body)
        except PatchError as error:
            raise _patch_error(error) from None
        if kind == "strategic" and isinstance(patched, dict):
            patched["apiVersion"], patched["kind"] = current["apiVersion"], current["kind"]
        return self._update(job, job.read(patched, current), stored, old)

    def replace(
        self, info: RequestInfo, stored: StoredObject, tree: Tree, options: WriteOptions, user: User
    ) -> WriteResult:
        """Store an object that the server itself has computed (such as a new scale) as an update."""
        return self._update(_WriteJob(info, options, user), tree, stored)

    def patch_document(self, kind: str, tree: Tree, body: Any) -> Any:
        """Patch a document that is not a stored object, such as a Scale."""
        try:
            if kind == "json":
                return apply_json_patch(tree, body)
            if kind in ("merge", "strategic"):  # equal for documents without lists
                return apply_merge_patch(tree, body)
        except PatchError as error:
            raise _patch_error(error) from None
        raise unsupported_media_type(["application/json-patch+json", "application/merge-patch+json"])

    # -- create

    def _create(self, job: _WriteJob, tree: Tree) -> WriteResult:
        info, metadata = job.info, tree["metadata"]
        self._check_support(job, metadata)
        # DIFF: 400; upstream responds with 500 (test_invalid_resource_versions_are_refused).
        if _has_version(metadata):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if info.verb != "create":  # by PUT or apply: needs the create permission too
            self._context.authorizer.require(
                Attributes(
                    job.user,
                    "create",
                    info.group,
                    info.version,
                    info.plural,
                    namespace=info.namespace,
                    name=info.name,
                )
            )
        self._admission.admit_namespace(info)
        now = self._context.now()
        for name in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        metadata.pop("resourceVersion", None)
        metadata["uid"] = self._context.new_uid()
        metadata["creationTimestamp"] = format_datetime(now)
        if info.resource.kind == "LimitRange" and not metadata.get("name"):
            metadata["name"] = metadata["uid"]  # as upstream
        generated = not metadata.get("name") and metadata.get("generateName")
        for _ in range(_NAME_ATTEMPTS):
            if generated:
                metadata["name"] = generate_name(metadata["generateName"])
            key = storage_key(info, metadata.get("name", ""))
            if not generated or self._store.get(key) is None:
                break
        job.name = "" if generated else key.name
        tree = self._admit(job, tree, None)
        tree = self._prepare(job, tree, None)
        tree = self.track_managed_fields(job, None, tree)
        tree = self._admission.complete(info, tree)
        self._validate_admission(job, tree, None)
        if self._store.get(key) is not None:
            raise already_exists(info.group, info.plural, key.name)
        self._admission.charge(info, tree, None, dry_run=job.options.dry_run)
        if job.options.dry_run:
            tree["metadata"].pop("resourceVersion", None)
            return WriteResult(codec.encode(tree), 0, True, job.warnings)
        stored = self._store.create(key, tree)
        return WriteResult(stored.raw, stored.revision, True, job.warnings)

    def _check_support(self, job: _WriteJob, metadata: Tree) -> None:
        """Refuse to create what nothing can act on (ApiError 403), warn if the controller is elsewhere."""
        key, info = job.info.resource.key, job.info
        if key in REFUSED:
            raise forbidden(info.group, info.plural, metadata.get("name", ""), REFUSED[key])
        if key in WITHOUT_CONTROLLER:
            job.warnings.append(WITHOUT_CONTROLLER[key])

    # -- update

    def _update(
        self, job: _WriteJob, tree: Tree, stored: StoredObject, old: Tree | None = None
    ) -> WriteResult:
        """Replace a stored object. `old` is its tree, which may share parts with the new tree: from here
        on, changes to either are made on copies.
        """
        info, metadata = job.info, tree["metadata"]
        old = codec.decode_tree(stored.raw) if old is None else old
        before = old["metadata"]
        version = metadata.get("resourceVersion", "")
        if not _has_version(metadata):
            if not info.resource.allow_unconditional_update:
                raise _resource_version_required(info, stored.key.name)
        elif version != before["resourceVersion"]:
            if not version.isdigit():
                raise bad_request(f"metadata.resourceVersion: Invalid value: {version[:64]!r}")
            raise conflict(info.group, info.plural, stored.key.name, OPTIMISTIC_LOCK_MESSAGE)
        uid = metadata.get("uid", "")
        if uid and uid != before.get("uid") and info.verb == "patch":
            problem = invalid_value(FieldPath("metadata").child("uid"), uid, "field is immutable")
            raise invalid(info.group, info.resource.kind, stored.key.name, [problem])
        if uid and uid != before.get("uid"):
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before.get('uid')}"
            raise conflict(info.group, info.plural, stored.key.name, why)
        metadata.pop("selfLink", None)
        metadata["resourceVersion"] = before["resourceVersion"]
        for name in ("uid", "creationTimestamp", "generation"):
            _copy_or_remove(before, metadata, name)
        if "deletionTimestamp" in before:  # otherwise validation rejects one
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
                _copy_or_remove(before, metadata, name)
        tree = self._admit(job, tree, old)
        tree = self._prepare(job, tree, old)
        tree = self.track_managed_fields(job, old, tree)
        self._validate_admission(job, tree, old)
        if tree == old:
            return WriteResult(stored.raw, stored.revision, False, job.warnings)
        self._admission.charge(info, tree, old, dry_run=job.options.dry_run)
        if job.options.dry_run:
            return WriteResult(codec.encode(tree), 0, False, job.warnings)
        if is_ready_to_remove(tree):
            gone = self._store.delete(stored.key, tree, stored.revision)
            return WriteResult(gone.raw, gone.revision, False, job.warnings)
        after = self._store.update(stored.key, tree, stored.revision)
        return WriteResult(after.raw, after.revision, False, job.warnings)

    # -- patch and apply

    def _patch(self, job: _WriteJob, kind: str, current: Tree, body: Any) -> Any:
        if kind == "json":
            return apply_json_patch(current, body)
        if kind == "merge":
            return apply_merge_patch(current, body)
        schema = schema_for(job.info.group, job.info.version, job.info.resource.kind)
        if schema is None:
            raise ApiError(415, "UnsupportedMediaType", "strategic merge patch needs a kind with a schema")
        return apply_strategic_patch(current, body, schema)

    def _apply(self, job: _WriteJob, body: Any) -> WriteResult:
        info = job.info
        if not isinstance(body, dict):
            raise bad_request(f"the body must be a {info.resource.kind} object")
        if not body.get("apiVersion") or not body.get("kind"):
            raise bad_request("an apply patch must have apiVersion and kind")
        if isinstance(body.get("metadata"), dict) and body["metadata"].get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        # DIFF: ownership of fields is recorded in the storage version if the paths of fields differ
        # (test_ownership_is_recorded_in_the_storage_version).
        version = tracked_version(info.resource, info.version)
        applied = convert_tree(job.read(body), info.resource, version)
        stored = self._store.get(storage_key(info))
        live = old = None
        if stored is not None:
            old = codec.decode_tree(stored.raw)
            live = convert_tree(old, info.resource, version)
        elif info.subresource:
            raise not_found(info.group, info.plural, info.name)
        elif applied["metadata"].get("uid"):
            why = (
                f"uid mismatch: the provided object specified uid {applied['metadata']['uid']}, "
                "and no existing object was found"
            )
            raise conflict(info.group, info.plural, info.name, why)
        try:
            result = server_side_apply(
                live,
                applied,
                schema=schema_for(info.group, version, info.resource.kind),
                manager=job.options.field_manager,
                api_version=info.resource.api_version(version),
                subresource=info.subresource,
                force=bool(job.options.force),
                now=format_datetime(self._context.now()),
            )
        except PatchError as error:
            raise _patch_error(error) from None
        if result.conflicts:
            raise ApiError(
                409,
                "Conflict",
                conflict_message(result.conflicts),
                {"causes": conflict_causes(result.conflicts)},
            )
        tree = convert_to_storage(result.tree, info.resource, version)
        job.applied, job.managed = True, tree["metadata"].get("managedFields")
        if stored is None:
            tree["metadata"] = dict(tree["metadata"])
            tree["metadata"].pop("resourceVersion", None)
            return self._create(job, tree)
        return self._update(job, tree, stored, old)

    # -- admission

    def _admit(self, job: _WriteJob, tree: Tree, old: Tree | None) -> Tree:
        """Run the plugins and the mutating policies before a write is prepared; ApiError."""
        operation = "create" if old is None else "update"
        tree = self._admission.admit(operation, job.info, tree, old, job.user)
        policies = self._admission.policies
        if not policies.mutates or job.info.subresource == _SCALE:
            return tree
        return policies.mutate(
            write_attributes(job.info, tree, old, job.user, job.options, job.warnings, job.name),
            lambda changed: self._admission.admit(operation, job.info, changed, old, job.user),
        )

    def _validate_admission(self, job: _WriteJob, tree: Tree, old: Tree | None) -> None:
        """Run the limit ranges and the validating policies on a prepared write; ApiError."""
        self._admission.validate_limits(job.info, tree, old)
        policies = self._admission.policies
        if policies.validates and job.info.subresource != _SCALE:
            policies.validate(
                write_attributes(job.info, tree, old, job.user, job.options, job.warnings, job.name)
            )

    # -- the last steps

    def _prepare(self, job: _WriteJob, tree: Tree, old: Tree | None) -> Tree:
        prepared = prepare_write(self._context, job.info, tree, old, job.user)
        job.warnings += prepared.warnings
        name = tree["metadata"].get("name", "")
        problems = prepared.errors or (check_name(name) if old is None else ())
        if problems:
            raise invalid(job.info.group, job.info.resource.kind, name, problems)
        drop_empty_values(prepared.tree, job.info.resource.kind, old)
        if job.info.resource.key == "services" and not job.info.subresource:
            self._addresses.allocate(job.info, prepared.tree, old)
        return prepared.tree

    def track_managed_fields(self, job: _WriteJob, old: Tree | None, tree: Tree) -> Tree:
        """Update managedFields; an apply has computed them already."""
        if job.applied:
            tree["metadata"].pop("managedFields", None)
            if job.managed:
                tree["metadata"]["managedFields"] = job.managed
            return keep_times_if_unchanged(old, tree) if old is not None else tree
        resource = job.info.resource
        version = tracked_version(resource, job.info.version)
        return track_update(
            old,
            tree,
            schema=schema_for(resource.group, resource.versions[0], resource.kind),
            manager=job.options.field_manager,
            api_version=resource.api_version(version),
            subresource=job.info.subresource,
            now=format_datetime(self._context.now()),
        )


def _patch_error(error: PatchError) -> ApiError:
    if error.code == 413:
        return request_entity_too_large(str(error))
    return bad_request(str(error)) if error.code == 400 else unprocessable(str(error))


def _has_version(metadata: Tree) -> bool:
    """Return whether an object states the version it is based on; "0" does not count, as upstream."""
    return bool(metadata.get("resourceVersion", "").strip("0"))


def _resource_version_required(info: RequestInfo, name: str) -> ApiError:
    """Create the error of an unconditional update; upstream names the resource here instead of the kind."""
    path = FieldPath("metadata").child("resourceVersion")
    problem = invalid_value(path, 0, "must be specified for an update")
    return invalid(info.group, info.plural, name, [problem])


def is_ready_to_remove(tree: Tree) -> bool:
    """Return whether an object that is being deleted has nothing left to wait for."""
    metadata = tree["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    spec = tree.get("spec")
    return not (tree.get("kind") == "Namespace" and isinstance(spec, dict) and spec.get("finalizers"))


def _copy_or_remove(before: Tree, metadata: Tree, name: str) -> None:
    if name in before:
        metadata[name] = before[name]
    else:
        metadata.pop(name, None)
