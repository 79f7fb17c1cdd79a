"""Admission chain: runs the admission plugins of a write in order.

Reads what the plugins need from the store (namespaces, priority classes, quotas, runtime classes). Namespace
lifecycle comes first; quota comes last, since it charges what the others have determined. The callers run
admission policies (`policies`) between them: mutating ones after `admit`, validating ones after validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.api import codec
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.api.storage import StorageClass
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.admission.claim_charges import StoredClaims
from plimsoll.apiserver.admission.limit_ranges import apply_defaults, find_violations, has_limits
from plimsoll.apiserver.admission.node_restriction import restrict_driver, restrict_node
from plimsoll.apiserver.admission.plugins import admit_pod, check_namespace, check_single_default
from plimsoll.apiserver.admission.pod_groups import admit_pod_group
from plimsoll.apiserver.admission.policies.param_authorization import authorize_params
from plimsoll.apiserver.admission.policies.policy_admission import PolicyAdmission
from plimsoll.apiserver.admission.quota import charge_quotas
from plimsoll.apiserver.admission.service_account import (
    account_name,
    admit_service_account,
    check_ephemeral_containers,
    mount_token,
)
from plimsoll.apiserver.admission.storage import CLAIMS as VOLUME_CLAIMS
from plimsoll.apiserver.admission.storage import CLASSES as STORAGE_CLASSES
from plimsoll.apiserver.admission.storage import VOLUMES, admit_storage
from plimsoll.apiserver.auth.escalation import check_escalation
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.generated_names import generate_name
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import forbidden, not_found
from plimsoll.apiserver.storage import ObjectKey, StoredObject
from plimsoll.apiserver.validation.priority_classes import SYSTEM_CLASSES
from plimsoll.apiserver.validation.write import default_object
from plimsoll.controllers.quota.usage import (
    CLAIMS,
    ExtendedResourceNames,
    QuotaContext,
)
from plimsoll.errors import ApiError, DecodeError

Tree = dict[str, Any]

_DEVICE_CLASSES = "deviceclasses.resource.k8s.io"
_CLASSES = "priorityclasses.scheduling.k8s.io"
_POD_GROUPS, _WORKLOADS = "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"
_RUNTIMES = "runtimeclasses.node.k8s.io"
_LIMIT_RANGES = "limitranges"
_ACCOUNTS = "serviceaccounts"
_EPHEMERAL = "ephemeralcontainers"
_LIMITED = frozenset(("pods", "persistentvolumeclaims"))
_MAX_DECODED = 1024


class AdmissionChain:
    """Admission chain of one API. `is_observed` states that the store reports writes to its observers."""

    def __init__(self, context: ApiContext, *, is_observed: bool = True) -> None:
        self.policies = PolicyAdmission(context, is_observed=is_observed)
        context.store.observe(self.policies.observe)
        self._context = context
        self._store = context.store
        self._decoded: dict[ObjectKey, tuple[int, Tree]] = {}
        #: Objects by resource and namespace, until one of the resource is written; None without observation.
        self._lists: dict[str, dict[str | None, list[Tree]]] | None = None
        if is_observed:
            self._lists = {}
            context.store.observe(self._forget_list)

    def admit_namespace(self, info: RequestInfo) -> None:
        """Require that the namespace of a new object exists and is not terminating; ApiError 404 or 403."""
        if not info.resource.namespaced or not info.resource.is_stored:
            return
        refusal = check_namespace(info.namespace, self._find("namespaces", "", info.namespace))
        if refusal is not None:
            code, why = refusal
            if code == 404:
                raise not_found("", "namespaces", info.namespace)
            raise _with_terminating_cause(forbidden(info.group, info.plural, "", why), info.namespace)

    def admit(self, operation: str, info: RequestInfo, tree: Tree, old: Tree | None, user: User) -> Tree:
        """Run the plugins before a write is prepared, and return the object; ApiError 403."""
        self._check_restrictions(user, operation, info, tree, old)
        name = tree["metadata"].get("name", "")
        check_escalation(
            user,
            info.resource.key,
            tree,
            old,
            self._context.authorizer,
            namespace=info.namespace,
            name=name,
        )
        authorize_params(info, tree, old, user, self._context.authorizer, self._store)
        key = info.resource.key
        if key == "pods" and (not info.subresource or info.subresource == "resize"):
            return self._admit_pod(info, tree, old)
        if key == "pods" and info.subresource == _EPHEMERAL:
            if why := check_ephemeral_containers(tree, self._find_account(info, tree)):
                raise forbidden("", "pods", name, why)
            return tree
        if key in (VOLUME_CLAIMS, VOLUMES) and not info.subresource:
            admitted = admit_storage(key, tree, old, self._list_storage_classes)
            if admitted.refusal:
                raise forbidden(info.group, info.plural, name, admitted.refusal)
            return admitted.tree
        if key == _POD_GROUPS and old is None:
            return self._admit_pod_group(info, tree)
        if key == _CLASSES and (why := check_single_default(tree, old, self._list(_CLASSES))):
            raise forbidden(info.group, info.plural, name, why)
        return tree

    def complete(self, info: RequestInfo, tree: Tree) -> Tree:
        """Add to a new, prepared object what needs no preparation: the token volume of a pod."""
        if info.resource.key != "pods" or info.subresource:
            return tree
        return mount_token(tree, self._find_account(info, tree), generate_name)

    def charge(self, info: RequestInfo, tree: Tree, old: Tree | None, *, dry_run: bool) -> None:
        """Charge a prepared write to the quotas of its namespace; ApiError 403 if one would be exceeded.

        The quotas' new usage is stored right before the object, in the same commit.
        """
        if not info.namespace:
            return
        quotas = self._list("resourcequotas", info.namespace)
        if not quotas:
            return
        charged = charge_quotas(
            quotas,
            info.resource.key,
            tree,
            old,
            self._quota_context(info),
            subresource=info.subresource,
        )
        if charged.refusal:
            raise forbidden(info.group, info.plural, tree["metadata"].get("name", ""), charged.refusal)
        for quota in () if dry_run else charged.quotas:
            key = ObjectKey("resourcequotas", info.namespace, quota["metadata"]["name"])
            stored = self._store.get(key)
            if stored is not None:
                self._store.update(key, quota, stored.revision)

    def validate_limits(self, info: RequestInfo, tree: Tree, old: Tree | None) -> None:
        """Validate a prepared pod or volume claim against the limit ranges of its namespace; ApiError 403."""
        if info.resource.key not in _LIMITED or not has_limits(info, old):
            return
        ranges = self._list(_LIMIT_RANGES, info.namespace)
        if ranges and (why := find_violations(info.resource.kind, tree, ranges)):
            raise forbidden(info.group, info.plural, tree["metadata"].get("name", ""), why)

    def _default_limits(self, info: RequestInfo, tree: Tree, old: Tree | None) -> Tree:
        """Return a pod with the defaults of the limit ranges, which come after those of the kind."""
        ranges = self._list(_LIMIT_RANGES, info.namespace) if has_limits(info, old) else []
        if not ranges or not isinstance(tree.get("spec"), dict):
            return tree
        now = format_datetime(self._context.now())
        try:
            return apply_defaults(default_object("Pod", tree, now, self._context.gates), ranges)
        except DecodeError:
            return tree  # malformed: preparation rejects it

    def _admit_pod(self, info: RequestInfo, tree: Tree, old: Tree | None) -> Tree:
        tree = self._default_limits(info, tree, old)
        if info.subresource:
            return tree
        spec = tree.get("spec")
        name = tree["metadata"].get("name", "")
        if old is None:
            account = self._find_account(info, tree)
            admitted = admit_service_account(tree, account)
            if admitted.refusal:
                raise forbidden("", "pods", name, admitted.refusal)
            tree = admitted.tree
            if self.policies.mutates:
                tree = mount_token(tree, account, generate_name)
        runtime = spec.get("runtimeClassName") if isinstance(spec, dict) else None
        runtime_class = self._find(_RUNTIMES, "", runtime) if isinstance(runtime, str) else None
        admitted = admit_pod(tree, old, self._list(_CLASSES), runtime_class)
        if admitted.refusal:
            raise forbidden("", "pods", name, admitted.refusal)
        return admitted.tree

    def _find_account(self, info: RequestInfo, pod: Tree) -> Tree | None:
        return self._find(_ACCOUNTS, info.namespace, account_name(pod))

    def _admit_pod_group(self, info: RequestInfo, tree: Tree) -> Tree:
        def find_workload(name: str) -> Tree | None:
            return self._find(_WORKLOADS, info.namespace, name)

        admitted = admit_pod_group(tree, self._context.gates, self._list(_CLASSES), find_workload)
        if admitted.refusal:
            name = tree["metadata"].get("name", "")
            raise forbidden(info.group, info.plural, name, admitted.refusal)
        return admitted.tree

    def _list_storage_classes(self) -> list[StorageClass]:
        return [codec.convert_fast(tree, StorageClass) for tree in self._list(STORAGE_CLASSES)]

    def _quota_context(self, info: RequestInfo) -> QuotaContext:
        """Return the objects that the usage depends on; only pods and claims depend on others."""
        now, gates = self._context.now(), self._context.gates
        claims = StoredClaims(self._store, info.namespace, gates)
        if info.resource.key != CLAIMS:
            return QuotaContext(
                now, gates, find_consumers=claims.find_consumers, expected_claims=claims.charge_allocated
            )

        def find_claims(uid: str) -> Iterator[ResourceClaim]:
            for stored in self._store.list(CLAIMS, info.namespace).items:
                claim = codec.decode(stored.raw, ResourceClaim)
                owner = find_requesting_pod(claim)
                if owner is not None and owner.uid == uid:
                    yield claim

        classes = (codec.convert_fast(tree, DeviceClass) for tree in self._list(_DEVICE_CLASSES))
        return QuotaContext(now, gates, ExtendedResourceNames.of(classes), claims.find_pod, find_claims)

    def _find(self, resource: str, namespace: str, name: str) -> Tree | None:
        stored = self._store.get(ObjectKey(resource, namespace, name))
        return None if stored is None else self._read(stored)

    def _list(self, resource: str, namespace: str | None = None) -> list[Tree]:
        known = self._lists.get(resource) if self._lists is not None else None
        if known is not None and namespace in known:
            return known[namespace]
        found = [self._read(stored) for stored in self._store.list(resource, namespace).items]
        if self._lists is not None:
            if known is None or len(known) >= _MAX_DECODED:
                known = self._lists[resource] = {}
            known[namespace] = found
        return found

    def _forget_list(self, key: ObjectKey, tree: object) -> None:
        if self._lists and key.resource in self._lists:
            del self._lists[key.resource]

    def _read(self, stored: StoredObject) -> Tree:
        """Return a stored object as a read-only tree; the few that every write needs are decoded once."""
        known = self._decoded.get(stored.key)
        if known is None or known[0] != stored.revision:
            if len(self._decoded) >= _MAX_DECODED:
                self._decoded.clear()
            known = self._decoded[stored.key] = (stored.revision, codec.decode_tree(stored.raw))
        return known[1]

    def admit_deletion(self, info: RequestInfo, tree: Tree, user: User) -> None:
        """Run the plugins of a deletion; ApiError."""
        self._check_restrictions(user, "delete", info, None, tree)
        name = tree["metadata"]["name"]
        if info.resource.key == _CLASSES and name in SYSTEM_CLASSES:
            why = "this is a system priority class and cannot be deleted"
            raise forbidden(info.group, info.plural, name, why)

    def admit_eviction(self, info: RequestInfo, eviction: Any, user: User) -> None:
        """Allow nodes to evict their own pods only; ApiError."""
        self._check_restrictions(user, "create", info, eviction, None)

    def admit_token(self, info: RequestInfo, request: Any, user: User) -> None:
        """Allow nodes to request tokens of their own pods only; ApiError."""
        self._check_restrictions(user, "create", info, request, None)

    def _check_restrictions(self, user: User, verb: str, info: RequestInfo, tree: Any, old: Any) -> None:
        restrict_node(
            user,
            verb,
            info.resource.key,
            info.subresource,
            tree,
            old,
            self._store,
            namespace=info.namespace,
            name=info.name,
            allows=self._context.authorizer.allows,
        )
        restrict_driver(user, info.resource.key, tree, old)


def _with_terminating_cause(refusal: ApiError, namespace: str) -> ApiError:
    """Add the cause by which controllers recognize that a retry is pointless."""
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    details = {**(refusal.details or {}), "causes": [cause]}
    return ApiError(refusal.code, refusal.reason, refusal.message, details)
