"""What pods and persistent volumes refer to by name.

Owns the reading of references to secrets, config maps, service accounts and claims out of plain trees, for
the Node authorizer and for mirror pods. Promises never to raise, whatever the tree looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MIRROR = "kubernetes.io/config.mirror"

#: Volumes with a reference to a secret, and where it stands.
_VOLUME_SECRETS = (
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
)
#: The same of persistent volumes; those at the end name the namespace themselves and inherit none.
_PERSISTENT_SECRETS = (
    ("cephfs", "secretRef", True),
    ("flexVolume", "secretRef", True),
    ("rbd", "secretRef", True),
    ("scaleIO", "secretRef", True),
    ("iscsi", "secretRef", True),
    ("cinder", "secretRef", False),
    ("storageos", "secretRef", False),
    ("csi", "nodePublishSecretRef", False),
    ("csi", "nodeStageSecretRef", False),
    ("csi", "nodeExpandSecretRef", False),
)


class Reference(NamedTuple):
    """An object that is meant: its resource (as in store keys), namespace and name."""

    resource: str
    namespace: str
    name: str


SECRETS, CONFIG_MAPS, ACCOUNTS = "secrets", "configmaps", "serviceaccounts"
VOLUME_CLAIMS, RESOURCE_CLAIMS = "persistentvolumeclaims", "resourceclaims.resource.k8s.io"


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object, or an empty one where something else stands."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of a list, or nothing."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def text(value: Any) -> str:
    """A text, or an empty one where something else stands."""
    return value if isinstance(value, str) else ""


def is_mirror(pod: Mapping[str, Any]) -> bool:
    """Whether a pod stands for a static one of a node."""
    return MIRROR in mapping(mapping(pod.get("metadata")).get("annotations"))


def pod_references(pod: Mapping[str, Any]) -> Iterator[Reference]:
    """Everything a pod names that its node has to read for it. A mirror pod names nothing: a node that
    makes one up must not gain anything by it."""
    if is_mirror(pod):
        return
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    namespace = text(metadata.get("namespace"))
    for resource, name in _pod_names(metadata, spec, mapping(pod.get("status"))):
        if name:
            yield Reference(resource, namespace, name)


def _pod_names(
    metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    yield ACCOUNTS, text(spec.get("serviceAccountName"))
    for pull in items(spec.get("imagePullSecrets")):
        yield SECRETS, text(pull.get("name"))
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in items(spec.get(group)):
            yield from _container_names(container)
    for volume in items(spec.get("volumes")):
        yield from _volume_names(text(metadata.get("name")), volume)
    for claim in items(spec.get("resourceClaims")):
        if claim.get("resourceClaimName") is not None:
            yield RESOURCE_CLAIMS, text(claim.get("resourceClaimName"))
            continue
        for made in items(status.get("resourceClaimStatuses")):
            if made.get("name") == claim.get("name"):
                yield RESOURCE_CLAIMS, text(made.get("resourceClaimName"))
                break
    yield RESOURCE_CLAIMS, text(mapping(status.get("extendedResourceClaimStatus")).get("resourceClaimName"))


def _container_names(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for source in items(container.get("envFrom")):
        yield SECRETS, text(mapping(source.get("secretRef")).get("name"))
        yield CONFIG_MAPS, text(mapping(source.get("configMapRef")).get("name"))
    for variable in items(container.get("env")):
        origin = mapping(variable.get("valueFrom"))
        yield SECRETS, text(mapping(origin.get("secretKeyRef")).get("name"))
        yield CONFIG_MAPS, text(mapping(origin.get("configMapKeyRef")).get("name"))


def _volume_names(pod: str, volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield SECRETS, text(mapping(volume.get("secret")).get("secretName"))
    yield SECRETS, text(mapping(volume.get("azureFile")).get("secretName"))
    for kind, field in _VOLUME_SECRETS:
        if kind in volume:
            yield SECRETS, text(mapping(mapping(volume[kind]).get(field)).get("name"))
    yield CONFIG_MAPS, text(mapping(volume.get("configMap")).get("name"))
    for source in items(mapping(volume.get("projected")).get("sources")):
        yield SECRETS, text(mapping(source.get("secret")).get("name"))
        yield CONFIG_MAPS, text(mapping(source.get("configMap")).get("name"))
    if isinstance(volume.get("persistentVolumeClaim"), dict):
        yield VOLUME_CLAIMS, text(volume["persistentVolumeClaim"].get("claimName"))
    elif isinstance(volume.get("ephemeral"), dict):
        yield VOLUME_CLAIMS, f"{pod}-{text(volume.get('name'))}"


def volume_claim(volume: Mapping[str, Any]) -> Reference | None:
    """The claim a persistent volume is bound to."""
    claim = mapping(mapping(volume.get("spec")).get("claimRef"))
    name = text(claim.get("name"))
    return Reference(VOLUME_CLAIMS, text(claim.get("namespace")), name) if name else None


def volume_secrets(volume: Mapping[str, Any]) -> Iterator[Reference]:
    """The secrets of a persistent volume that a node reads to mount it."""
    spec = mapping(volume.get("spec"))
    home = text(mapping(spec.get("claimRef")).get("namespace"))
    azure = mapping(spec.get("azureFile"))
    found = [(text(azure.get("secretNamespace")) or home, text(azure.get("secretName")))]
    for kind, field, inherits in _PERSISTENT_SECRETS:
        reference = mapping(mapping(spec.get(kind)).get(field))
        namespace = text(reference.get("namespace")) or (home if inherits else "")
        found.append((namespace, text(reference.get("name"))))
    for namespace, name in found:
        if name:
            yield Reference(SECRETS, namespace, name)
