"""References of pods and persistent volumes to other objects.

Reads references to secrets, config maps, service accounts and claims from plain trees, for the Node
authorizer and for mirror pods. Never raises, whatever the tree looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from plimsoll.apiserver.json_values import items, mapping, text

MIRROR = "kubernetes.io/config.mirror"

#: Volume types with a reference to a secret, and its field.
_VOLUME_SECRETS = {
    "cephfs": "secretRef",
    "cinder": "secretRef",
    "flexVolume": "secretRef",
    "rbd": "secretRef",
    "scaleIO": "secretRef",
    "iscsi": "secretRef",
    "storageos": "secretRef",
    "csi": "nodePublishSecretRef",
}
#: Volume types of persistent volumes, the field, and whether the namespace defaults to the claim's.
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


class PodReference(NamedTuple):
    """Referenced object: its resource (as in store keys), namespace and name."""

    resource: str
    namespace: str
    name: str


SECRETS, CONFIG_MAPS, ACCOUNTS = "secrets", "configmaps", "serviceaccounts"
VOLUME_CLAIMS, RESOURCE_CLAIMS = "persistentvolumeclaims", "resourceclaims.resource.k8s.io"


def is_mirror(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is the mirror pod of a static pod."""
    return MIRROR in mapping(mapping(pod.get("metadata")).get("annotations"))


def pod_references(pod: Mapping[str, Any]) -> list[PodReference]:
    """Return everything a pod references that its node has to read. A mirror pod references nothing: a
    node that makes one up must not gain access by it.
    """
    return [] if is_mirror(pod) else list_references(pod)


def list_references(pod: Mapping[str, Any]) -> list[PodReference]:
    """Return everything that the fields of a pod reference, whether or not it is a mirror pod."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    namespace = text(metadata.get("namespace"))
    found: list[tuple[str, Any]] = [(ACCOUNTS, spec.get("serviceAccountName"))]
    for pull in items(spec.get("imagePullSecrets")):
        found.append((SECRETS, pull.get("name")))
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in items(spec.get(group)):
            _add_container(container, found)
    for volume in items(spec.get("volumes")):
        _add_volume(metadata.get("name"), volume, found)
    _add_claims(spec, mapping(pod.get("status")), found)
    return [PodReference(kind, namespace, name) for kind, name in found if name and isinstance(name, str)]


def _add_container(container: Mapping[str, Any], found: list[tuple[str, Any]]) -> None:
    for source in items(container.get("envFrom")):
        found.append((SECRETS, mapping(source.get("secretRef")).get("name")))
        found.append((CONFIG_MAPS, mapping(source.get("configMapRef")).get("name")))
    for variable in items(container.get("env")):
        if "valueFrom" in variable:
            origin = mapping(variable["valueFrom"])
            found.append((SECRETS, mapping(origin.get("secretKeyRef")).get("name")))
            found.append((CONFIG_MAPS, mapping(origin.get("configMapKeyRef")).get("name")))


def _add_volume(pod: Any, volume: Mapping[str, Any], found: list[tuple[str, Any]]) -> None:
    for kind, value in volume.items():
        source = mapping(value)
        if kind in ("secret", "azureFile"):
            found.append((SECRETS, source.get("secretName")))
        elif kind == "configMap":
            found.append((CONFIG_MAPS, source.get("name")))
        elif kind == "projected":
            for part in items(source.get("sources")):
                found.append((SECRETS, mapping(part.get("secret")).get("name")))
                found.append((CONFIG_MAPS, mapping(part.get("configMap")).get("name")))
        elif kind == "persistentVolumeClaim":
            found.append((VOLUME_CLAIMS, source.get("claimName")))
        elif kind == "ephemeral" and isinstance(value, dict) and "persistentVolumeClaim" not in volume:
            found.append((VOLUME_CLAIMS, f"{text(pod)}-{text(volume.get('name'))}"))
        elif kind in _VOLUME_SECRETS:
            found.append((SECRETS, mapping(source.get(_VOLUME_SECRETS[kind])).get("name")))


def _add_claims(spec: Mapping[str, Any], status: Mapping[str, Any], found: list[tuple[str, Any]]) -> None:
    for claim in items(spec.get("resourceClaims")):
        if claim.get("resourceClaimName") is not None:
            found.append((RESOURCE_CLAIMS, claim["resourceClaimName"]))
            continue
        for made in items(status.get("resourceClaimStatuses")):
            if made.get("name") == claim.get("name"):
                found.append((RESOURCE_CLAIMS, made.get("resourceClaimName")))
                break
    extended = mapping(status.get("extendedResourceClaimStatus"))
    found.append((RESOURCE_CLAIMS, extended.get("resourceClaimName")))


def volume_claim(volume: Mapping[str, Any]) -> PodReference | None:
    """Return the claim that a persistent volume is bound to."""
    claim = mapping(mapping(volume.get("spec")).get("claimRef"))
    name = text(claim.get("name"))
    return PodReference(VOLUME_CLAIMS, text(claim.get("namespace")), name) if name else None


def volume_secrets(volume: Mapping[str, Any]) -> Iterator[PodReference]:
    """Yield the secrets of a persistent volume that a node reads to mount it."""
    spec = mapping(volume.get("spec"))
    claim_namespace = text(mapping(spec.get("claimRef")).get("namespace"))
    azure = mapping(spec.get("azureFile"))
    found = [(text(azure.get("secretNamespace")) or claim_namespace, text(azure.get("secretName")))]
    for kind, field, inherits in _PERSISTENT_SECRETS:
        reference = mapping(mapping(spec.get(kind)).get(field))
        namespace = text(reference.get("namespace")) or (claim_namespace if inherits else "")
        found.append((namespace, text(reference.get("name"))))
    for namespace, name in found:
        if name:
            yield PodReference(SECRETS, namespace, name)
