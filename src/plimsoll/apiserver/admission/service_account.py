"""Admission plugin ServiceAccount: the service account of a new pod, and the volume with its token.

As upstream: a pod that names no account gets `default`; the account must exist; unless pod or account disable
it, every container and init container mounts a projected volume with a token, the certificate of the API
server and the namespace; the pull secrets of the account are copied; an account with the annotation
`kubernetes.io/enforce-mountable-secrets` limits the secrets of its pods. Pure functions on trees as clients
send them; what is malformed is passed on, for preparation to reject.

The volume is added to prepared pods, since its random name would make every pod a new one for the cache of
validated specs, and its fields are owned by no manager, as upstream. Where mutating policies exist, which see
it, it is added before.

DIFF: the account `default` need not exist (test_the_default_account_need_not_exist).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plimsoll.apiserver.admission.plugins import AdmissionResult
from plimsoll.apiserver.auth.pod_references import SECRETS, is_mirror, list_references
from plimsoll.apiserver.json_values import get_path, items, mapping, text
from plimsoll.apiserver.validation.object_trees import Tree

DEFAULT_ACCOUNT = "default"
TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
#: Prefix of the name of the volume with the token.
TOKEN_VOLUME_PREFIX = "kube-api-access-"

_LIMIT_ANNOTATION = "kubernetes.io/enforce-mountable-secrets"
#: True for Go's strconv.ParseBool.
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
#: Projected volume; the lifetime is the one by which upstream recognizes tokens that admission added.
_PROJECTED: Tree = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                ]
            }
        },
    ],
    "defaultMode": 0o644,
}
_CONTAINERS = {"initContainers": "init container", "containers": "container"}
_EPHEMERAL = {"ephemeralContainers": "ephemeral container"}


def account_name(pod: Tree) -> str:
    """Return the name of a pod's service account: the one it names, or `default`."""
    spec = mapping(mapping(pod).get("spec"))
    return text(spec.get("serviceAccountName")) or text(spec.get("serviceAccount")) or DEFAULT_ACCOUNT


def admit_service_account(pod: Tree, account: Tree | None) -> AdmissionResult:
    """Return a new pod with its account and pull secrets.

    `account` is the one that `account_name` names, None if it does not exist.
    """
    spec = mapping(pod).get("spec")
    if not isinstance(spec, dict):
        return AdmissionResult(pod)
    if is_mirror(pod):
        return AdmissionResult(pod, _check_mirror(pod))
    name = account_name(pod)
    if account is None and name != DEFAULT_ACCOUNT:
        return AdmissionResult(pod, _not_found(pod, name))
    account = account or {}
    spec = {**spec, "serviceAccountName": name, "serviceAccount": name}
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": each} for each in _names(account.get("imagePullSecrets"))]
    return AdmissionResult(
        {**pod, "spec": spec}, _check_secrets(spec, account) if _is_limited(account) else ""
    )


def check_ephemeral_containers(pod: Tree, account: Tree | None) -> str:
    """Return the reason why the ephemeral containers of a pod are refused, or ""."""
    name = account_name(pod)
    if account is None and name != DEFAULT_ACCOUNT:
        return _not_found(pod, name)
    if account is None or not _is_limited(account):
        return ""
    return next(_find_unlisted(mapping(pod.get("spec")), account, _EPHEMERAL), "")


def _not_found(pod: Tree, name: str) -> str:
    namespace = text(get_path(pod, ("metadata", "namespace")))
    return f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'


def _names(objects: Any) -> list[str]:
    return [text(each.get("name")) for each in items(objects)]


# -- token


def mount_token(pod: Tree, account: Tree | None, generate_name: Callable[[str], str]) -> Tree:
    """Return a pod with the volume of its token, if it has to have one, mounted by the containers that mount
    nothing at its path. `generate_name` adds a random suffix to a prefix.
    """
    spec = mapping(pod).get("spec")
    if not isinstance(spec, dict) or is_mirror(pod) or not _wants_token(spec, account or {}):
        return pod
    volumes = spec.get("volumes") or []
    if not isinstance(volumes, list):
        return pod
    existing = next((name for name in _names(volumes) if name.startswith(TOKEN_VOLUME_PREFIX)), "")
    name = existing or generate_name(TOKEN_VOLUME_PREFIX)
    mount = {"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT_PATH}
    fields: Tree = {}
    for field in _CONTAINERS:
        containers = spec.get(field)
        if isinstance(containers, list):
            mounted = [_with_mount(container, mount) for container in containers]
            if any(new is not old for new, old in zip(mounted, containers, strict=True)):
                fields[field] = mounted
    if fields and not existing:
        fields["volumes"] = [*volumes, {"name": name, "projected": _PROJECTED}]
    return {**pod, "spec": {**spec, **fields}} if fields else pod


def _wants_token(spec: Tree, account: Tree) -> bool:
    for tree in (spec, account):
        wanted = tree.get("automountServiceAccountToken")
        if wanted is not None:
            return wanted is True
    return True


def _with_mount(container: Any, mount: Tree) -> Any:
    mounts = container.get("volumeMounts") or [] if isinstance(container, dict) else None
    if not isinstance(mounts, list) or any(
        each.get("mountPath") == TOKEN_MOUNT_PATH for each in items(mounts)
    ):
        return container
    return {**container, "volumeMounts": [*mounts, mount]}


# -- limits on secrets


def _check_mirror(pod: Tree) -> str:
    spec = pod["spec"]
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        return "a mirror pod may not reference service accounts"
    if any(reference.resource == SECRETS for reference in list_references(pod)):
        return "a mirror pod may not reference secrets"
    for volume in items(spec.get("volumes")):
        for source in items(mapping(volume.get("projected")).get("sources")):
            if source.get("serviceAccountToken") is not None:
                return "a mirror pod may not use ServiceAccountToken volume projections"
    return ""


def _is_limited(account: Tree) -> bool:
    """Return whether pods of an account may use only the secrets that it lists."""
    return get_path(account, ("metadata", "annotations", _LIMIT_ANNOTATION)) in _TRUE


def _check_secrets(spec: Tree, account: Tree) -> str:
    name, listed = account["metadata"]["name"], _names(account.get("secrets"))
    reason = f"is not allowed because service account {name} does not reference that"
    for volume in items(spec.get("volumes")):
        secret = text(mapping(volume.get("secret")).get("secretName"))
        if volume.get("secret") is not None and secret not in listed:
            return f'volume with secret.secretName="{secret}" {reason} secret'
    for refusal in _find_unlisted(spec, account, _CONTAINERS):
        return refusal
    pulled = _names(account.get("imagePullSecrets"))
    for index, secret in enumerate(_names(spec.get("imagePullSecrets"))):
        if secret not in pulled:
            return f'imagePullSecrets[{index}].name="{secret}" {reason} imagePullSecret'
    return ""


def _find_unlisted(spec: Mapping[str, Any], account: Tree, kinds: Mapping[str, str]) -> Iterator[str]:
    """Return the refusals of variables from secrets that an account does not list."""
    name, listed = account["metadata"]["name"], _names(account.get("secrets"))
    for field, kind in kinds.items():
        for container in items(spec.get(field)):
            for variable, secret in _secret_variables(container):
                if secret not in listed:
                    yield (
                        f"{kind} {text(container.get('name'))} with {variable} referencing "
                        f'secret.secretName="{secret}" is not allowed because service account {name} '
                        "does not reference that secret"
                    )


def _secret_variables(container: Tree) -> Iterator[tuple[str, str]]:
    """Return the variables of a container that come from secrets, and the names of these secrets."""
    for variable in items(container.get("env")):
        source = get_path(variable, ("valueFrom", "secretKeyRef"))
        if isinstance(source, dict):
            yield f"envVar {text(variable.get('name'))}", text(source.get("name"))
    for origin in items(container.get("envFrom")):
        if isinstance(origin.get("secretRef"), dict):
            yield "envFrom", text(origin["secretRef"].get("name"))
