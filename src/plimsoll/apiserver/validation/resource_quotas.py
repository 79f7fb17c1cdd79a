"""Resource quotas: which resources they can limit, and for which pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.core import ResourceList
from plimsoll.api.quota import ResourceQuota, ResourceQuotaSpec
from plimsoll.apiserver.validation.field_errors import Path, Problems, invalid, required
from plimsoll.apiserver.validation.metadata import IMMUTABLE, check_metadata, check_metadata_update
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.quantities import round_amounts
from plimsoll.apiserver.validation.resource_names import check_amount, check_quota_resource, is_quota_resource
from plimsoll.apiserver.validation.write_context import Endpoint, Job

_SPEC, _STATUS = Path("spec"), Path("status")

_OF_PODS = ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
_POD_RESOURCES = frozenset(
    ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
)

#: Scope -> the resources without a domain it can be combined with.
SCOPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_OF_PODS, _POD_RESOURCES),
    "BestEffort": frozenset(("pods",)),
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
_SCOPES_THAT_EXIST = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    "CrossNamespacePodAffinity",
)
_OPPOSITES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_MOST = 64  # scopes that are looked at, and resources told for each: enough of a hostile quota
_LIMITED = ("cpu", "memory", "storage", "ephemeral-storage")


def fill_quota(tree: Tree, now: str) -> None:
    round_amounts(part(tree, "spec").get("hard"))
    for name in ("hard", "used"):
        round_amounts(part(tree, "status").get(name))


def _prepare(job: Job[ResourceQuota]) -> None:
    job.take_back("status")


def _check(job: Job[ResourceQuota]) -> Problems:
    spec = job.decode().spec
    if job.creates:
        yield from check_metadata(job.metadata(), namespaced=True)
    else:
        yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from _check_amounts(spec.hard, _SPEC.child("hard"))
    yield from _check_scopes(spec)
    yield from _check_selector(spec)
    if not job.creates and set(spec.scopes) != set(job.old.spec.scopes):
        yield invalid(_SPEC.child("scopes"), ", ".join(spec.scopes), IMMUTABLE)


def _prepare_status(job: Job[ResourceQuota]) -> None:
    job.take_back("spec")


def _check_status(job: Job[ResourceQuota]) -> Problems:
    meta, status = job.metadata(), job.decode().status
    yield from check_metadata_update(meta, job.old_metadata())
    if not meta.resource_version:
        yield required(Path("resourceVersion"))
    yield from _check_amounts(status.hard or {}, _STATUS.child("hard"))
    yield from _check_amounts(status.used or {}, _STATUS.child("used"))


def _check_amounts(amounts: ResourceList, path: Path) -> Problems:
    for name, amount in amounts.items():
        yield from check_quota_resource(name, path.key(name))
        yield from check_amount(name, amount, path.key(name))


def _check_scopes(spec: ResourceQuotaSpec) -> Problems:
    path, shown = _SPEC.child("scopes"), ", ".join(spec.scopes[:_MOST])
    for scope in spec.scopes[:_MOST]:
        if scope not in SCOPES:
            yield invalid(path, shown, "unsupported scope")
        for _ in _misplaced(scope, spec.hard):
            yield invalid(path, shown, "unsupported scope applied to resource")
    yield from _check_opposites(spec.scopes, path)


def _misplaced(scope: str, hard: ResourceList) -> list[str]:
    """The resources that make no sense with a scope; names with a domain go with any."""
    allowed = SCOPES.get(scope)
    if allowed is None:
        return []
    return [name for name in hard if is_quota_resource(name) and name not in allowed][:_MOST]


def _check_opposites(scopes: Iterable[str], path: Path) -> Problems:
    for pair in _OPPOSITES:
        if pair <= set(scopes):
            yield invalid(path, ", ".join(sorted(pair)), "conflicting scopes")


def _check_selector(spec: ResourceQuotaSpec) -> Problems:
    """Requirements have no index in the paths of their problems, as in Kubernetes 1.36."""
    if spec.scope_selector is None:
        return
    path = _SPEC.child("scopeSelector", "matchExpressions")
    requirements = spec.scope_selector.match_expressions
    for requirement in requirements[:_MOST]:
        scope, operator = requirement.scope_name, requirement.operator
        if scope not in SCOPES:
            yield invalid(path.child("scopeName"), scope, "unsupported scope")
        for _ in _misplaced(scope, spec.hard):
            yield invalid(path, scope, "unsupported scope applied to resource")
        if scope in _SCOPES_THAT_EXIST and operator != "Exists":
            detail = f"must be 'Exists' when scope is any of {', '.join(_SCOPES_THAT_EXIST)}"
            yield invalid(path.child("operator"), operator, detail)
        yield from _check_values(operator, requirement.values, path)
    yield from _check_opposites([requirement.scope_name for requirement in requirements], path)


def _check_values(operator: str, values: Sequence[str], path: Path) -> Problems:
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(path.child("values"), detail)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(path.child("values"), ", ".join(values), detail)
    else:
        yield invalid(path.child("operator"), operator, "not a valid selector operator")


def _warn(job: Job[ResourceQuota]) -> Iterable[str]:
    """Requests that may be larger than limits are likely a mistake."""
    if not job.creates:
        return
    hard = job.decode().spec.hard
    for name in _LIMITED:
        request = f"requests.{name}"
        if request not in hard and name in ("cpu", "memory"):
            request = name
        limit = f"limits.{name}"
        if request in hard and limit in hard and hard[request] > hard[limit]:
            yield f"ResourceQuota {request} ({hard[request]}) should be less than {limit} ({hard[limit]})"


_QUOTA = Endpoint(ResourceQuota, _prepare, _check, _warn)

QUOTA_ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "ResourceQuota", ""): _QUOTA,
    ("update", "ResourceQuota", ""): _QUOTA,
    ("update", "ResourceQuota", "status"): Endpoint(ResourceQuota, _prepare_status, _check_status),
}
